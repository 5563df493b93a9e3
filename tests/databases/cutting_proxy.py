"""A line to a PostgreSQL that tests cut: at a commit whose answer is lost, before one, or at any moment.

It knows where messages of PostgreSQL's protocol (version 3) begin and end. A commit is seen by what the server says
about it, `CommandComplete` with the tag `COMMIT`, so it has landed when the line is cut. Transactions that only read or
notify are let through: which words their statements hold tells that.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast
from urllib.parse import urlsplit

_START_S = 60.0
_ENCRYPTION = {80877103, 80877104}
_COMPLETE = ord("C")
_BEGIN, _WRITE, _COMMIT = b"b", b"w", b"c"
_DOES = {
    _BEGIN: re.compile(rb"^\s*(BEGIN|START)\b", re.IGNORECASE),
    _WRITE: re.compile(rb"\b(INSERT|UPDATE|DELETE|MERGE|COPY|CREATE)\b", re.IGNORECASE),
    _COMMIT: re.compile(rb"(^|;)\s*(COMMIT|END)\b[^;]*;?\s*$", re.IGNORECASE),
}


class Door:
    """An address at which the server is reached, with words that cut what goes through it.

    Each word may be called from any thread.

    Attributes:
        port: Its port on 127.0.0.1.
        commits: How many commits the server has confirmed to clients of this door, or tried to.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> None:
        self._loop = loop
        self._behind = (host, port)
        self._connections: set[_Connection] = set()
        self._shut = False
        self._held = False
        self._server: asyncio.Server | None = None
        self.commits = 0
        self.port = 0
        self.cut_after = False
        self.cut_before = False

    def lose_answer(self) -> None:
        """Cut the connection of the next commit of writes when that has landed, before its client hears of it."""
        self.cut_after = True

    def lose_commit(self) -> None:
        """Cut the connection of the next commit of writes before the server hears of it."""
        self.cut_before = True

    def cut(self) -> None:
        """Cut all connections at once."""
        self._do(self._cut)

    def shut(self) -> None:
        """Cut all connections, and each new one as it comes."""
        self._shut = True
        self.cut()

    def open(self) -> None:
        """Let connections through again."""
        self._shut = False

    def hold(self) -> None:
        """Keep connections and let nothing through, as a network that loses all packets."""
        self._held = True

    def release(self) -> None:
        """Let through what was held and all that comes."""
        self._held = False
        self._do(self._pass_held)

    def url(self, dsn: str) -> str:
        """Return the address of the server's database with this door in the place of the server."""
        parts = urlsplit(dsn)
        account, _, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{account}{'@' if account else ''}127.0.0.1:{self.port}").geturl()

    def close(self) -> None:
        """Cut all and listen no more."""
        self._do(self._close)

    def _do(self, what: Callable[[], object]) -> None:
        done = threading.Event()

        def do() -> None:
            try:
                what()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(do)
        done.wait(_START_S)

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: _Connection(self).client, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def _cut(self) -> None:
        for connection in tuple(self._connections):
            connection.cut()

    def _pass_held(self) -> None:
        for connection in tuple(self._connections):
            connection.client.pass_on()
            connection.server.pass_on()

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._cut()


class _End(asyncio.Protocol):
    """One end of a connection: what it says is looked at message by message, and written to the other end."""

    def __init__(self, connection: _Connection, look: Callable[[_End], int | None]) -> None:
        self._connection = connection
        self._look = look
        self._transport: asyncio.Transport | None = None
        self.said = bytearray()

    @property
    def transport(self) -> asyncio.Transport:
        """Its socket; there is one as soon as anything is passed on."""
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.made(self)

    def data_received(self, data: bytes) -> None:
        self.said += data
        self.pass_on()

    def pass_on(self) -> None:
        """Write all whole messages to the other end; the line may be cut at one of them."""
        if self._connection.is_held:
            return
        passed = self._look(self)
        if passed is None:
            self._connection.cut()
        elif passed:
            self._connection.other(self).transport.write(bytes(self.said[:passed]))
            del self.said[:passed]

    def pause_writing(self) -> None:
        self._connection.other(self).transport.pause_reading()

    def resume_writing(self) -> None:
        self._connection.other(self).transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.lost(self)

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()


