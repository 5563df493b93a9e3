"""Which workers of this machine are alive: each holds a lock on a file of its own for as long as its process lives."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote

from amoxi_py.ports.clock import Clock
from amoxi_py.stores.sql.batch import Batch, LeaseTime
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sqlite.file_lock import FileLock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHECK_EVERY_S = 0.2


class LeaseClock:
    """The time of leases: a clock that counts while the machine sleeps and knows its boot, else the calendar."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        try:
            self._boot: str | None = _BOOT_ID.read_text(encoding="ascii").strip() or None
        except OSError:
            self._boot = None

    def now(self) -> LeaseTime:
        """Return the time, and the boot it belongs to."""
        if self._boot is None:
            return LeaseTime(millis(self._clock.now()))
        return LeaseTime(millis(self._clock.running()), self._boot)


class WorkerLocks:
    """The locks of this process's workers, and the question whether others' are still held.

    A worker that was not retired keeps its lock until the process ends: some of its runs' code may go on until then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine: dict[str, FileLock] = {}
        self._next_check = 0.0

    def hold(self, worker_id: str) -> None:
        """Lock the worker's file, before anybody can see the worker."""
        if worker_id not in self._mine:
            self._folder.mkdir(exist_ok=True)
            lock = FileLock(self._file(worker_id))
            lock.acquire()
            self._mine[worker_id] = lock

    def let_go(self, worker_id: str) -> None:
        """Unlock the file and remove it; the worker's runs are handed over."""
        lock = self._mine.pop(worker_id, None)
        if lock is not None:
            self._remove(worker_id)
            lock.close()

    def expire_dead(self, batch: Batch) -> None:
        """End the leases of workers whose process died; look at most a few times a second."""
        if time.monotonic() < self._next_check:
            return
        self._next_check = time.monotonic() + _CHECK_EVERY_S
        dead = []
        for key, worker_id, _, expired in batch.tx.rows("workers", lease_now=batch.lease.now, boot=batch.lease.boot):
            if worker_id not in self._mine and self._is_free(worker_id):
                self._remove(worker_id)
                if not expired:
                    dead.append(key)
        if dead:
            batch.tx.run("expire_workers", rows=json_rows(dead))
            batch.forget_workers()

    def _is_free(self, worker_id: str) -> bool:
        file = self._file(worker_id)
        if not file.exists():
            return False
        lock = FileLock(file)
        try:
            return lock.try_acquire()
        finally:
            lock.close()

    def _remove(self, worker_id: str) -> None:
        try:
            self._file(worker_id).unlink(missing_ok=True)
        except OSError:  # Windows keeps a file that somebody has open; the next one who looks removes it
            pass

    def _file(self, worker_id: str) -> Path:
        return self._folder / f"{quote(worker_id, safe='')}.lock"
