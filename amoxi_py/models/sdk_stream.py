"""What the adapters on official SDKs share: a client per event loop, the stream, and lost connections as failures.

The SDKs come from one generator: their clients, responses and errors are alike, and so is what is read of them here.
They send what they are given as it is, and what comes is read here: their types for requests and for streams cost more
than all the rest of a turn. They do not retry; the engine does.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import aiohttp
import httpx2

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.retry import read_retry_after
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.failures import failure_of_status, log_text
from amoxi_py.models.loopback import check_reach
from amoxi_py.models.options import checked_options
from amoxi_py.models.patience import Patience
from amoxi_py.models.prices import window_of
from amoxi_py.models.sse import read_sse
from amoxi_py.ports.chat_model import Reply, TextDelta

CONNECTIONS = httpx2.Limits(max_connections=5000, max_keepalive_connections=5000)
_TRANSPORT_ERRORS = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError, OSError)
_EVENT_LINES = (b"data:", b"event:", b":")
_LATE_END_S = 0.1
_HEADERS = "extra_headers"

Client = TypeVar("Client", bound="SdkClient")


class SdkClient(Protocol):
    """What is used of an SDK's client."""

    @property
    def base_url(self) -> object:
        """Where it sends requests."""
        ...

    async def post(self, path: str, *, cast_to: Any, body: Any, options: Any, stream: bool) -> Any:
        """Send a request as JSON; return its answer as `cast_to` as soon as its headers are there."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class Assembly(Protocol):
    """A reply as it grows from what a provider sends: whether something has come, and whether it was the last."""

    started: bool
    ended: bool

    @property
    def finished(self) -> bool:
        """Whether the provider has said that the reply is whole."""
        ...

    @property
    def used(self) -> Usage | None:
        """What the provider has told so far of what the reply costs."""
        ...

    def add(self, event: Any) -> str | None:
        """Add an event of the stream and return the piece of text that it brought, None for a mere sign of life."""
        ...

    def add_whole(self, answer: Any) -> str | None:
        """Add an answer that came in one piece, and return its text."""
        ...

    def reply(self) -> Reply:
        """Return the finished reply, or raise why it is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sdk:
    """The errors of one SDK; `reason` reads the provider's own code of a refusal, `words` its text."""

    any_error: type[Exception]
    status_error: type[Exception]
    reason: Callable[[Any], str | None]
    words: Callable[[Any], str]


class ClientPerLoop(Generic[Client]):
    """The client of the running event loop: an SDK's connections belong to the loop that opened them."""

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make = make
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> Client:
        """Return the client of this loop; the first call makes it."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._loop = loop
            self._client = self._make()
        return self._client

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.close()


def checked_key(key: str) -> str:
    """Return a key without the white space around it; raise `ConfigError` for one that no provider takes."""
    key = key.strip()
    if not key.isascii() or not key.isprintable() or not key:
        raise ConfigError("the key of the model provider is empty or holds characters that no key has")
    return key


def checked_address(base_url: str | None) -> str | None:
    """Return an address, None for a blank one; raise `ConfigError` for one that is none."""
    address = (base_url or "").strip()
    if not address:
        return None
    if not address.startswith(("http://", "https://")):
        raise ConfigError(f"the model provider's address {base_url!r} does not begin with http:// or https://")
    return address


def request_timeout(seconds: float) -> httpx2.Timeout:
    """Return the SDK's form of a silence after which a request counts as failed; connecting has at most 10 s."""
    return httpx2.Timeout(seconds, connect=min(10.0, seconds))


class SdkModel(ABC, Generic[Client]):
    """A model behind an official SDK: all but what its requests and its replies look like."""

    _provider: ClassVar[str]
    _address: ClassVar[str]
    """Where it is asked when no other address is given."""
    _path: ClassVar[str]
    _sdk: ClassVar[Sdk]

    def __init__(
        self, model: str, api_key: str, base_url: str | None, options: Mapping[str, Any] | None, timeout: float
    ) -> None:
        self._model = model
        self._key = checked_key(api_key)
        self._base_url = checked_address(base_url) or self._address
        self._options = checked_options(options, model=self.name)
        self._timeout = timeout
        self._clients = ClientPerLoop(self._make_client)

    @property
    def name(self) -> str:
        return f"{self._provider}:{self._model}"

    @property
    def window(self) -> int | None:
        """Tokens that the model takes, where that is known."""
        return window_of(self.name, self._base_url)

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two of these the same, so that they can share connections; it holds the key."""
        options = repr(sorted(self._options.items()))
        return (self._provider, self._model, self._key, self._base_url, options, self._timeout)

    async def aclose(self) -> None:
        """Close the connections; the model may be used again after it."""
        await self._clients.aclose()

    @abstractmethod
    def _make_client(self) -> Client:
        """Return a client that takes nothing from the process's environment."""

    async def _ask(
        self, body: Mapping[str, Any], assembly: Assembly, total: float
    ) -> AsyncGenerator[TextDelta | Reply, None]:
        """Send a request and yield its pieces of text and its reply, as the port `ChatModel` says it.

        Args:
            body: Its fields, and as `extra_headers` its headers.
            assembly: What makes a reply of what comes.
            total: Seconds that it may take in all.
        """
        client = self._clients.here()
        check_reach(self.name, client.base_url)
        send = partial(_posted, client, self._path, body)
        patience = Patience(self._timeout, total)
        try:
            async with aclosing(_sent(self._sdk, send, assembly, self._key, patience)) as pieces:
                async for text in pieces:
                    if text:
                        yield TextDelta(text=text)
            reply = assembly.reply()
        except ModelFailed as failed:
            failed.usage = assembly.used
            raise
        yield reply


