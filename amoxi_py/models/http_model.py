"""What the adapters to providers share: a session per event loop, the request, its stream, and how it fails.

The wire is aiohttp's; what is sent and what comes is JSON that the adapters write and read. Nothing is tried twice
here; the engine does that.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2
from multidict import CIMultiDict

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.retry import read_retry_after
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, ModelFailed
from amoxi_py.models.failures import failure_of_status, log_text
from amoxi_py.models.loopback import check_reach
from amoxi_py.models.options import checked_options
from amoxi_py.models.patience import Patience
from amoxi_py.models.prices import window_of
from amoxi_py.models.sse import SseReader
from amoxi_py.ports.chat_model import Reply, TextDelta

_CONNECT_S = 10.0
_KEEP_S = 4.0  # many servers close a connection that was quiet for 5 s
_EVENT_LINES = (b"data:", b"event:", b":")
_LATE_END_S = 0.1
_LONGEST_REFUSAL = 65536
_LARGE = 1 << 20  # aiohttp sends more than this in pieces only from a file
_HEADERS = "extra_headers"
_JSON = {"Accept": "application/json", "Accept-Encoding": "identity", "Content-Type": "application/json"}
_PRIVATE = re.compile(r"(?<=://)[^/?\s]*@|(?<=\S)\?[^\s'\"]+")
"""In the text of an error, what its URLs have before the host, and their queries."""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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


class _SessionPerLoop:
    """The session of the running event loop: its connections belong to the loop that opened them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def here(self) -> aiohttp.ClientSession:
        """Return the session of this loop; the first call makes it."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = _new_session(self._url)
        return self._session

    async def aclose(self) -> None:
        """Close the connections; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None and self._loop is asyncio.get_running_loop():
            await session.close()


def _new_session(url: str) -> aiohttp.ClientSession:
    """Return a session that takes nothing from the process's environment but the proxy and the authorities."""
    trusted = _trusted_authorities() if url.startswith("https:") else True
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S, ssl=trusted)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, connect=_CONNECT_S),
        proxy=_proxy_for(url),
    )


@cache
def _trusted_authorities() -> ssl.SSLContext:
    """Return the certificates that are trusted; reading them takes long enough to be noticed, so it is done once."""
    return httpx2.create_ssl_context()


def _proxy_for(url: str) -> str | None:
    """Return the proxy that HTTPS_PROXY and its like name for an address."""
    parts = urlsplit(url)
    hosts = (parts.netloc.rpartition("@")[2], parts.hostname or "")  # IPv6: with its brackets, and as NO_PROXY has it
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or any(map(proxy_bypass, hosts)):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


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
    with suppress(ValueError):  # brackets or a port that are none
        parts = urlsplit(address)
        if parts.hostname and parts.port != 0:
            return address
    raise ConfigError(f"the model provider's address {base_url!r} needs a host, and a port from 1 to 65535 if any")


