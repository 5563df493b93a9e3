"""A server on this machine that is told things by webhooks, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any


class Receiver:
    """A server of the partner; `answer` says what the nth request gets: a status, bytes, or None for nothing at all."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], Any]] = []
        self.answer: Callable[[int], int | bytes | None] = lambda n: 200
        self.waiting = 0
        self._let_go = asyncio.Event()
        self._connections: set[asyncio.BaseTransport] = set()

    async def serve(self, stack: AsyncExitStack, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0, ssl=tls)
        stack.push_async_callback(self._end)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/updates?key=url-secret"

    def told(self) -> list[Any]:
        return [body for _, body in self.heard]

    def _connection(self) -> asyncio.StreamReaderProtocol:
        return _Connection(asyncio.StreamReader(), self._serve, self._connections)

    async def _end(self) -> None:
        """Leave no connection behind, for the loop ends with the test."""
        for listener in self._server.sockets:  # a server that is closed forgets the sockets that it has just accepted
            asyncio.get_running_loop().remove_reader(listener.fileno())
        self._let_go.set()
        for _ in range(5):  # turns of the loop, in which what was accepted becomes a connection, and one is closed
            await asyncio.sleep(0)
            for connection in tuple(self._connections):
                if isinstance(connection, asyncio.WriteTransport):
                    connection.abort()
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.heard.append(({":first": first, **headers}, json.loads(body)))
            answer = self.answer(len(self.heard))
            if answer is None:
                self.waiting += 1
                await self._let_go.wait()
                return
            if isinstance(answer, int):
                answer = f"HTTP/1.1 {answer} Said\r\ncontent-length: 2\r\n\r\nok".encode()
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class _Connection(asyncio.StreamReaderProtocol):
    """A connection that is known from its first moment, before anything serves it, until it is lost."""

    def __init__(self, reader: asyncio.StreamReader, serve: Any, connections: set[asyncio.BaseTransport]) -> None:
        super().__init__(reader, serve, loop=asyncio.get_running_loop())
        self._connections = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._mine = transport
        self._connections.add(transport)
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self._mine)
        super().connection_lost(error)


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serve a receiver."""
    async with AsyncExitStack() as stack:
        made = Receiver()
        await made.serve(stack, tls)
        yield made
