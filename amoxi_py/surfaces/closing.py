"""When a request has nobody to answer any more: its reader has left, or this server closes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Receive


class Closing:
    """Tells every open answer that this server closes, so that it ends now and its reader can go elsewhere."""

    def __init__(self) -> None:
        self._set = False
        self._waiters: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        """Whether the server closes."""
        return self._set

    def set(self) -> None:
        """End the open answers; it may be called from any thread, and from a signal handler."""
        self._set = True
        for waiter in tuple(self._waiters):
            loop = waiter.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, waiter)

    async def wait(self) -> None:
        """Return when the server closes; at once if it does so already."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        if self._set:
            _finish(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    @asynccontextmanager
    async def or_gone(self, receive: Receive) -> AsyncIterator[asyncio.Future[None]]:
        """Give a future that is done when the client of `receive` has left or the server closes.

        The body of the request must have been read before.
        """
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(gone)
        if self._set:
            _finish(gone)
        watch = asyncio.create_task(_watch(receive, gone))
        try:
            yield gone
        finally:
            self._waiters.discard(gone)
            await end_task(watch)


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task and return when it has ended; what it raised is not told."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


async def client_left(receive: Receive) -> None:
    """Return when the client of a request has left; its body must have been read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _watch(receive: Receive, gone: asyncio.Future[None]) -> None:
    await client_left(receive)
    _finish(gone)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
