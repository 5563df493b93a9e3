"""Keeps a worker's lease alive from a thread of its own, and is the proof that it is current.

The thread is apart from the event loop, so that a tool that blocks the loop is not taken for a dead process; but when
the loop has been dead for a very long time the lease is let go, because a run must not be held for ever by a corpse.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import Store, WorkerKey

log = logging.getLogger("amoxi_py.worker")

_SAFETY = 0.9
_DEAD_LOOP_LEASES = 10.0
_DEAD_LOOP_SECONDS = 300.0


class LeaseKeeper:
    """One enrolled worker's lease: renewed each third of it, until `stop` or until it is lost."""

    def __init__(self, store: Store, clock: Clock, lease: float, worker: WorkerKey, sent: float) -> None:
        self.worker = worker
        self.lost = False
        self._store = store
        self._clock = clock
        self._lease = lease
        self._valid_until = sent + lease * _SAFETY
        self._loop_seen = clock.running()
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._renewed = asyncio.Event()
        self._on_lost: Callable[[], None] = lambda: None
        self._ping: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._keep, name="amoxi-lease", daemon=True)

    def start(self, on_lost: Callable[[], None]) -> None:
        """Begin to renew; `on_lost` is called on the loop, once, when the lease is lost."""
        self._on_lost = on_lost
        self._pong()
        self._thread.start()

    def stop(self) -> None:
        """Renew no more."""
        self._stop.set()
        if self._ping is not None:
            self._ping.cancel()

    @property
    def current(self) -> bool:
        """Whether the lease is known to be current: counted from before its renewal was sent, less a tenth."""
        return not self.lost and self._clock.running() < self._valid_until

    async def prove(self, run_id: str) -> None:
        """Return when the lease is known to be current; raise `LeaseLost` when it is lost."""
        while not self.current:
            if self.lost:
                raise LeaseLost(run_id)
            self._renewed.clear()
            await self._renewed.wait()

    def _keep(self) -> None:
        pause = self._lease / 3
        while not self._stop.wait(pause):
            sent = self._clock.running()
            if sent - self._loop_seen > max(_DEAD_LOOP_LEASES * self._lease, _DEAD_LOOP_SECONDS):
                self._tell(self._lose)  # heard when the loop comes back after all
                return
            try:
                self._store.renew(self.worker, self._lease)
            except LeaseLost:
                self._tell(self._lose)
                return
            except Exception as error:
                if not isinstance(error, StoreUnavailable):
                    log.exception("renewing the lease failed")
                pause = min(self._lease / 10, 1.0)
            else:
                self._valid_until = sent + self._lease * _SAFETY
                pause = self._lease / 3
                self._tell(self._renewed.set)

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed: nobody needs the lease any more
            self._stop.set()

    def _lose(self) -> None:
        self.lost = True
        self._renewed.set()
        if not self._stop.is_set():
            self._on_lost()

    def _pong(self) -> None:
        self._loop_seen = self._clock.running()
        self._ping = self._loop.call_later(self._lease / 3, self._pong)