class _Connection:
    """One connection of a client, and what its transaction does."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self.client = _End(self, self._look_at_start)
        self.server = _End(self, self._look_at_answers)
        self._connecting: asyncio.Task[None] | None = None
        self._prepared: dict[bytes, bytes] = {}
        self._writes = False

    @property
    def is_held(self) -> bool:
        """Whether nothing is to go through now."""
        return self._door._held

    def other(self, end: _End) -> _End:
        """Return the opposite end."""
        return self.server if end is self.client else self.client

    def made(self, end: _End) -> None:
        """Connect to the server when a client has come, and let that talk then."""
        if end is self.server:
            self.client.transport.resume_reading()
        elif self._door._shut:
            end.abort()
        else:
            self._door._connections.add(self)
            end.transport.pause_reading()
            self._connecting = self._door._loop.create_task(self._connect())

    def lost(self, end: _End) -> None:
        """Close the opposite end when it has got all that was on its way."""
        self._door._connections.discard(self)
        other = self.other(end)
        if other._transport is not None:
            other.transport.close()

    def cut(self) -> None:
        """Close both ends; what is on its way is lost."""
        self._door._connections.discard(self)
        self.client.abort()
        self.server.abort()

    async def _connect(self) -> None:
        try:
            await self._door._loop.create_connection(lambda: self.server, *self._door._behind)
        except OSError:
            self.cut()
        if self._door._shut or self.client.transport.is_closing():
            self.cut()

    def _look_at_start(self, client: _End) -> int:
        """Wait for the first message, which has no kind, and refuse encryption, which it may ask for before."""
        while len(client.said) >= 8:
            length, code = struct.unpack_from("!ii", client.said)
            if len(client.said) < length:
                break
            if code not in _ENCRYPTION:
                client._look = self._look_at_requests
                return int(length)
            del client.said[:length]
            client.transport.write(b"N")
        return 0

    def _look_at_requests(self, client: _End) -> int | None:
        """Return how many bytes may be passed, or None when the line is to be cut."""
        passed = 0
        for kind, start, end in _messages(client.said):
            if kind in b"QPB":
                does = self._hears(kind, bytes(client.said[start:end]))
                if _COMMIT in does and self._writes and self._door.cut_before:
                    self._door.cut_before = False
                    return None
            passed = end
        return passed

    def _hears(self, kind: int, message: bytes) -> bytes:
        """Take a request; return what it does to a transaction: some of `_BEGIN`, `_WRITE` and `_COMMIT`."""
        if kind == ord("P"):
            name, query, _ = message.split(b"\0", 2)
            self._prepared[name] = _what(query)
            return b""
        does = _what(message[:-1]) if kind == ord("Q") else self._prepared.get(message.split(b"\0", 2)[1], b"")
        if _BEGIN in does:
            self._writes = False
        if _WRITE in does:
            self._writes = True
        return does

    def _look_at_answers(self, server: _End) -> int | None:
        """Return how many bytes may be passed, or None when the line is to be cut."""
        passed = 0
        for kind, start, end in _messages(server.said):
            if kind == _COMPLETE and server.said[start:end] == b"COMMIT\0":
                self._door.commits += 1
                if self._writes and self._door.cut_after:
                    self._door.cut_after = False
                    return None
            passed = end
        return passed


def _messages(said: bytearray) -> Iterator[tuple[int, int, int]]:
    """Find whole messages: for each its kind, and where its text begins and ends."""
    start = 0
    while start + 5 <= len(said):
        end = start + 1 + int.from_bytes(said[start + 1 : start + 5], "big")
        if end > len(said):
            return
        yield said[start], start + 5, end
        start = end


def _what(query: bytes) -> bytes:
    return b"".join(does for does, words in _DOES.items() if words.search(query))


class CuttingProxy:
    """The thread behind all doors to one server, until `close`."""

    def __init__(self, dsn: str) -> None:
        behind = urlsplit(dsn)
        self._behind = (behind.hostname or "127.0.0.1", behind.port or 5432)
        self._doors: list[Door] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cutting proxy", daemon=True)
        self._thread.start()

    def door(self) -> Door:
        """Open one more address."""
        door = Door(self._loop, *self._behind)
        asyncio.run_coroutine_threadsafe(door._listen(), self._loop).result(_START_S)
        self._doors.append(door)
        return door

    def close(self) -> None:
        """Cut all and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)
        self._loop.close()

    async def _end(self) -> None:
        for door in self._doors:
            door._close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


@contextmanager
def cutting_proxy(dsn: str) -> Iterator[CuttingProxy]:
    """Give the doors to a server for as long as a test lasts."""
    proxy = CuttingProxy(dsn)
    try:
        yield proxy
    finally:
        proxy.close()
