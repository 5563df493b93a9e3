"""The adapter to OpenAI's Chat Completions and every server that speaks them, on the official SDK.

The SDK sends the request and hands over the raw stream: its typed stream costs more than all the rest of a turn. It
does not retry; the engine does. A reply is finished when the provider gave a reason why it ended, and not before.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import httpx2
import openai

from amoxi_py.domain.encoding import clean_text, decode_json
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.failures import failure_in_stream, failure_of_status, log_text, read_retry_after
from amoxi_py.models.loopback import check_reach
from amoxi_py.models.openai_body import PARAMETERS, write_messages, write_tools
from amoxi_py.models.sse import read_sse
from amoxi_py.ports.chat_model import CallRequest, ModelRequest, Reply, TextDelta, ToolSpec

_CONNECTIONS = httpx2.Limits(max_connections=5000, max_keepalive_connections=5000)
_ONE_REQUEST = Usage(requests=1)
_TRANSPORT_ERRORS = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError)


class OpenAIModel:
    """A model behind the Chat Completions API.

    Args:
        model: Its name at the provider, such as `gpt-5-mini`.
        api_key: The key; white space around it is dropped.
        base_url: Another server that speaks the same API, such as `http://localhost:11434/v1`.
        options: What every request is sent with, such as `{"temperature": 0.2, "max_tokens": 500, "effort": "low"}`;
            the options of a request come on top. `max_tokens` and `effort` are given the provider's own names.
        timeout: Seconds without a byte until a request counts as failed.
    """

    def __init__(
        self,
        model: str,
        api_key: str,
        base_url: str | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: float = 600.0,
    ) -> None:
        self._model = model
        self._key = api_key.strip()
        if not self._key.isascii() or not self._key.isprintable() or not self._key:
            raise ConfigError("the key of the model provider is empty or holds characters that no key has")
        if base_url is not None and not base_url.startswith(("http://", "https://")):
            raise ConfigError(f"the model provider's address {base_url!r} does not begin with http:// or https://")
        self._base_url = base_url
        self._options = dict(options or {})
        self._timeout = timeout
        self._client: openai.AsyncOpenAI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tools: tuple[tuple[ToolSpec, ...], list[dict[str, Any]]] = ((), [])

    @property
    def name(self) -> str:
        return f"openai:{self._model}"

    async def aclose(self) -> None:
        """Close the connections; the model may be used again after it."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        client = self._client_here()
        check_reach(self.name, client.base_url)
        assembly = _Assembly(secret=self._key)
        try:
            async with client.chat.completions.with_streaming_response.create(**self._body(request)) as response:
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    text = assembly.take_whole(await response.read())
                    if text:
                        yield TextDelta(text=text)
                else:
                    async with aclosing(read_sse(response.iter_bytes())) as events:
                        async for data in events:
                            if data == b"[DONE]":
                                break
                            text = assembly.take(data)
                            if text:
                                yield TextDelta(text=text)
        except openai.APIStatusError as error:
            raise self._status_failure(error) from error
        except (openai.OpenAIError, *_TRANSPORT_ERRORS) as error:
            if not assembly.finished:
                raise self._transport_failure(error, assembly) from error
        except (TypeError, ValueError) as error:  # an option that is no JSON: the request was never sent
            text = log_text(f"{type(error).__name__}: {error}", self._key)
            raise ModelFailed(f"the request cannot be sent: {text}", code="model_refused", retryable=False) from error
        yield assembly.reply()

    def _client_here(self) -> openai.AsyncOpenAI:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = openai.AsyncOpenAI(
                api_key=self._key,
                base_url=self._base_url,
                max_retries=0,
                timeout=httpx2.Timeout(self._timeout, connect=min(10.0, self._timeout)),
                http_client=openai.DefaultAioHttpClient(limits=_CONNECTIONS),
            )
        return self._client

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": write_messages(request),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            if request.tools != self._tools[0]:
                self._tools = (request.tools, write_tools(request.tools))
            body["tools"] = self._tools[1]
        extra: dict[str, Any] = {}
        for name, value in {**self._options, **request.options}.items():
            own = self._own_name(name)
            (body if own in PARAMETERS else extra)[own] = value
        if extra:
            body["extra_body"] = extra
        return body

    def _own_name(self, option: str) -> str:
        if option == "effort":
            return "reasoning_effort"
        # OpenAI's newer models refuse the old name, most other servers know only that one
        return "max_completion_tokens" if option == "max_tokens" and self._base_url is None else option

    def _status_failure(self, error: openai.APIStatusError) -> ModelFailed:
        return failure_of_status(
            error.status_code,
            error.message,
            reason=error.code or error.type,
            retry_after=read_retry_after(error.response.headers),
            secret=self._key,
        )

    def _transport_failure(self, error: BaseException, assembly: _Assembly) -> ModelFailed:
        root, late = error, False
        while True:
            late = late or isinstance(root, TimeoutError)
            if root.__cause__ is None:
                break
            root = root.__cause__  # the SDK calls every lost connection a timeout; what it came from says what it was
        text = log_text(f"{type(root).__name__}: {root}", self._key)
        if late:
            return ModelFailed(f"nothing came from the provider in time: {text}", code="model_timeout")
        if assembly.started:
            return ModelFailed(f"the stream was cut: {text}", code="model_stream_cut")
        return ModelFailed(f"the provider could not be reached: {text}", code="model_unavailable")


@dataclass(slots=True)
class _OpenCall:
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Assembly:
    """A reply as it grows from the chunks of a stream."""

    secret: str
    started: bool = False
    finish_reason: str | None = None
    texts: list[str] = field(default_factory=list)
    calls: list[_OpenCall] = field(default_factory=list)
    by_index: dict[int, _OpenCall] = field(default_factory=dict)
    usage: Usage = field(default=_ONE_REQUEST)

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    def take(self, data: bytes) -> str:
        """Add a chunk and return the piece of text that it brought."""
        self.started = True
        return self._read(data, "delta")

    def take_whole(self, body: bytes) -> str:
        """Add an answer that came in one piece, from a server that does not stream."""
        return self._read(body, "message")

    def _read(self, data: bytes, part: str) -> str:
        try:
            return self._add(decode_json(data.decode()), part)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ModelFailed(
                log_text(f"a chunk of the stream cannot be understood: {data!r:.200}: {error}", self.secret),
                code="model_stream_cut",
            ) from error

    def _add(self, chunk: Any, part: str) -> str:
        if chunk.get("error"):
            raise failure_in_stream(chunk["error"], secret=self.secret)
        if chunk.get("usage"):
            self.usage = _read_usage(chunk["usage"])
        choices = chunk.get("choices")
        if not choices:
            return ""
        choice = choices[0]
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        delta = choice.get(part) or {}
        for index, call in enumerate(delta.get("tool_calls") or ()):
            self._add_call(call, index)
        # a refusal is the model's answer in words, on a field of its own
        text = str((delta.get("content") or "") + (delta.get("refusal") or ""))
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

    def reply(self) -> Reply:
        """Return the finished reply, or raise why it is none."""
        if self.finish_reason is None:
            raise ModelFailed("the stream ended without saying that the reply is whole", code="model_stream_cut")
        if self.finish_reason == "content_filter":
            raise ModelFailed("the provider filtered the reply", code="model_content_filtered", retryable=False)
        if self.finish_reason == "error":
            raise ModelFailed("the provider ended the reply with an error", code="model_unavailable")
        if not self.calls and not "".join(self.texts).strip():
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
        )


def _read_usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        requests=1,
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
    )
