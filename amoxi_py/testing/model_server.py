"""The strict model server: OpenAI's and Anthropic's APIs over real HTTP on loopback, played from a script.

It answers 400 to everything that the real APIs refuse, records all requests, and breaks off where the script says so.
It is an own small HTTP/1.1 server, because a web framework cannot end a connection in the middle of a chunk.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Self

from amoxi_py.models.script import (
    Script,
    ScriptedCall,
    ScriptedFailure,
    ScriptedReply,
    ScriptedThinking,
    ScriptPlayer,
)
from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing.anthropic_answers import AnthropicWire
from amoxi_py.testing.embedding_answers import embedding_answer, read_embedding_body
from amoxi_py.testing.openai_answers import OpenAIWire
from amoxi_py.testing.wire import CutHere, Spoken, Wire

_MOST_HEADERS = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class _HttpRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class _Reader(asyncio.StreamReader):
    """A stream reader that tells when the client has closed the connection, without reading from it."""

    def __init__(self) -> None:
        super().__init__(limit=_MOST_HEADERS)
        self.ended = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.ended.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.ended.set()


class StrictModelServer:
    """A model server for tests, in a thread and an event loop of its own; a context manager.

    Attributes:
        requests: The requests that it took, in order, as the model port knows them.
        bodies: The bodies of all requests, refused ones too, as they came.
        keys: The keys that the requests came with.
        refused: What was wrong with the requests that it refused; a test ends with this empty.
        left: Replies that the client left before they were finished.
        embedded: The texts that vectors were asked for at `/embeddings`, in order; a script has no part in those.
        embedding_failure: What that answers while it is set, such as `fail(503)`.

    Args:
        script: What it says.
        port: Where it listens; 0 takes a free one.
        max_body: Bytes above which a request is refused as too long for the model's context.
        streams: Whether it streams when asked to; some servers answer in one piece all the same.
        one_index: Whether it counts every streamed call as number 0, as some servers of OpenAI's API do.
        reasoning: The field for reasoning in OpenAI's form: `reasoning_content`, `reasoning` or `reasoning_details`.
        like: The provider whose own rules it keeps to in OpenAI's form, besides those of all: `openai`, `mistral`,
            `groq` or `gemini`.
        on_refused: Told of every problem, in the server's thread.
    """

    def __init__(
        self,
        script: Script,
        *,
        port: int = 0,
        max_body: int | None = None,
        streams: bool = True,
        one_index: bool = False,
        reasoning: str = "reasoning_content",
        like: str | None = None,
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.bodies: list[bytes] = []
        self.keys: list[str] = []
        self.refused: list[str] = []
        self.left = 0
        self.embedded: list[str] = []
        self.embedding_failure: ScriptedFailure | None = None
        self._player = ScriptPlayer(script)
        self._port = port
        self._max_body = max_body
        self._on_refused = on_refused
        self.streams = streams
        self.openai = OpenAIWire(one_index=one_index, reasoning=reasoning, like=like)
        self.wires: dict[str, Wire] = {"/v1/chat/completions": self.openai, "/v1/messages": AnthropicWire()}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="strict-model-server", daemon=True)
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        """The base URL for an OpenAI client, such as `http://127.0.0.1:40123/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for an Anthropic client, such as `http://127.0.0.1:40123`."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Listen; return when clients can connect."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """End all connections and the thread."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._started.set()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def connect() -> asyncio.StreamReaderProtocol:
            reader = _Reader()

            def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                task = self._loop.create_task(self._talk(reader, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

            return asyncio.StreamReaderProtocol(reader, accept)

        try:
            server = await self._loop.create_server(connect, "127.0.0.1", self._port, backlog=2048)
        except OSError as error:
            self._failure = error
            return
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    async def _talk(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read_request(reader)) is not None:
                await _Answer(server=self, reader=reader, writer=writer).give(request)
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client is gone or speaks no HTTP, and a broken script ends its connection itself
        finally:
            writer.close()

    async def _take(self, request: _HttpRequest) -> tuple[Any, ScriptedReply | ScriptedFailure]:
        self.bodies.append(request.body)
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.keys.append(bearer or request.headers.get("x-api-key", ""))
        wire = self.wires.get(request.path) if request.method == "POST" else None
        if wire is None:
            return None, ScriptedFailure(status=404, text=f"no route {request.method} {request.path}")
        if self._max_body is not None and len(request.body) > self._max_body:
            return None, self._refuse(
                [f"the context is too long: {len(request.body)} bytes"], "context_length_exceeded"
            )
        if wire is not self.openai and not self.keys[-1]:
            return None, ScriptedFailure(status=401, text="x-api-key header is required")
        read, problems = wire.read(request.body, request.headers)
        if read is None or problems:
            return None, self._refuse(problems, "invalid_request_error")
        self.requests.append(read.request)
        return read, await self._player.next(read.request)

    def _embed(self, request: _HttpRequest) -> bytes | ScriptedFailure:
        self.bodies.append(request.body)
        self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        if self.embedding_failure is not None:
            return self.embedding_failure
        asked, problems = read_embedding_body(request.body)
        if problems:
            return self._refuse(problems, "invalid_request_error")
        self.embedded.extend(asked["input"])
        return embedding_answer(asked)

    def _refuse(self, problems: list[str], reason: str) -> ScriptedFailure:
        self.refused.extend(problems)
        if self._on_refused is not None:
            for problem in problems:
                self._on_refused(problem)
        return ScriptedFailure(status=400, text="; ".join(problems), reason=reason)


@dataclass(slots=True, kw_only=True)
class _Answer:
    """The answer to one request on one connection."""

    server: StrictModelServer
    reader: _Reader
    writer: asyncio.StreamWriter

    async def give(self, request: _HttpRequest) -> None:
        wire = self.server.wires.get(request.path, self.server.openai)
        if request.method == "POST" and request.path == "/v1/embeddings":
            found = self.server._embed(request)
            if isinstance(found, bytes):
                await self._send(200, found)
            else:
                await self._fail(wire, found)
            return
        asked, answer = await self.server._take(request)
        if isinstance(answer, ScriptedFailure):
            await self._fail(wire, answer)
            return
        playing = asyncio.ensure_future(self._play(wire, asked, answer))
        leaving = asyncio.ensure_future(self.reader.ended.wait())
        try:
            await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.server.left += 1
                raise ConnectionResetError("the client left")
            playing.result()
        finally:
            for task in (playing, leaving):
                task.cancel()
            await asyncio.gather(playing, leaving, return_exceptions=True)

    async def _fail(self, wire: Wire, failure: ScriptedFailure) -> None:
        headers = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
        await self._send(failure.status, json.dumps(wire.failure(failure)).encode(), headers=headers)

    async def _play(self, wire: Wire, asked: Any, reply: ScriptedReply) -> None:
        if reply.ending == "html":
            await self._send(200, _PAGE, "text/html; charset=utf-8")
        elif reply.ending == "empty_body":
            await self._send(200, b"", "text/event-stream" if asked.stream else "application/json")
        elif asked.stream and self.server.streams:
            await self._stream(wire, asked, reply)
        else:
            await self._whole(wire, asked, reply)

    async def _whole(self, wire: Wire, asked: Any, reply: ScriptedReply) -> None:
        spoken = [part async for part in _spoken(reply)]
        if reply.ending in ("cut", "unfinished"):
            self._cut()
        body = json.dumps(wire.whole(asked, reply, spoken)).encode()
        if reply.ending == "bad_json":
            body = body[: len(body) // 2]
        await self._send(200, body, "text/plain" if reply.ending == "wrong_type" else "application/json")

    async def _stream(self, wire: Wire, asked: Any, reply: ScriptedReply) -> None:
        kind = "text/plain" if reply.ending == "wrong_type" else "text/event-stream; charset=utf-8"
        self.writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n"
            "cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        try:
            async for event in wire.stream(asked, reply, _spoken(reply)):
                self.writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await self.writer.drain()
        except CutHere:
            await self.writer.drain()
            self._cut()
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def _cut(self) -> None:
        self.writer.transport.abort()
        raise ConnectionResetError("the script cuts the connection here")

    async def _send(
        self, status: int, body: bytes, kind: str = "application/json", headers: dict[str, str] | None = None
    ) -> None:
        reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
        lines = [f"HTTP/1.1 {status} {reason}", f"content-type: {kind}", f"content-length: {len(body)}"]
        lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()


_PAGE = b"<!doctype html><title>Sign in</title><p>A page of a proxy in between.</p>"


async def _read_request(reader: asyncio.StreamReader) -> _HttpRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {name.strip().lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b"".join([chunk async for chunk in _read_chunks(reader)])
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return _HttpRequest(method=method, path=path.partition("?")[0], headers=headers, body=body)


async def _read_chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).split(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()


async def _spoken(reply: ScriptedReply) -> AsyncIterator[Spoken]:
    for part in reply.parts:
        if isinstance(part, (str, ScriptedCall, ScriptedThinking)):
            yield part
        else:
            await part.wait()
