"""Scripted answers of the strict model server in the form of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.anthropic_reading import AnthropicBody, read_anthropic_body
from amoxi_py.models.anthropic_signatures import sign
from amoxi_py.models.script import ScriptedCall, ScriptedFailure, ScriptedReply, ScriptedThinking
from amoxi_py.testing.wire import CutHere, Spoken

_STOP = {"length": "max_tokens", "content_filter": "refusal"}
_ERROR = {"type": "error", "error": {"type": "api_error", "message": "scripted error in the stream"}}
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_REASONS = {
    "insufficient_quota": "billing_error",
    "rate_limit_exceeded": "rate_limit_error",
    "invalid_api_key": "authentication_error",
    "model_not_found": "not_found_error",
}

Block = dict[str, Any]


class AnthropicWire:
    """This wire format: reads requests and writes answers."""

    def read(self, body: bytes, headers: Mapping[str, str]) -> tuple[AnthropicBody | None, list[str]]:
        version = headers.get("anthropic-version")
        if version is None:
            return None, ["anthropic-version: header is required"]
        return read_anthropic_body(body, version)

    def failure(self, failure: ScriptedFailure) -> dict[str, Any]:
        text, kind = failure.text, _TYPES.get(failure.status)
        if kind is None:
            kind = "api_error" if failure.status >= 500 else "invalid_request_error"
        if failure.reason == "context_length_exceeded":
            text = f"prompt is too long: {text}"
        elif failure.reason is not None:
            kind = _REASONS.get(failure.reason, failure.reason)
        return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_scripted"}

    def whole(self, asked: AnthropicBody, reply: ScriptedReply, spoken: Sequence[Spoken]) -> dict[str, Any]:
        if reply.ending == "error":
            return _ERROR
        blocks: list[Block] = []
        for part in spoken:
            if isinstance(part, str) and blocks and blocks[-1]["type"] == "text":
                blocks[-1]["text"] += part
            elif part:
                blocks.append(_block(asked, part, blocks))
        message = _message(asked, _usage_json(reply))
        return {**message, "content": blocks, "stop_reason": _stop_reason(reply, blocks)}

    async def stream(
        self, asked: AnthropicBody, reply: ScriptedReply, spoken: AsyncIterator[Spoken]
    ) -> AsyncIterator[bytes]:
        usage = _usage_json(reply)
        yield _event("message_start", message=_message(asked, {**usage, "output_tokens": 1}))
        yield _event("ping")
        blocks: list[Block] = []
        async for part in spoken:
            if not part:
                continue
            if isinstance(part, str) and blocks and blocks[-1]["type"] == "text":
                blocks[-1]["text"] += part
            else:
                if blocks:
                    yield _event("content_block_stop", index=len(blocks) - 1)
                block = _block(asked, part, blocks)
                blocks.append(block)
                yield _event("content_block_start", index=len(blocks) - 1, content_block=_opened(block))
            for delta in _deltas(part, blocks[-1]):
                yield _event("content_block_delta", index=len(blocks) - 1, delta=delta)
        for event in _end(reply, blocks, usage["output_tokens"]):
            yield event


def _end(reply: ScriptedReply, blocks: Sequence[Block], said: int) -> Iterator[bytes]:
    if reply.ending == "cut":
        raise CutHere
    if reply.ending == "error":
        yield _event("error", error=_ERROR["error"])
    elif reply.ending == "bad_json":
        yield b'event: content_block_delta\ndata: {"type": "content_bl\n\n'
    elif reply.ending != "unfinished":
        if blocks:
            yield _event("content_block_stop", index=len(blocks) - 1)
        delta = {"stop_reason": _stop_reason(reply, blocks), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage={"output_tokens": said})
        if reply.ending == "late_cut":
            raise CutHere
        if reply.ending != "no_done":
            yield _event("message_stop")


def _message(asked: AnthropicBody, usage: dict[str, Any]) -> dict[str, Any]:
    head = {"id": "msg_scripted", "type": "message", "role": "assistant", "model": asked.model}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}


def _block(asked: AnthropicBody, part: Spoken, before: Sequence[Block]) -> Block:
    """Return a part as a whole block, behind those that the answer has already."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, ScriptedCall):
        number = sum(block["type"] == "tool_use" for block in before) + 1
        return {
            "type": "tool_use",
            "id": f"toolu_{number}" if part.id is None else part.id,
            "name": part.name,
            "input": _input(part.arguments),
        }
    # blank texts are given out, but not taken back
    told = [block for block in before if block["type"] != "text" or block["text"].strip()]
    signature = sign(asked.value, told, part.text)
    if part.redacted:
        return {"type": "redacted_thinking", "data": f"{signature}:{part.text}"}
    return {"type": "thinking", "thinking": part.text, "signature": signature}


def _input(arguments: str) -> Any:
    try:
        return decode_json(arguments)
    except ValueError:
        return arguments  # a stream sends the model's own text; in one piece there is no form for it


def _opened(block: Block) -> Block:
    empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
    return {name: empty.get(name, value) if name != "type" else value for name, value in block.items()}


def _deltas(part: Spoken, block: Block) -> Iterator[Block]:
    if isinstance(part, str):
        yield {"type": "text_delta", "text": part}
    elif isinstance(part, ScriptedCall):
        middle = len(part.arguments) // 2
        for piece in ("", part.arguments[:middle], part.arguments[middle:]):
            yield {"type": "input_json_delta", "partial_json": piece}
    elif isinstance(part, ScriptedThinking) and not part.redacted:
        yield {"type": "thinking_delta", "thinking": part.text}
        yield {"type": "signature_delta", "signature": block["signature"]}


def _stop_reason(reply: ScriptedReply, blocks: Sequence[Block]) -> str:
    calls = any(block["type"] == "tool_use" for block in blocks)
    return _STOP.get(reply.ending, "tool_use" if calls else "end_turn")


def _usage_json(reply: ScriptedReply) -> dict[str, int]:
    usage = reply.usage
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": usage.written_tokens,
        "output_tokens": usage.output_tokens,
    }


def _event(type: str, **more: Any) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **more})}\n\n".encode()
