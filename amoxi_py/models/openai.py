"""The adapter to OpenAI's Chat Completions and every server that speaks them.

A reply is finished when the provider gave a reason why it ended, and not before. Reasoning that other servers send
beside the text is never shown; it is kept with the reply and given back where they want it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.models.encoded_files import ENCODED
from amoxi_py.models.failures import failure_in_stream, no_room_for_words
from amoxi_py.models.kept import keep
from amoxi_py.models.openai_adjusting import Adjustments
from amoxi_py.models.openai_api import OpenAIApi
from amoxi_py.models.openai_body import (
    KEPT_OF_CALLS,
    PROVIDER,
    REASONING_FIELDS,
    write_messages,
    write_tools,
)
from amoxi_py.models.openai_servers import server_at
from amoxi_py.models.options import longest, request_options
from amoxi_py.models.sent_files import read_forms
from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, TextDelta, ToolSpec

_log = logging.getLogger("amoxi_py")

_ONE_REQUEST = Usage(requests=1)


class OpenAIModel(OpenAIApi):
    """A model behind the Chat Completions API.

    Nothing of it comes from the process's environment: neither the address nor a header.

    Args:
        model: Its name at the provider, such as `gpt-5-mini`.
        api_key: The key; white space around it is dropped.
        base_url: Another server that speaks the same API, such as `http://localhost:11434/v1`.
        options: What every request is sent with, such as `{"max_tokens": 500, "effort": "low"}`; the options of a
            request come on top. `max_tokens` and `effort` are given the provider's own names. Three are for the
            adapter: `timeout` is the seconds that a request may take in all (an hour); `show_files` is False, True, or
            those of "pictures", "documents" and "texts" that the model can look at, by default PDFs at OpenAI, Azure
            and OpenRouter only, the others at every server; `server` is "openai", "mistral" or "gemini" for a server
            that keeps to the rules of that provider under another address. `extra_headers` are headers of the request.
            What a server refuses as unknown to its model (sampling options, the effort) is left out, with a warning.
        timeout: Seconds without a piece of the reply until a request counts as failed.
        organization: The organization that the key acts for, where it could act for several.
        project: The project that it acts for.
    """

    _path = "/chat/completions"

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float = 600.0,
        organization: str | None = None,
        project: str | None = None,
    ) -> None:
        super().__init__(model, api_key, base_url, options, timeout, organization=organization, project=project)
        self._tools: tuple[tuple[ToolSpec, ...], list[dict[str, Any]]] = ((), [])
        self._learned = Adjustments()
        self._warned: set[str] = set()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        await ENCODED.prepare(request.messages)
        options = request_options(self._options, request.options)
        adjusted = self._learned
        while True:
            body = self._body(request, dict(options), adjusted)
            assembly = _Assembly(secret=self._key, model=self._model)
            shown = False
            try:
                async with aclosing(self._ask(body, assembly, longest(options))) as pieces:
                    async for piece in pieces:
                        if not shown:
                            shown = True
                            self._learned = self._learned | adjusted
                        yield piece
                return
            except ModelFailed as failed:
                again = None if shown or failed.code != "model_refused" else adjusted.after(str(failed), body)
                if again is None:
                    raise
                adjusted, told = again
                if told not in self._warned:
                    self._warned.add(told)
                    _log.warning("the model %s %s: %s", self.name, told, failed)

    def _body(self, request: ModelRequest, options: dict[str, Any], adjusted: Adjustments) -> dict[str, Any]:
        server = server_at(self._base_url, options.pop("server", None))
        options.pop("timeout", None)
        forms = read_forms(options.pop("show_files", None), server.forms)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": write_messages(
                request, model=self._model, server=server, reasoning=adjusted.reasoning, forms=forms
            ),
            "stream": True,
        }
        if server.stream_options:
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            if request.tools != self._tools[0]:
                self._tools = (request.tools, write_tools(request.tools))
            body["tools"] = self._tools[1]
        own_names = {"effort": "reasoning_effort", "max_tokens": server.limit}
        for name, value in options.items():
            body[own_names.get(name, name)] = value
        adjusted.fit(body)
        return body


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Any = None


@dataclass(slots=True, kw_only=True)
class _Assembly:
    secret: str
    model: str
    started: bool = False
    ended: bool = False
    finish_reason: str | None = None
    texts: list[str] = field(default_factory=list)
    calls: list[_OpenCall] = field(default_factory=list)
    by_index: dict[int, _OpenCall] = field(default_factory=dict)
    reasoning: dict[str, Any] = field(default_factory=dict)
    usage: Usage = field(default=_ONE_REQUEST)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def used(self) -> Usage | None:
        return None if self.usage is _ONE_REQUEST else self.usage

    def add(self, event: Any) -> str | None:
        return self._add(event, "delta")

    def add_whole(self, answer: Any) -> str | None:
        return self._add(answer, "message")

    def _add(self, chunk: Any, part: str) -> str | None:
        if chunk.get("error"):
            raise failure_in_stream(chunk["error"], secret=self.secret)
        if chunk.get("usage"):
            self.usage = _read_usage(chunk["usage"])
        choices = chunk.get("choices")
        if not choices:
            return None
        choice = choices[0]
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get(part) or {}
        for index, call in enumerate(delta.get("tool_calls") or ()):
            self._add_call(call, index)
        for name in REASONING_FIELDS:
            if delta.get(name):
                _add_reasoning(self.reasoning, name, delta[name])
        # a refusal is the model's answer in words, on a field of its own
        text = _text_of(delta.get("content")) + _text_of(delta.get("refusal"))
        if text:
            self.texts.append(text)
        return text

    def _add_call(self, piece: dict[str, Any], place: int) -> None:
        function = piece.get("function") or {}
        call_id, name = piece.get("id") or "", function.get("name") or ""
        index = piece.get("index", place)
        open_call = self.by_index.get(index)
        # some servers count every call as number 0: another id with a name begins another call
        if open_call is None or (call_id and name and open_call.id and call_id != open_call.id):
            open_call = self.by_index[index] = _OpenCall(id=call_id)
            self.calls.append(open_call)
        open_call.id = open_call.id or call_id
        open_call.name = open_call.name or name
        if function.get("arguments"):
            open_call.arguments.append(function["arguments"])
        open_call.extra = piece.get("extra_content") or open_call.extra

    def reply(self) -> Reply:
        """Return the finished reply, or raise why it is none."""
        if self.finish_reason is None:
            raise ModelFailed("the stream ended without saying that the reply is whole", code="model_stream_cut")
        if self.finish_reason == "content_filter":
            raise ModelFailed("the provider filtered the reply", code="model_content_filtered", retryable=False)
        if self.finish_reason == "error":
            raise ModelFailed("the provider ended the reply with an error", code="model_unavailable")
        if not self.calls and not "".join(self.texts).strip():
            if self.finish_reason == "length":
                raise no_room_for_words()
            raise ModelFailed(
                f"the reply has neither text nor calls (it ended with {self.finish_reason!r})", code="model_empty_reply"
            )
        return Reply(
            text=clean_text("".join(self.texts)),  # not each piece: a piece may end in the middle of a character
            calls=tuple(
                CallRequest(
                    id=call.id or f"call_{number}",
                    name=clean_text(call.name),
                    arguments=clean_text("".join(call.arguments)),
                )
                for number, call in enumerate(self.calls, 1)
            ),
            usage=self.usage,
            cut=self.finish_reason == "length",
            kept=self._kept(),
        )

    def _kept(self) -> str | None:
        kept = dict(self.reasoning)
        if any(call.extra for call in self.calls):
            kept[KEPT_OF_CALLS] = [call.extra for call in self.calls]
        return keep(PROVIDER, self.model, clean_json(kept)) if kept else None


def _text_of(content: Any) -> str:
    if isinstance(content, list):  # some servers send parts, reasoning among them
        return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
    return str(content or "")


def _add_reasoning(reasoning: dict[str, Any], name: str, piece: Any) -> None:
    if not isinstance(piece, list):
        reasoning[name] = reasoning.get(name, "") + str(piece)
        return
    blocks: list[dict[str, Any]] = reasoning.setdefault(name, [])
    for part in piece:
        last = blocks[-1] if blocks else None
        if last is None or (last.get("type"), last.get("index")) != (part.get("type"), part.get("index")):
            blocks.append(dict(part))
            continue
        for key, value in part.items():
            if key in ("text", "summary") and value:
                last[key] = (last.get(key) or "") + value
            elif value is not None:
                last[key] = value


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details") or {}
    return Usage(
        requests=1,
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        cached_tokens=details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0,
    )
