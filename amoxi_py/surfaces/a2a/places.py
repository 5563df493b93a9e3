"""Places for requests to webhooks: many at once, and so few for one caller and one receiver that the others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

_AT_ONCE = 64
_OF_A_CALLER = 16
_OF_A_RECEIVER = 4


class Places:
    """A request waits for one of its receiver, then of its caller, then of all: who hangs holds up its own alone."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_AT_ONCE)
        self._narrow: dict[tuple[str, ...], tuple[asyncio.Semaphore, set[object]]] = {}

    @asynccontextmanager
    async def take(self, caller: str, receiver: str) -> AsyncIterator[None]:
        """Wait for a place, and hold it."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._of((caller, receiver), _OF_A_RECEIVER))
            await held.enter_async_context(self._of((caller,), _OF_A_CALLER))
            await held.enter_async_context(self._all)
            yield

    @asynccontextmanager
    async def _of(self, whose: tuple[str, ...], most: int) -> AsyncIterator[None]:
        places, users = self._narrow.setdefault(whose, (asyncio.Semaphore(most), set()))
        user = object()
        users.add(user)
        try:
            async with places:
                yield
        finally:
            users.discard(user)
            if not users:
                del self._narrow[whose]
