"""An answer that is a stream of events (WHATWG HTML, server-sent events), written as ASGI messages.

What is ready goes out in pieces of about 64 KiB, each when the one before it is on its way, and the next events are
taken only after that: a slow reader holds one batch, and a few pieces of it as bytes. Silence is broken by a comment. A
reader that leaves, or a server that closes, ends the answer and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import Event
from amoxi_py.engine.streams import EventStream
from amoxi_py.errors import AmoxiError
from amoxi_py.surfaces.closing import Closing, end_task

log = logging.getLogger("amoxi_py.http")

_COMMENT = b":\n\n"
_LAST_SEND_S = 1.0
_PIECE = 65536  # a server that holds less than this for a reader takes one piece more
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # the second one is for nginx


def encode_event(event: Event) -> bytes:
    """Return an event as it goes over the wire."""
    return f"id: {event.seq}\nevent: {event.type.label}\ndata: {encode_json(event.data)}\n\n".encode("ascii")


def _pieces(events: Iterable[Event]) -> Iterator[bytes]:
    """Encode events a piece at a time: the bytes of a batch can be many times its text."""
    encoded: list[bytes] = []
    size = 0
    for event in events:
        encoded.append(encode_event(event))
        size += len(encoded[-1])
        if size >= _PIECE:
            yield b"".join(encoded)
            encoded, size = [], 0
    if encoded:
        yield b"".join(encoded)


class EventStreamResponse(Response):
    """Streams events until their end, the reader's leave or the server's close; `heartbeat` is the longest silence."""

    media_type = "text/event-stream"

    def __init__(
        self, stream: EventStream, *, closing: Closing, heartbeat: float, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status_code = 200
        self.background = None
        self.init_headers({**_HEADERS, **(headers or {})})
        self._stream = stream
        self._closing = closing
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._answer(receive, send)
        finally:
            self._stream.close()

    async def _answer(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        wire = _Wire(send)
        pump = asyncio.create_task(self._pump(wire))
        try:
            async with self._closing.or_gone(receive) as gone:
                await self._supervise(wire, pump, gone)
        finally:
            await end_task(pump)
        if not wire.ended:
            with suppress(TimeoutError):  # a reader that takes nothing does not hold up the server's stop
                async with asyncio.timeout(_LAST_SEND_S):
                    await wire.write(b"", last=True)

    async def _pump(self, wire: _Wire) -> None:
        try:
            if not self._stream.at_hand:
                await wire.write(_COMMENT)  # so that proxies pass the headers on
            # The generator is closed here and now, not when the garbage collector finds it.
            async with aclosing(aiter(self._stream)) as batches:
                async for batch in batches:
                    await wire.write_events(batch, last=self._stream.ends_with(batch))
                    del batch  # a reader that waits for what comes next keeps nothing of what it had
        except OSError:  # how some servers say that the reader has left
            pass
        except AmoxiError as error:  # the reader comes again with its last id
            log.warning("an event stream ended early: %s", error)

    async def _supervise(self, wire: _Wire, pump: asyncio.Task[None], gone: asyncio.Future[None]) -> None:
        beat: asyncio.Task[None] | None = None
        try:
            while not pump.done() and not gone.done():
                waiting = {pump, gone} if beat is None else {pump, gone, beat}
                quiet = (
                    beat is None and wire.idle
                )  # else something is on its way, and silence is the reader's own doing
                timeout = max(0.0, self._heartbeat - wire.silence()) if quiet else self._heartbeat
                await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                if beat is not None and beat.done():
                    beat = None
                if beat is None and wire.idle and wire.silence() >= self._heartbeat:
                    beat = asyncio.create_task(wire.write(_COMMENT))
        finally:
            if beat is not None:
                await end_task(beat)
        if pump.done():
            pump.result()


class _Wire:
    """One writer at a time to one connection; `ended` is whether the last body was sent."""

    def __init__(self, send: Send) -> None:
        self.ended = False
        self._send = send
        self._lock = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._last = self._clock()

    @property
    def idle(self) -> bool:
        return not self._lock.locked()

    def silence(self) -> float:
        return self._clock() - self._last

    async def write(self, body: bytes, *, last: bool = False) -> None:
        async with self._lock:
            if not self.ended:
                self.ended = last
                await self._send({"type": "http.response.body", "body": body, "more_body": not last})
                self._last = self._clock()

    async def write_events(self, events: tuple[Event, ...], *, last: bool) -> None:
        """Write a batch; the end of the answer goes out with its last piece."""
        pieces = _pieces(events)
        piece = next(pieces)
        for more in pieces:
            await self.write(piece)
            piece = more
        await self.write(piece, last=last)
