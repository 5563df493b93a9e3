"""A conversation as pydantic-ai's models take it, and what of their replies is kept for later requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_ai import messages as pai

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.models.sent_files import look_at
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, ToolResult, UserMessage

_OWN_NAMES = {"stop": "stop_sequences", "effort": "thinking"}
_KEPT = ("kind", "parts", "model_name", "provider_name", "canonical_system")


def write_messages(request: ModelRequest, model: str) -> list[pai.ModelMessage]:
    """Return the messages of a request; results of calls and what a person says after them are one message."""
    told: list[pai.ModelMessage] = []
    parts: list[Any] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            parts.append(pai.UserPromptPart(content=_content(message)))
        elif isinstance(message, ToolResult):
            parts.append(
                pai.ToolReturnPart(
                    tool_name=message.tool,
                    content=message.content,
                    tool_call_id=message.call_id,
                    outcome="failed" if message.is_error else "success",
                )
            )
        else:
            if parts:
                told.append(pai.ModelRequest(parts=parts))
                parts = []
            told.append(_response(message, model))
    told.append(pai.ModelRequest(parts=parts, instructions=request.instructions.strip() or None))
    return told


def write_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options under pydantic-ai's names; its packages are told not to try again, since the engine does."""
    settings = {_OWN_NAMES.get(name, name): value for name, value in options.items()}
    if isinstance(settings.get("stop_sequences"), str):
        settings["stop_sequences"] = [settings["stop_sequences"]]
    return {"max_retries": 0, **settings}


def keep(response: pai.ModelResponse, model: str) -> str | None:
    """Return what a model wants back of its reply, or None: its parts, without the texts that the message holds."""
    if not any(_wants_back(part) for part in response.parts):
        return None
    texts = [part for part in response.parts if isinstance(part, pai.TextPart)]
    parts = [_emptied(part, len(texts) == 1) for part in response.parts]
    slim = pai.ModelResponse(
        parts=parts,
        model_name=response.model_name,
        provider_name=response.provider_name,
        canonical_system=response.canonical_system,
    )
    [dumped] = pai.ModelMessagesTypeAdapter.dump_python([slim], mode="json", exclude_none=True)
    kept = {name: dumped[name] for name in _KEPT if name in dumped}
    return encode_json({"provider": "pydantic-ai", "model": f"pydantic-ai/{model}", "response": kept})


def _content(message: UserMessage) -> str | Sequence[pai.UserContent]:
    seen: list[pai.UserContent] = []
    for file in message.files:
        shown = look_at(file)
        if shown is None:
            continue
        text = shown.text if shown.form == "text" else None
        seen.append(text or pai.BinaryContent(data=shown.data, media_type=shown.media_type, identifier=file.id))
    if not seen:
        return message.content
    return [message.content, *seen] if message.content else seen


def _response(message: AssistantMessage, model: str) -> pai.ModelResponse:
    kept = _kept(message, model)
    if kept is not None:
        return kept
    parts: list[Any] = [pai.TextPart(content=message.text)] if message.text.strip() else []
    parts += [
        pai.ToolCallPart(tool_name=call.name, args=call.arguments, tool_call_id=call.id) for call in message.calls
    ]
    return pai.ModelResponse(parts=parts)


def _kept(message: AssistantMessage, model: str) -> pai.ModelResponse | None:
    """Return the reply with all its parts, when this model has kept them and they fit what the message holds."""
    if message.kept is None:
        return None
    try:
        kept = decode_json(message.kept)
        if kept["model"] != f"pydantic-ai/{model}":
            return None
        [response] = pai.ModelMessagesTypeAdapter.validate_python([kept["response"]])
    except (ValueError, LookupError, TypeError, ValidationError):
        return None
    calls = iter(message.calls)
    parts: list[Any] = []
    for part in response.parts:
        if isinstance(part, pai.ToolCallPart):
            call = next(calls, None)
            if call is None:
                return None
            part = _with_call(part, call)
        elif isinstance(part, pai.TextPart) and not part.content:
            part = replace(part, content=message.text)
        parts.append(part)
    if next(calls, None) is not None or not isinstance(response, pai.ModelResponse):
        return None
    return replace(response, parts=parts)


def _with_call(part: Any, call: CallRequest) -> Any:
    return replace(part, tool_name=call.name, args=call.arguments, tool_call_id=call.id)


def _wants_back(part: object) -> bool:
    if isinstance(part, (pai.TextPart, pai.ToolCallPart)):
        return part.id is not None or bool(part.provider_details)
    return isinstance(part, pai.ThinkingPart)


def _emptied(part: Any, only_text: bool) -> Any:
    if isinstance(part, pai.ToolCallPart):
        return replace(part, args=None)
    return replace(part, content="") if isinstance(part, pai.TextPart) and only_text else part
