"""The strict model server: OpenAI's Chat Completions over real HTTP on loopback, played from a script.

It answers 400 to everything that the real API refuses, records all requests, and breaks off where the script says so.
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

from amoxi_py.models.openai_body import OpenAIBody, read_openai_body
from amoxi_py.models.script import Script, ScriptedCall, ScriptedFailure, ScriptedReply, ScriptPlayer
from amoxi_py.ports.chat_model import ModelRequest

_MOST_HEADERS = 64 * 1024
_FINISH = {"length": "length", "content_filter": "content_filter"}


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
        keys: The bearer tokens of all requests.
        refused: What was wrong with the requests that it refused; a test ends with this empty.
        left: Replies that the client left before they were finished.

    Args:
        script: What it says.
        port: Where it listens; 0 takes a free one.
        max_body: Bytes above which a request is refused as too long for the model's context.
        streams: Whether it streams when asked to; some servers answer in one piece all the same.
        one_index: Whether it counts every streamed call as number 0, as some servers do.
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
        on_refused: Callable[[str], object] | None = None,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self.bodies: list[bytes] = []
        self.keys: list[str] = []
        self.refused: list[str] = []
        self.left = 0
        self._player = ScriptPlayer(script)
        self._port = port
        self._max_body = max_body
        self._on_refused = on_refused
        self.streams = streams
        self.one_index = one_index
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="strict-model-server", daemon=True)
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        """The base URL for an OpenAI client, such as `http://127.0.0.1:40123/v1`."""
        return f"http://127.0.0.1:{self._port}/v1"

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

    async def _take(self, request: _HttpRequest) -> tuple[OpenAIBody | None, ScriptedReply | ScriptedFailure]:
        self.bodies.append(request.body)
        self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        if request.method != "POST" or request.path != "/v1/chat/completions":
            return None, ScriptedFailure(status=404, text=f"no route {request.method} {request.path}")
        if self._max_body is not None and len(request.body) > self._max_body:
            return None, self._refuse(
                [f"the context is too long: {len(request.body)} bytes"], "context_length_exceeded"
            )
        read, problems = read_openai_body(request.body)
        if read is None or problems:
            return None, self._refuse(problems, "invalid_request_error")
        self.requests.append(read.request)
        return read, await self._player.next(read.request)

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
    id: str = "chatcmpl-scripted"
    model: str = ""

    async def give(self, request: _HttpRequest) -> None:
        body, answer = await self.server._take(request)
        if isinstance(answer, ScriptedFailure) or body is None:
            assert isinstance(answer, ScriptedFailure)
            await self._fail(answer)
            return
        self.model = body.model
        playing = asyncio.ensure_future(
            self._stream(body, answer) if body.stream and self.server.streams else self._whole(answer)
        )
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

    async def _fail(self, failure: ScriptedFailure) -> None:
        error = {"message": failure.text, "type": failure.reason or "error", "param": None, "code": failure.reason}
        headers = {} if failure.retry_after is None else {"retry-after": f"{failure.retry_after:g}"}
        await self._send_json(failure.status, {"error": error}, headers)

    async def _whole(self, reply: ScriptedReply) -> None:
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        async for part in _play(reply):
            if isinstance(part, str):
                texts.append(part)
            else:
                calls.append(_call_json(part, len(calls)))
        if reply.ending in ("cut", "unfinished"):
            self._cut()
        if reply.ending == "error":
            await self._send_json(200, {"error": _ERROR})
            return
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply, bool(calls))}
        head = {"id": self.id, "object": "chat.completion", "created": 0, "model": self.model}
        await self._send_json(200, {**head, "choices": [choice], "usage": _usage_json(reply)})

    async def _stream(self, body: OpenAIBody, reply: ScriptedReply) -> None:
        self.writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"cache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self._event(self._chunk({"role": "assistant", "content": ""}))
        count = 0
        async for part in _play(reply):
            if isinstance(part, str):
                self._event(self._chunk({"content": part}))
            else:
                for piece in _call_pieces(part, count, 0 if self.server.one_index else count):
                    self._event(self._chunk({"tool_calls": [piece]}))
                count += 1
            await self.writer.drain()
        if reply.ending == "cut":
            self._cut()
        if reply.ending == "error":
            self._event({"error": _ERROR})
        elif reply.ending != "unfinished":
            self._event(self._chunk({}, _finish_reason(reply, count > 0)))
            if body.include_usage:
                self._event({**self._chunk({}), "choices": [], "usage": _usage_json(reply)})
        if reply.ending == "late_cut":
            await self.writer.drain()
            self._cut()
        if reply.ending not in ("unfinished", "no_done"):
            self._chunked(b"data: [DONE]\n\n")
        self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()

    def _cut(self) -> None:
        self.writer.transport.abort()
        raise ConnectionResetError("the script cuts the connection here")

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        head = {"id": self.id, "object": "chat.completion.chunk", "created": 0, "model": self.model}
        return {**head, "choices": [choice]}

    def _event(self, value: dict[str, Any]) -> None:
        self._chunked(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _chunked(self, data: bytes) -> None:
        self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def _send_json(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        reason = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Scripted"
        lines = [f"HTTP/1.1 {status} {reason}", "content-type: application/json", f"content-length: {len(data)}"]
        lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        await self.writer.drain()


_ERROR = {"message": "scripted error in the stream", "type": "server_error", "param": None, "code": None}


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


async def _play(reply: ScriptedReply) -> AsyncIterator[str | ScriptedCall]:
    for part in reply.parts:
        if isinstance(part, (str, ScriptedCall)):
            yield part
        else:
            await part.wait()


def _finish_reason(reply: ScriptedReply, calls: bool) -> str:
    return _FINISH.get(reply.ending, "tool_calls" if calls else "stop")


def _usage_json(reply: ScriptedReply) -> dict[str, int]:
    told, said = reply.usage.input_tokens, reply.usage.output_tokens
    return {"prompt_tokens": told, "completion_tokens": said, "total_tokens": told + said}


def _call_json(call: ScriptedCall, index: int) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{index + 1}" if call.id is None else call.id, "type": "function", "function": function}


def _call_pieces(call: ScriptedCall, place: int, index: int) -> list[dict[str, Any]]:
    """Return a call as it is streamed: its name first, then its arguments in two pieces."""
    whole = _call_json(call, place)
    middle = len(call.arguments) // 2
    pieces = [part for part in (call.arguments[:middle], call.arguments[middle:]) if part]
    return [
        {"index": index, **whole, "function": {"name": call.name, "arguments": ""}},
        *({"index": index, "function": {"arguments": piece}} for piece in pieces),
    ]
