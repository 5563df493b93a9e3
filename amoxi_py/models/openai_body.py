"""The body of an OpenAI Chat Completions request, written from a `ModelRequest`."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Any

from amoxi_py.models.kept import read_kept
from amoxi_py.models.openai_servers import ALL_FORMS, OTHER, OpenAIServer
from amoxi_py.models.sent_files import FileLimits, Form, ShownFile, ShownFiles
from amoxi_py.ports.chat_model import AssistantMessage, ModelMessage, ModelRequest, ToolResult, ToolSpec, UserMessage

PROVIDER = "openai"
LONGEST_DESCRIPTION = 1024
REASONING_FIELDS = ("reasoning_details", "reasoning_content", "reasoning")
FILE_LIMITS = FileLimits(picture=20 * 1024 * 1024, document=32 * 1024 * 1024, pictures=100, all=36 * 1024 * 1024)
KEPT_OF_CALLS = "calls"
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_AFTER_RESULTS = {"role": "assistant", "content": "I have the results."}
# Gemini's own mark for a call that another model has made
_WITHOUT_SIGNATURE = {"google": {"thought_signature": "skip_thought_signature_validator"}}

_log = logging.getLogger("amoxi_py")

# fmt: off
PARAMETERS = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens", "messages", "metadata", "modalities", "model", "moderation", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    "web_search_options",
})
# fmt: on


def write_messages(
    request: ModelRequest,
    *,
    model: str = "",
    server: OpenAIServer = OTHER,
    reasoning: bool = True,
    forms: Collection[Form] = ALL_FORMS,
) -> list[dict[str, Any]]:
    """Return the `messages` of a request.

    Args:
        request: What is asked.
        model: The model's name, to know its own reasoning by.
        server: The rules of the server.
        reasoning: Whether the model gets its reasoning back, where the server takes that.
        forms: In which forms files are shown.
    """
    shown = ShownFiles(request.messages, FILE_LIMITS)
    in_tool_turn = _tool_turns(request.messages) if reasoning and server.reasoning else frozenset()
    messages: list[dict[str, Any]] = []
    if request.instructions and not request.instructions.isspace():
        messages.append({"role": "system", "content": request.instructions})
    for place, message in enumerate(request.messages):
        if isinstance(message, UserMessage):
            if server.reply_after_results and messages and messages[-1]["role"] == "tool":
                messages.append(_AFTER_RESULTS)
            parts = [_file_part(file) for file in shown.of(message) if file.form in forms] if message.files else []
            text = message.content
            messages.append({"role": "user", "content": [*parts, {"type": "text", "text": text}] if parts else text})
        elif isinstance(message, ToolResult):
            called = _call_id(message.call_id, server)
            messages.append({"role": "tool", "tool_call_id": called, "content": message.content})
        else:
            kept = read_kept(message.kept, PROVIDER, model) or {}
            written = _write_reply(message, server, kept)
            if place in in_tool_turn:
                written |= _own_reasoning(kept)
            messages.append(written)
    return messages


def write_tools(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    """Return the `tools` of a request, fitted to this API: a short description, and `items` for every array."""
    for tool in tools:
        if len(tool.description) > LONGEST_DESCRIPTION:
            _log.warning(
                "the description of the tool %r has %d characters; this API takes %d, the rest is not told",
                tool.name,
                len(tool.description),
                LONGEST_DESCRIPTION,
            )
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description[:LONGEST_DESCRIPTION],
                "parameters": _with_items(tool.parameters),
            },
        }
        for tool in tools
    ]


def _call_id(ours: str, server: OpenAIServer) -> str:
    """Return the id of a call as the server takes it: the same one for the same call, in every request."""
    if not server.short_ids or _SHORT_ID.fullmatch(ours):
        return ours
    number = int.from_bytes(blake2b(ours.encode(), digest_size=8).digest(), "big")
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return "".join(letters)


def _write_reply(message: AssistantMessage, server: OpenAIServer, kept: Mapping[str, Any]) -> dict[str, Any]:
    if not message.calls:
        return {"role": "assistant", "content": message.text}
    calls: list[dict[str, Any]] = [
        {
            "id": _call_id(call.id, server),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.calls
    ]
    extras = kept.get(KEPT_OF_CALLS) or ()
    if len(extras) == len(calls):
        for call, extra in zip(calls, extras, strict=True):
            if extra:
                call["extra_content"] = extra
    elif server.signed_calls:
        calls[0]["extra_content"] = _WITHOUT_SIGNATURE
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _own_reasoning(kept: Mapping[str, Any]) -> dict[str, Any]:
    for name in REASONING_FIELDS:  # the same reasoning in another form is not sent twice
        if kept.get(name):
            return {name: kept[name]}
    return {}


def _tool_turns(messages: tuple[ModelMessage, ...]) -> frozenset[int]:
    """Return the places of replies between two messages of a person where the model called tools.

    Providers want the reasoning back there, some in all later requests, and some refuse it anywhere else.
    """
    places: set[int] = set()
    turn: list[int] = []
    called = False
    for place, message in enumerate(messages):
        if isinstance(message, UserMessage):
            places.update(turn if called else ())
            turn, called = [], False
        elif isinstance(message, AssistantMessage):
            turn.append(place)
            called = called or bool(message.calls)
    places.update(turn if called else ())
    return frozenset(places)


def _file_part(file: ShownFile) -> dict[str, Any]:
    if file.form == "text":
        return {"type": "text", "text": file.text}
    url = f"data:{file.media_type};base64,{file.base64}"
    if file.form == "picture":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def _with_items(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        fitted = {key: _with_items(part) for key, part in schema.items()}
        if fitted.get("type") == "array":
            fitted.setdefault("items", {})
        return fitted
    return [_with_items(part) for part in schema] if isinstance(schema, (list, tuple)) else schema
