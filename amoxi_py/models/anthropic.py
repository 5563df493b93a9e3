"""The adapter to Anthropic's Messages API.

A reply is finished when the provider gave a reason why it ended and has closed all of its blocks, and not before.
Reasoning is never shown; it is kept with the reply, signed as it came, and given back with it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from amoxi_py.domain.encoding import clean_json, clean_text, encode_json_unicode
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.models.anthropic_body import ALL_FORMS, CACHE_MARK, AnthropicPrompt, Block, takes_sampling, write_tools
from amoxi_py.models.encoded_files import ENCODED
from amoxi_py.models.failures import failure_in_stream, no_room_for_words
from amoxi_py.models.http_model import HttpModel
from amoxi_py.models.options import longest, request_options
from amoxi_py.models.sent_files import read_forms
from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, TextDelta, ToolSpec

ANTHROPIC_ADDRESS = "https://api.anthropic.com"
DEFAULT_MAX_TOKENS = 32_000

_OF_ADAPTER = frozenset({"server", "show_files", "timeout"})
_SAMPLING = ("temperature", "top_p", "top_k")
_VERSION = "2026-10-21"
# this version of the API refuses sampling options; the one before it takes them, for models that have them
_SAMPLING_VERSION = "2023-06-01"
_OWN_NAMES = {"max_completion_tokens": "max_tokens"}
_EFFORTS = {"minimal": "low"}
_HEADERS = {"user_profile_id": "anthropic-user-profile-id", "workspace_id": "anthropic-workspace-id"}
_ABOUT_REASONING = re.compile(r"`?signature`? in `?(?:redacted_)?thinking|thinking`? blocks .*cannot be modified")

_log = logging.getLogger("amoxi_py")


class AnthropicModel(HttpModel):
    """A model behind the Messages API.

    Nothing of it comes from the process's environment: neither the address nor a header.

    Args:
        model: Its name at the provider, such as `claude-sonnet-5-5`.
        api_key: The key; white space around it is dropped.
        base_url: Another server that speaks the same API.
        options: What every request is sent with, such as `{"max_tokens": 4000, "effort": "low"}`; the options of a
            request come on top. `max_tokens` is 32,000 if it is not given. `effort`, `stop` and `parallel_tool_calls`
            are given the provider's own form; `temperature`, `top_p` and `top_k` are left out, with a warning, for
            models that take none. Three are for the adapter: `timeout` is the seconds that a request may take in all
            (an hour); `cache_control` is the mark that it sets for the prompt cache (None for no marks); `show_files`
            is False, True, or those of "pictures", "documents" and "texts" that the model can look at.
            `extra_headers` are headers of the request.
        timeout: Seconds without a piece of the reply until a request counts as failed.
    """

    _provider = "anthropic"
    _address = ANTHROPIC_ADDRESS
    _path = "/v1/messages"

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float = 600.0,
    ) -> None:
        super().__init__(model, api_key, base_url, options, timeout)
        self._tools: tuple[tuple[ToolSpec, ...], list[Block]] = ((), [])
        self._warned = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        await ENCODED.prepare(request.messages)
        options = request_options(self._options, request.options)
        prompt = self._prompt(request, options)
        try:
            async with aclosing(self._send(prompt, options)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        except ModelFailed as failed:  # a refusal comes before anything was shown
            if failed.code != "model_refused" or not prompt.gives_reasoning or not _ABOUT_REASONING.search(str(failed)):
                raise
            _log.warning(
                "the model %s does not take its own reasoning back; it is asked without: %s", self.name, failed
            )
        async with aclosing(self._send(self._prompt(request, options, reasoning=False), options)) as pieces:
            async for piece in pieces:
                yield piece

    def _send(self, prompt: AnthropicPrompt, options: dict[str, Any]) -> AsyncGenerator[TextDelta | Reply, None]:
        sent = {name: value for name, value in options.items() if name not in _OF_ADAPTER}
        return self._ask(self._body(prompt, sent), _Assembly(secret=self._key, prompt=prompt), longest(options))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}", "anthropic-version": _VERSION}

    def _refusal(self, told: Any) -> tuple[str | None, str | None]:
        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(error, dict):
            return None, None
        details = error.get("details")
        codes = (details.get("error_code") if isinstance(details, dict) else None, error.get("type"))
        words = error.get("message")
        return next((code for code in codes if isinstance(code, str)), None), words if isinstance(words, str) else None

    def _prompt(self, request: ModelRequest, options: Mapping[str, Any], *, reasoning: bool = True) -> AnthropicPrompt:
        if request.tools != self._tools[0]:
            self._tools = (request.tools, write_tools(request.tools))
        forms = read_forms(options.get("show_files"), ALL_FORMS)
        tools = self._tools[1] if request.tools else []
        try:
            return AnthropicPrompt(request, self._model, tools, forms, reasoning=reasoning)
        except ValueError as error:
            text = f"the history cannot be sent: {error}"
            raise ModelFailed(text, code="model_refused", retryable=False) from error

    def _body(self, prompt: AnthropicPrompt, options: dict[str, Any]) -> dict[str, Any]:
        mark = options.pop("cache_control", CACHE_MARK)
        body: dict[str, Any] = {
            "model": self._model,
            "max_tokens": DEFAULT_MAX_TOKENS,
            "stream": True,
            **prompt.marked(mark),
        }
        for name, value in options.items():
            if name == "effort":
                effort = {"effort": _EFFORTS.get(value, value)}
                body["output_config"] = {**options.get("output_config", {}), **effort}
            elif name == "output_config":
                body.setdefault("output_config", value)
            elif name == "stop":
                body["stop_sequences"] = [value] if isinstance(value, str) else value
            elif name == "parallel_tool_calls":
                if value is False and prompt.tools:
                    body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
            elif name == "thinking" and not prompt.may_think and _has_budget(value):
                continue  # another model answered in this tool loop: the API refuses to think on from there
            elif name in _SAMPLING:
                self._add_sampling(body, name, value)
            elif name == "extra_headers":
                body[name] = {**body.get(name, {}), **value}
            elif name in _HEADERS:
                body["extra_headers"] = {_HEADERS[name]: value, **body.get("extra_headers", {})}
            else:
                body[_OWN_NAMES.get(name, name)] = value
        return body

    def _add_sampling(self, body: dict[str, Any], name: str, value: Any) -> None:
        if not takes_sampling(self._model):
            if not self._warned:
                self._warned = True
                _log.warning(
                    "the model %s takes no %r; it is left out, use 'effort' to say how much it should think",
                    self.name,
                    name,
                )
            return
        body[name] = value
        body["extra_headers"] = {"anthropic-version": _SAMPLING_VERSION, **body.get("extra_headers", {})}


def _has_budget(thinking: object) -> bool:
    return isinstance(thinking, Mapping) and thinking.get("type") == "enabled"


@dataclass(slots=True)
class _OpenBlock:
    value: Block
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    closed: bool = False


@dataclass(slots=True, kw_only=True)
class _Assembly:
    secret: str
    prompt: AnthropicPrompt
    started: bool = False
    ended: bool = False
    stop_reason: str | None = None
    blocks: dict[int, _OpenBlock] = field(default_factory=dict)
    usage: dict[str, int] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.stop_reason is not None and all(block.closed for block in self.blocks.values())

    @property
    def used(self) -> Usage | None:
        return self._usage() if self.usage else None

    def add(self, event: Any) -> str | None:
        kind = event.get("type")
        if kind == "ping":
            return None
        if kind == "content_block_delta":
            return self._add_delta(self.blocks[event["index"]], event["delta"])
        if kind == "content_block_start":
            return self._open(event["index"], event["content_block"])
        if kind == "content_block_stop":
            self.blocks[event["index"]].closed = True
        elif kind == "message_start":
            self._add_usage(event["message"].get("usage"))
        elif kind == "message_delta":
            self.stop_reason = event["delta"].get("stop_reason") or self.stop_reason
            self._add_usage(event.get("usage"))
        elif kind == "message_stop":
            self.ended = True
        elif kind == "error" or "error" in event:
            raise failure_in_stream(event.get("error"), secret=self.secret)
        return ""

    def add_whole(self, answer: Any) -> str:
        if answer.get("type") == "error" or "error" in answer:
            raise failure_in_stream(answer.get("error"), secret=self.secret)
        text = "".join(self._open(index, block) for index, block in enumerate(answer["content"]))
        for block in self.blocks.values():
            block.closed = True
        self.stop_reason = answer.get("stop_reason")
        self._add_usage(answer.get("usage"))
        return text

    def reply(self) -> Reply:
        """Return the finished reply, or raise why it is none."""
        if self.stop_reason == "refusal":
            raise ModelFailed("the provider's filter ended the reply", code="model_content_filtered", retryable=False)
        if not self.finished:
            raise ModelFailed("the stream ended without saying that the reply is whole", code="model_stream_cut")
        if self.stop_reason == "pause_turn":
            raise ModelFailed("the provider paused in the middle of the reply", code="model_stream_cut")
        blocks = [self.blocks[index] for index in sorted(self.blocks)]
        text = "".join("".join(block.pieces) for block in blocks if block.value["type"] == "text")
        calls = [block for block in blocks if block.value["type"] == "tool_use"]
        if not calls and not text.strip():
            if self.stop_reason == "model_context_window_exceeded":
                raise ModelFailed("the model's window is full", code="model_context_too_long", retryable=False)
            if self.stop_reason == "max_tokens":
                raise no_room_for_words()
            raise ModelFailed(
                f"the reply has neither text nor calls (it ended with {self.stop_reason!r})", code="model_empty_reply"
            )
        return Reply(
            text=clean_text(text),  # not each piece: a piece may end in the middle of a character
            calls=tuple(
                CallRequest(
                    id=call.value.get("id") or f"call_{number}",
                    name=clean_text(call.value.get("name") or ""),
                    arguments=clean_text(_arguments(call)),
                )
                for number, call in enumerate(calls, 1)
            ),
            usage=self._usage(),
            cut=self.stop_reason in ("max_tokens", "model_context_window_exceeded"),
            kept=self.prompt.keep(_before_calls(blocks)),
        )

    def _open(self, index: int, block: Block) -> str:
        opened = self.blocks[index] = _OpenBlock(value=block, signature=block.get("signature") or "")
        first = block.get("text") or block.get("thinking") or ""
        if first:
            opened.pieces.append(first)
        return first if block["type"] == "text" else ""

    def _add_delta(self, block: _OpenBlock, delta: Mapping[str, Any]) -> str:
        kind = delta.get("type")
        if kind == "text_delta":
            block.pieces.append(delta["text"])
            return str(delta["text"])
        if kind == "input_json_delta":
            block.pieces.append(delta["partial_json"])
        elif kind == "thinking_delta":
            block.pieces.append(delta["thinking"])
        elif kind == "signature_delta":
            block.signature += delta["signature"]
        return ""

    def _add_usage(self, usage: Mapping[str, Any] | None) -> None:
        counts = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        self.usage |= {name: (usage or {})[name] for name in counts if (usage or {}).get(name) is not None}

    def _usage(self) -> Usage:
        read = self.usage.get("cache_read_input_tokens", 0)
        written = self.usage.get("cache_creation_input_tokens", 0)
        return Usage(
            requests=1,
            input_tokens=self.usage.get("input_tokens", 0) + read + written,
            output_tokens=self.usage.get("output_tokens", 0),
            cached_tokens=read,
            written_tokens=written,
        )


def _arguments(call: _OpenBlock) -> str:
    """Return the arguments as the model wrote them; a call without any comes as an empty object and no piece."""
    return "".join(call.pieces) or encode_json_unicode(clean_json(call.value.get("input") or {}))


def _before_calls(blocks: list[_OpenBlock]) -> list[Block]:
    found: list[Block] = []
    for block in blocks:
        kind = block.value["type"]
        if kind == "tool_use":
            break
        if kind == "text":
            found.append({"type": "text", "text": clean_text("".join(block.pieces))})
        elif kind == "thinking":
            found.append({"type": kind, "thinking": "".join(block.pieces), "signature": block.signature})
        elif kind == "redacted_thinking":
            found.append({"type": kind, "data": block.value["data"]})
    return found