class HttpModel(ABC):
    """A model behind a provider's API over HTTP: all but what its requests and its replies look like."""

    _provider: ClassVar[str]
    _address: ClassVar[str]
    """Where it is asked when no other address is given."""
    _path: ClassVar[str]

    def __init__(
        self, model: str, api_key: str, base_url: str | None, options: Mapping[str, Any] | None, timeout: float
    ) -> None:
        self._model = model
        self._key = checked_key(api_key)
        self._base_url = checked_address(base_url) or self._address
        self._options = checked_options(options, model=self.name)
        self._timeout = timeout
        self._url = _joined(self._base_url, self._path)
        self._sessions = _SessionPerLoop(self._url)

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
        await self._sessions.aclose()

    @abstractmethod
    def _headers(self) -> dict[str, str]:
        """Return the headers of every request beside those of JSON: the key, the API's version."""

    @abstractmethod
    def _refusal(self, told: Any) -> tuple[str | None, str | None]:
        """Return the provider's own code of a refusal and its words, as far as the JSON of its answer has them."""

    async def _ask(
        self, body: Mapping[str, Any], assembly: Assembly, total: float
    ) -> AsyncGenerator[TextDelta | Reply, None]:
        """Send a request and yield its pieces of text and its reply, as the port `ChatModel` says it.

        Args:
            body: Its fields, and as `extra_headers` its headers.
            assembly: What makes a reply of what comes.
            total: Seconds that it may take in all.
        """
        check_reach(self.name, self._url)
        patience = Patience(self._timeout, total)
        response: aiohttp.ClientResponse | None = None
        try:
            try:
                response = await patience.wait(self._post(body))
                if response.status >= 300:
                    raise await self._refused(response, patience)
                reader = _EventReader(response, assembly, self._key, patience)
                while not reader.ended:
                    for text in await reader.read():
                        yield TextDelta(text=text)
                await reader.to_the_end()
            except (aiohttp.ClientError, OSError) as error:
                if not assembly.finished:
                    raise _transport_failure(error, assembly.started, self._key) from error
            finally:
                patience.close()
                if response is not None:
                    response.release()  # a connection in the middle of an answer is closed by it
            reply = assembly.reply()
        except ModelFailed as failed:
            failed.usage = assembly.used
            raise
        yield reply

    async def _post(self, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        headers = CIMultiDict({**_JSON, **self._headers()})
        try:
            headers.update(body.get(_HEADERS, {}))
            sent = _encode({name: value for name, value in body.items() if name != _HEADERS}).encode()
            data = sent if len(sent) < _LARGE else io.BytesIO(sent)
            # A key goes to the address that was given and to no other: redirects are not followed.
            return await self._sessions.here().post(self._url, data=data, headers=headers, allow_redirects=False)
        except aiohttp.ClientConnectionError:  # one that is a ValueError too: a certificate that is not trusted
            raise
        except (TypeError, ValueError) as error:  # an option that is no JSON, or no header: it was never sent
            text = _told(error, self._key)
            raise ModelFailed(f"the request cannot be sent: {text}", code="model_refused", retryable=False) from error

    async def _refused(self, response: aiohttp.ClientResponse, patience: Patience) -> ModelFailed:
        """Return the failure of an answer that is no reply."""
        status, headers = response.status, {name.lower(): value for name, value in response.headers.items()}
        reason: str | None = None
        words = ""
        with suppress(aiohttp.ClientError, OSError):  # the status is there, and says enough
            words = (await patience.wait(_beginning(response))).decode(errors="replace").strip()
        with suppress(ValueError, RecursionError):
            reason, said = self._refusal(decode_json(words))
            words = said or words
        if status < 400 and "location" in headers:
            words = f"it redirects to {headers['location']}, which has to be the address then"
        return failure_of_status(status, words, reason=reason, retry_after=read_retry_after(headers), secret=self._key)


class _EventReader:
    """Reads the events of one answer into its assembly."""

    def __init__(self, response: aiohttp.ClientResponse, assembly: Assembly, secret: str, patience: Patience) -> None:
        self.ended = False
        self._response = response
        self._assembly = assembly
        self._secret = secret
        self._patience = patience
        self._events = SseReader()
        self._is_stream = response.headers.get("Content-Type", "").startswith("text/event-stream")
        patience.heard()
        patience.watch(self._give_up)

    async def read(self) -> list[str]:
        """Return the pieces of text of what comes next; `ended` is True when nothing comes after them."""
        if not self._is_stream:
            return await self._read_whole()
        if self._assembly.finished:
            self._patience.ended()
        piece = await self._response.content.readany()
        found = self._events.read(piece) if piece else self._events.end()
        self.ended = not piece
        return self._texts(found)

    async def _read_whole(self) -> list[str]:
        body = await self._response.read()
        self.ended = True
        if body.lstrip().startswith(_EVENT_LINES):  # a proxy in between has changed the type
            return self._texts(self._events.read(body) + self._events.end())
        text = self._understood(self._assembly.add_whole, body, "the answer", "model_unavailable")
        return [text] if text else []

    def _texts(self, found: list[bytes]) -> list[str]:
        texts: list[str] = []
        for data in found:
            if data == b"[DONE]":
                self.ended = True
                break
            self._assembly.started = True
            text = self._understood(self._assembly.add, data, "a chunk of the stream", "model_stream_cut")
            if text is not None:
                self._patience.heard()
                if text:
                    texts.append(text)
            if self._assembly.ended:
                self.ended = True
                break
        return texts

    def _understood(self, add: Callable[[Any], str | None], data: bytes, what: str, code: str) -> str | None:
        try:
            return add(decode_json(data.decode()))
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            text = log_text(f"{what} cannot be understood: {data!r:.200}: {error}", self._secret)
            raise ModelFailed(text, code=code) from error

    async def to_the_end(self) -> None:
        """Read what ends the body, without which the connection is closed; it may come a bit later."""
        content = self._response.content
        if not content.at_eof():
            with suppress(TimeoutError):
                async with asyncio.timeout(_LATE_END_S):
                    while await content.readany():
                        pass

    def _give_up(self, late: TimeoutError) -> None:
        self._response.content.set_exception(late)
        self._response.close()


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer, of a long one its beginning."""
    body = b""
    while len(body) < _LONGEST_REFUSAL and (piece := await response.content.readany()):
        body += piece
    return body[:_LONGEST_REFUSAL]


def _joined(address: str, path: str) -> str:
    """Return a path under an address, which may have a query (Azure's `api-version`)."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))


def _transport_failure(error: BaseException, started: bool, secret: str) -> ModelFailed:
    text = _told(error, secret)
    if isinstance(error, TimeoutError):
        return ModelFailed(f"nothing came from the provider in time: {text}", code="model_timeout")
    if started:
        return ModelFailed(f"the stream was cut: {text}", code="model_stream_cut")
    return ModelFailed(f"the provider could not be reached: {text}", code="model_unavailable")


def _told(error: BaseException, secret: str) -> str:
    """Return an error as it may be logged: without what a proxy's or a provider's address has of passwords and keys."""
    return log_text(_PRIVATE.sub("", f"{type(error).__name__}: {error}"), secret)
