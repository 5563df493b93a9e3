"""Looking up where webhooks lead, for many callers at once: a name server that does not answer holds its thread.

So nobody has more than a few of the threads, and who names slow servers waits for its own alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from amoxi_py.surfaces.outgoing import Resolve, addresses_of

_THREADS = 16
_OF_A_CALLER = 2


class Names:
    """Finds the addresses of hosts; `resolve` does it instead of the system, for tests."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="amoxi-webhooks")
        self._turns: dict[str, asyncio.Semaphore] = {}

    def of(self, caller: str) -> Resolve:
        """Return what finds addresses for a caller."""
        return self._resolve or partial(self._find, caller)

    async def _find(self, caller: str, host: str, port: int) -> Sequence[str]:
        turn = self._turns.setdefault(caller, asyncio.Semaphore(_OF_A_CALLER))
        loop = asyncio.get_running_loop()

        def release(_: Future[list[str]]) -> None:
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(turn.release)

        await turn.acquire()
        looking = self._threads.submit(addresses_of, host, port)
        looking.add_done_callback(release)  # who waits may leave earlier, the thread does not
        return await asyncio.wrap_future(looking)
