"""Removing what nobody needs, in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("amoxi_py.stores")

SWEEP_EVERY_S = 3600.0


class Sweep:
    """Work that is done in the background when it is started first, and then again and again."""

    def __init__(self, work: Callable[[], Awaitable[None]], every_s: float) -> None:
        self._work = work
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, once."""
        if self._task is None:
            self._task = asyncio.create_task(self._repeat())

    async def stop(self) -> None:
        """End it, and return when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _repeat(self) -> None:
        while True:
            try:
                await self._work()
            except Exception as error:  # noqa: BLE001 - nobody waits for this; the next turn tries again
                log.warning("what nobody needs could not be removed: %s", error)
            await asyncio.sleep(self._every_s)
