"""What single providers refuse that speak OpenAI's API: rules that the strict model server keeps to when it is told.

They are those that real requests have met, in the words in which the provider says them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from amoxi_py.models.openai_body import REASONING_FIELDS

_REASONS = re.compile(r"(?:gpt-[5-9]|o\d)")
_TOOLS_WITHOUT_EFFORT = re.compile(r"gpt-5\.(?P<minor>[4-9])")
_REASONS_BY_DEFAULT = 6
_SAMPLING = ("top_p", "presence_penalty", "frequency_penalty", "logprobs")
_SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")

# fmt: off
_MISTRAL = frozenset({
    "frequency_penalty", "max_tokens", "messages", "metadata", "model", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "prompt_cache_key", "reasoning_effort", "response_format", "stop", "stream", "temperature",
    "tool_choice", "tools", "top_p",
})
# fmt: on

Body = Mapping[str, Any]


def check_like(provider: str | None, body: Body) -> list[str]:
    """Return what a provider refuses about a body besides what all of them refuse."""
    return [] if provider is None else list(PROVIDERS[provider](body))


def _openai(body: Body) -> Iterator[str]:
    model = str(body.get("model"))
    effort = body.get("reasoning_effort")
    if not _REASONS.match(model):
        if effort is not None:
            yield "Unrecognized request argument supplied: reasoning_effort"
        return
    if "max_tokens" in body:
        yield (
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        )
    if body.get("temperature") not in (None, 1):
        yield (
            f"Unsupported value: 'temperature' does not support {body['temperature']} with this model. Only the "
            "default (1) value is supported."
        )
    for name in _SAMPLING:
        if name in body:
            yield f"Unsupported parameter: '{name}' is not supported with this model."
    found = _TOOLS_WITHOUT_EFFORT.match(model)
    reasons = effort != "none" if found and int(found["minor"]) >= _REASONS_BY_DEFAULT else effort not in (None, "none")
    if found and body.get("tools") and reasons:
        yield (
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use "
            "function tools, use /v1/responses or set reasoning_effort to 'none'."
        )
    for index, name in _reasoning(body):
        yield f"Unknown parameter: 'messages[{index}].{name}'."


def _mistral(body: Body) -> Iterator[str]:
    for name in sorted(body.keys() - _MISTRAL):
        yield f"[{{'type': 'extra_forbidden', 'loc': ['body', '{name}'], 'msg': 'Extra inputs are not permitted'}}]"
    for index, name in _reasoning(body):
        yield f"loc: ['body', 'messages', {index}, 'assistant', '{name}'], msg: 'Extra inputs are not permitted'"
    before = None
    for message in _messages(body):
        if message.get("role") == "user" and before == "tool":
            yield "Unexpected role 'user' after role 'tool'"
        before = message.get("role")
        ids = [call.get("id") for call in message.get("tool_calls") or ()]
        for called in (*ids, *filter(None, [message.get("tool_call_id")])):
            if not _SHORT_ID.fullmatch(called):
                yield f"Tool call id was {called} but must be a-z, A-Z, 0-9, with a length of 9."


def _groq(body: Body) -> Iterator[str]:
    for index, name in _reasoning(body):
        yield (
            f"'messages.{index}' : for 'role:assistant' the following must be satisfied[('messages.{index}' : property "
            f"'{name}' is unsupported)]"
        )


def _gemini(body: Body) -> Iterator[str]:
    for message in _messages(body):
        for call in (message.get("tool_calls") or ())[:1]:
            if not call.get("extra_content", {}).get("google", {}).get("thought_signature"):
                yield "Function call is missing a thought_signature in functionCall parts."


def _messages(body: Body) -> list[Mapping[str, Any]]:
    messages = body.get("messages")
    return [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []


def _reasoning(body: Body) -> Iterator[tuple[int, str]]:
    for index, message in enumerate(_messages(body)):
        yield from ((index, name) for name in REASONING_FIELDS if name in message)


PROVIDERS: dict[str, Callable[[Body], Iterator[str]]] = {
    "openai": _openai,
    "mistral": _mistral,
    "groq": _groq,
    "gemini": _gemini,
}
