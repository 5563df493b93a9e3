"""A server on this machine that is told things by webhooks, in the event loop of the test."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any


class Receiver:
    """A server of the partner; `answer` says what the nth request gets: a status, bytes, or None for nothing at all."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, str], Any]] = []
        self.answer: Callable[[int], int | bytes | None] = lambda n: 200
        self.waiting = 0
        self._let_go = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, stack: AsyncExitStack, tls: ssl.SSLContext | None) -> None:
        server = await stack.enter_async_context(await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls))
        stack.push_async_callback(self._end)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/updates?key=url-secret"

    def told(self) -> list[Any]:
        return [body for _, body in self.heard]

    async def _end(self) -> None:
        """Leave no connection behind, for the loop ends with the test."""
        self._let_go.set()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await asyncio.sleep(0)  # the loop closes what was aborted in its next turn

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
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
            try:
                with suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(5):
                        await writer.wait_closed()
            finally:
                writer.transport.abort()
                self._serving.discard(task)


@asynccontextmanager
async def receiving(tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    """Serve a receiver."""
    async with AsyncExitStack() as stack:
        made = Receiver()
        await made.serve(stack, tls)
        yield made
