"""Scripted answers of the strict model server in the form of OpenAI's Chat Completions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from amoxi_py.models.openai_reading import OpenAIBody, read_openai_body
from amoxi_py.models.openai_rules import PROVIDERS
from amoxi_py.models.script import ScriptedCall, ScriptedFailure, ScriptedReply, ScriptedThinking
from amoxi_py.testing.wire import CutHere, Spoken

_FINISH = {"length": "length", "content_filter": "content_filter"}
_ERROR = {"message": "scripted error in the stream", "type": "server_error", "param": None, "code": None}


class OpenAIWire:
    """This wire format: reads requests and writes answers.

    Args:
        one_index: Whether every streamed call is counted as number 0, as some servers do.
        reasoning: The field that reasoning is sent in: `reasoning_content`, `reasoning` or `reasoning_details`.
        like: The provider whose own rules it keeps to, or None.
    """

    def __init__(
        self, *, one_index: bool = False, reasoning: str = "reasoning_content", like: str | None = None
    ) -> None:
        if like is not None and like not in PROVIDERS:
            raise ValueError(f"the strict server cannot be like {like!r}; it may be like one of {list(PROVIDERS)}")
        self.one_index = one_index
        self.reasoning = reasoning
        self.like = like
        self._given: set[str] = set()

    def read(self, body: bytes, headers: Mapping[str, str]) -> tuple[OpenAIBody | None, list[str]]:
        return read_openai_body(body, given=self._given, like=self.like)

    def failure(self, failure: ScriptedFailure) -> dict[str, Any]:
        reason = failure.reason
        return {"error": {"message": failure.text, "type": reason or "error", "param": None, "code": reason}}

    def whole(self, asked: OpenAIBody, reply: ScriptedReply, spoken: Sequence[Spoken]) -> dict[str, Any]:
        if reply.ending == "error":
            return {"error": _ERROR}
        self._note(reply)
        calls = [part for part in spoken if isinstance(part, ScriptedCall)]
        thoughts = [part for part in spoken if isinstance(part, ScriptedThinking) and not part.redacted]
        text = "".join(part for part in spoken if isinstance(part, str))
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if thoughts:
            message[self.reasoning] = self._reasoning("".join(part.text for part in thoughts))
        if calls:
            message["tool_calls"] = [self._call_json(call, place) for place, call in enumerate(calls)]
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply, bool(calls))}
        head = {"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0, "model": asked.model}
        return {**head, "choices": [choice], "usage": _usage_json(reply)}

    async def stream(
        self, asked: OpenAIBody, reply: ScriptedReply, spoken: AsyncIterator[Spoken]
    ) -> AsyncIterator[bytes]:
        self._note(reply)
        yield _event(_chunk(asked, {"role": "assistant", "content": ""}))
        count = 0
        async for part in spoken:
            if isinstance(part, str):
                yield _event(_chunk(asked, {"content": part}))
            elif isinstance(part, ScriptedCall):
                for piece in _call_pieces(self._call_json(part, count), 0 if self.one_index else count):
                    yield _event(_chunk(asked, {"tool_calls": [piece]}))
                count += 1
            elif not part.redacted:
                middle = len(part.text) // 2
                for text in (part.text[:middle], part.text[middle:]):
                    yield _event(_chunk(asked, {self.reasoning: self._reasoning(text)}))
        for event in _end(asked, reply, count > 0):
            yield event

    def _call_json(self, call: ScriptedCall, place: int) -> dict[str, Any]:
        function = {"name": call.name, "arguments": call.arguments}
        whole = {"id": f"call_{place + 1}" if call.id is None else call.id, "type": "function", "function": function}
        if self.like == "gemini" and place == 0:
            whole["extra_content"] = {"google": {"thought_signature": f"signed-{call.name}"}}
        return whole

    def _note(self, reply: ScriptedReply) -> None:
        thoughts = [part.text for part in reply.parts if isinstance(part, ScriptedThinking) and not part.redacted]
        if thoughts:
            self._given.add("".join(thoughts))

    def _reasoning(self, text: str) -> Any:
        if self.reasoning != "reasoning_details":
            return text
        return [{"type": "reasoning.text", "text": text, "index": 0, "signature": None, "format": "unknown"}]


def _end(asked: OpenAIBody, reply: ScriptedReply, calls: bool) -> Iterator[bytes]:
    if reply.ending == "cut":
        raise CutHere
    if reply.ending == "error":
        yield _event({"error": _ERROR})
    elif reply.ending == "bad_json":
        yield b'data: {"choices": [{"delta\n\n'
    elif reply.ending != "unfinished":
        yield _event(_chunk(asked, {}, _finish_reason(reply, calls)))
        if asked.include_usage:
            yield _event({**_chunk(asked, {}), "choices": [], "usage": _usage_json(reply)})
    if reply.ending == "late_cut":
        raise CutHere
    if reply.ending not in ("unfinished", "no_done"):
        yield b"data: [DONE]\n\n"


def _chunk(asked: OpenAIBody, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    head = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": asked.model}
    return {**head, "choices": [choice]}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _finish_reason(reply: ScriptedReply, calls: bool) -> str:
    return _FINISH.get(reply.ending, "tool_calls" if calls else "stop")


def _usage_json(reply: ScriptedReply) -> dict[str, Any]:
    told, said = reply.usage.input_tokens, reply.usage.output_tokens
    usage: dict[str, Any] = {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}
    if reply.usage.cached_tokens:
        usage["prompt_tokens_details"] = {"cached_tokens": reply.usage.cached_tokens}
    return usage


def _call_pieces(whole: dict[str, Any], index: int) -> list[dict[str, Any]]:
    """Return a call as it is streamed: its name first, then its arguments in two pieces."""
    arguments = whole["function"]["arguments"]
    middle = len(arguments) // 2
    pieces = [part for part in (arguments[:middle], arguments[middle:]) if part]
    return [
        {"index": index, **whole, "function": {**whole["function"], "arguments": ""}},
        *({"index": index, "function": {"arguments": piece}} for piece in pieces),
    ]
