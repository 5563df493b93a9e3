"""The clients of a load: thousands of connections in one process, each with one conversation, for little CPU.

    python -m amoxi_py.testing.bench.clients < LOAD.json

Reads a `Load` as one line of JSON. Prints `boundary N` when the N-th window begins, and once more when the last one is
over, so that whoever started it can measure the server's CPU at the same moments; and after the boundary that ends it
a line of JSON with a `Window` for each of them, that of the last one when all turns have ended.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any, cast

import httptools
import msgspec

from amoxi_py.testing.bench.figures import Tally
from amoxi_py.testing.bench.program import end_with_parent, run_program, tell
from amoxi_py.testing.bench.target import Load

_LONGEST_SAMPLE = 400
_LONGEST_HEAD = 4096
_AFTER_ERROR_S = 0.05
_LOOK_S = 0.1


class Clients:
    """All clients of a load, and what they have seen in the window that goes on.

    Args:
        load: What they do.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self.tally = Tally()
        self.loop = asyncio.get_running_loop()
        self.counting_from = 0.0
        self.over = False
        self.all_ended = asyncio.Event()
        self._busy = 0
        self.first = load.target.first.encode()
        self.end = load.target.end.encode()
        self.overlap = max(len(self.first), len(self.end)) - 1
        field = re.escape(load.target.session_field or "")
        self.session = re.compile(rf'"{field}"\s*:\s*"?([^",}}\s]+)'.encode()) if field else None
        self._all = [_Client(self, number) for number in range(load.clients)]

    async def run(self) -> None:
        """Play the load to its end, and tell what came of it."""
        load, begun = self.load, time.perf_counter()
        self.counting_from = begun + load.warmup_s
        for client in self._all:
            self.loop.call_later(load.ramp_s * client.number / load.clients, client.begin)
        watching = self.loop.create_task(self._watch_timeouts())
        await self._until(begun + load.warmup_s)
        self.tally = self.tally.only_errors()
        tell(b"boundary 0")
        for number in range(load.windows):
            await self._until(begun + load.warmup_s + (number + 1) * load.window_s)
            tell(b"boundary %d" % (number + 1))
            if number + 1 < load.windows:
                tally, self.tally = self.tally, Tally()
                tell(msgspec.json.encode(tally.window(number, load.window_s)))
        self.over = True
        ended = self.tally.ended
        if self._busy:
            await self.all_ended.wait()
        watching.cancel()
        for client in self._all:
            client.close()
        self.tally.ended = ended  # what ended later was not in the time
        tell(msgspec.json.encode(self.tally.window(load.windows - 1, load.window_s)))

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - time.perf_counter()))

    def count_busy(self, change: int) -> None:
        """Count a client that begins a turn, or ends it."""
        self._busy += change
        if self.over and not self._busy:
            self.all_ended.set()

    async def _watch_timeouts(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            late = time.perf_counter() - self.load.turn_timeout_s
            for client in self._all:
                if client.busy and client.asked_at < late:
                    client.fail("timeout")


class _Connection(asyncio.Protocol):
    """A connection of a client; once the client has another one or none, what still comes of it is passed over."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self.parser: Any = httptools.HttpResponseParser(client)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's are of a class of their own
        if self._client.connection is self:
            self._client.send(self.transport)
        else:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._client.connection is not self:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._client.fail("no HTTP answer")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._client.connection is self:
            self._client.lose_connection()


class _Client:
    """One client: its connection, its conversation, and the turn that goes on."""

    def __init__(self, all_clients: Clients, number: int) -> None:
        self.number = number
        self.busy = False
        self.asked_at = 0.0
        self._clients = all_clients
        self._target = all_clients.load.target
        self.connection: _Connection | None = None
        self._cookies: dict[bytes, bytes] = {}
        self._conversation = 0
        self._turn = 0
        self._session: str | None = None
        self._setting_up = False
        self._wait: float | None = None
        self._tail = b""
        self._head = b""
        self._last = b""
        self._first_seen = self._end_seen = False

    def begin(self) -> None:
        """Send the next message, unless the time is over."""
        if self._clients.over:
            return
        self.busy = True
        self._clients.count_busy(1)
        if self._turn >= self._clients.load.turns_each:
            self._turn, self._session = 0, None
        if self._turn == 0 and self._session is None:
            self._conversation += 1
            if self._target.session_field is None:
                self._session = f"bench-{id(self._clients):x}-{self.number}-{self._conversation}"
        self._setting_up = self._target.setup_path is not None and self._session is None
        self._ask()

    def close(self) -> None:
        """Close the connection."""
        connection, self.connection = self.connection, None
        if connection is not None and connection.transport is not None:
            connection.transport.close()

    def fail(self, kind: str) -> None:
        """Count a turn that failed, and go on with the next one on a new connection."""
        self.close()
        self._clients.tally.fail(kind, self._sample())
        self._next_after(_AFTER_ERROR_S)

    def lose_connection(self) -> None:
        """Take in that the server has closed the connection: the end of an answer, of a stream, or between turns."""
        self.connection = None
        if not self.busy:
            return
        if self._end_seen:
            self._completed()
        else:
            self.fail("cut stream" if self._head else "closed connection")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"set-cookie":
            cookie, _, content = value.partition(b";")[0].partition(b"=")
            self._cookies[cookie.strip()] = content.strip()
        elif name == b"retry-after":
            self._wait = float(value) if value.strip().isdigit() else 0.0

    def on_body(self, body: bytes) -> None:
        if len(self._head) < _LONGEST_HEAD:
            self._head += body
        if self._setting_up:
            return
        seen = self._tail + body
        if not self._first_seen and self._clients.first in seen:
            self._first_seen = True
            if self.asked_at >= self._clients.counting_from:
                self._clients.tally.ttft.append(time.perf_counter() - self.asked_at)
        if not self._end_seen and self._clients.end in seen:
            self._end_seen = True
            if self.asked_at >= self._clients.counting_from:
                self._clients.tally.turn.append(time.perf_counter() - self.asked_at)
        self._last = body
        self._tail = seen[-self._clients.overlap :] if self._clients.overlap else b""

    def on_message_complete(self) -> None:
        assert self.connection is not None
        parser = self.connection.parser
        status = parser.get_status_code()
        if not parser.should_keep_alive():
            self.close()
        if not 200 <= status < 300:
            self._answered_with(status)
        elif self._setting_up:
            self._set_up()
        elif not self._end_seen:
            self.fail("answer without an end")
        else:
            self._completed()

    def _ask(self) -> None:
        self._wait = None
        self._tail = self._head = self._last = b""
        self._first_seen = self._end_seen = False
        self.asked_at = time.perf_counter()
        if self.connection is not None and self.connection.transport is not None:
            self.send(self.connection.transport)
        else:
            self.connection = _Connection(self)
            self._connecting = self._clients.loop.create_task(self._connect(self.connection))

    async def _connect(self, connection: _Connection) -> None:
        load = self._clients.load
        try:
            await self._clients.loop.create_connection(lambda: connection, load.host, load.port)
        except OSError as error:
            if self.connection is connection:
                self._head = str(error).encode()
                self.fail("no connection")

    def send(self, transport: asyncio.Transport) -> None:
        """Send the request that is to be sent now."""
        target = self._target
        path, body = target.path, target.body
        if self._setting_up:
            path, body = target.setup_path or "", target.setup_body
        elif self._session is None:
            body = target.opening_body or body
        content = self._fill(body).encode()
        lines = [
            f"POST {self._fill(path)} HTTP/1.1",
            f"Host: {self._clients.load.host}:{self._clients.load.port}",
            f"Content-Type: {'application/json' if self._setting_up else target.content_type}",
            f"Content-Length: {len(content)}",
            *target.headers,
        ]
        if self._cookies:
            pairs = b"; ".join(b"%b=%b" % pair for pair in self._cookies.items())
            lines.append(f"Cookie: {pairs.decode('latin-1')}")
        transport.write("\r\n".join((*lines, "", "")).encode("latin-1") + content)

    def _fill(self, text: str) -> str:
        return text.replace("{session}", self._session or "").replace("{n}", str(self._turn))

    def _answered_with(self, status: int) -> None:
        tally = self._clients.tally
        if status != 429:
            tally.fail(f"HTTP {status}", self._sample())
            self._next_after(_AFTER_ERROR_S)
            return
        if self.asked_at >= self._clients.counting_from:
            tally.refused.append(time.perf_counter() - self.asked_at)
            tally.refused_without_wait += self._wait is None
        self._next_after(min(self._wait or 0.0, self._clients.load.longest_wait_s))

    def _set_up(self) -> None:
        self._session = self._found_session()
        if self._session is None:
            self.fail("no session in the answer")
            return
        self._setting_up = False
        self._ask()

    def _completed(self) -> None:
        if self._session is None:
            self._session = self._found_session()
        self._clients.tally.ended += 1
        self._turn += 1
        self._next_after(0.0)

    def _found_session(self) -> str | None:
        found = self._clients.session.search(self._head) if self._clients.session is not None else None
        return found[1].decode() if found is not None else None

    def _sample(self) -> str:
        short = len(self._head) <= _LONGEST_SAMPLE  # of a long answer the last words say why it has no end
        told = self._head if short else self._last[-_LONGEST_SAMPLE:]
        return told.decode("utf-8", "replace")

    def _next_after(self, seconds: float) -> None:
        self.busy = False
        self._clients.count_busy(-1)
        self._clients.loop.call_later(seconds, self.begin)


async def _play() -> None:
    line = sys.stdin.buffer.readline()
    end_with_parent()
    await Clients(msgspec.json.decode(line, type=Load)).run()


if __name__ == "__main__":
    run_program(_play())