@asynccontextmanager
async def _posted(client: SdkClient, path: str, body: Mapping[str, Any]) -> AsyncIterator[httpx2.Response]:
    """Send a request, and give its answer until the end of the block."""
    fields = {name: value for name, value in body.items() if name != _HEADERS}
    options = {"headers": body.get(_HEADERS, {})}
    response: httpx2.Response = await client.post(
        path, cast_to=httpx2.Response, body=fields, options=options, stream=True
    )
    try:
        yield response
    finally:
        await response.aclose()


async def _sent(
    sdk: Sdk,
    send: Callable[[], AbstractAsyncContextManager[httpx2.Response]],
    assembly: Assembly,
    secret: str,
    patience: Patience,
) -> AsyncGenerator[str | None, None]:
    try:
        async with AsyncExitStack() as stack:
            response = await patience.wait(stack.enter_async_context(send()))
            pieces = await stack.enter_async_context(aclosing(_pieces(response, assembly, secret, patience)))
            async for text in pieces:
                yield text
    except sdk.status_error as error:
        raise _status_failure(sdk, error, secret) from error
    except (sdk.any_error, *_TRANSPORT_ERRORS) as error:
        if not assembly.finished:
            raise _transport_failure(error, assembly.started, secret) from error
    except (TypeError, ValueError) as error:  # an option that is no JSON: the request was never sent
        text = log_text(f"{type(error).__name__}: {error}", secret)
        raise ModelFailed(f"the request cannot be sent: {text}", code="model_refused", retryable=False) from error


async def _pieces(
    response: httpx2.Response, assembly: Assembly, secret: str, patience: Patience
) -> AsyncGenerator[str | None, None]:
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        chunks: AsyncIterator[bytes] = response.aiter_bytes()
    else:
        body: bytes = await patience.wait(response.aread())
        if not body.lstrip().startswith(_EVENT_LINES):
            yield _understood(assembly.add_whole, body, "the answer", "model_unavailable", secret)
            return
        chunks = _one(body)  # a proxy in between has changed the type
    patience.heard()
    async with aclosing(read_sse(chunks)) as events:
        while (data := await patience.wait(anext(events, b"[DONE]"), finished=assembly.finished)) != b"[DONE]":
            assembly.started = True
            text = _understood(assembly.add, data, "a chunk of the stream", "model_stream_cut", secret)
            if text is not None:
                patience.heard()
                yield text
            if assembly.ended:
                break
        await _to_the_end(chunks)


async def _to_the_end(chunks: AsyncIterator[bytes]) -> None:
    """Read what ends the body after its last event, without which the connection is closed; it may come a bit later."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LATE_END_S):
            async for _ in chunks:
                pass


def _understood(add: Callable[[Any], str | None], data: bytes, what: str, code: str, secret: str) -> str | None:
    try:
        return add(decode_json(data.decode()))
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        text = log_text(f"{what} cannot be understood: {data!r:.200}: {error}", secret)
        raise ModelFailed(text, code=code) from error


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    yield chunk


def _status_failure(sdk: Sdk, error: Any, secret: str) -> ModelFailed:
    return failure_of_status(
        error.status_code,
        sdk.words(error),
        reason=sdk.reason(error),
        retry_after=read_retry_after(error.response.headers),
        secret=secret,
    )


def _transport_failure(error: BaseException, started: bool, secret: str) -> ModelFailed:
    root, late = error, False
    while True:
        late = late or isinstance(root, TimeoutError)
        if root.__cause__ is None:
            break
        root = root.__cause__  # the SDK calls every lost connection a timeout; what it came from says what it was
    text = log_text(f"{type(root).__name__}: {root}", secret)
    if late:
        return ModelFailed(f"nothing came from the provider in time: {text}", code="model_timeout")
    if started:
        return ModelFailed(f"the stream was cut: {text}", code="model_stream_cut")
    return ModelFailed(f"the provider could not be reached: {text}", code="model_unavailable")
