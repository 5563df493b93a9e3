"""Which workers of this machine are alive: each holds a lock on a file of its own for as long as its process lives."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import quote, unquote

from amoxi_py.ports.clock import Clock
from amoxi_py.stores.sql.batch import Batch, LeaseTime
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sqlite.file_lock import FileLock

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_CHECK_EVERY_S = 0.2
_LEFT_BEHIND_S = 60.0


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

    A worker that was not retired keeps its lock for as long as the table knows it: some of its runs' code may go on
    until then.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine: dict[str, FileLock] = {}
        self._enrolled: set[str] = set()
        self._next_check = 0.0

    def hold(self, worker_id: str) -> None:
        """Lock the worker's file, before anybody can see the worker."""
        if worker_id not in self._mine:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            lock = FileLock(self._file(worker_id))
            lock.acquire()
            self._mine[worker_id] = lock

    def enrolled(self, worker_id: str) -> None:
        """Take note that the table knows the worker now."""
        self._enrolled.add(worker_id)

    def let_go(self, worker_id: str) -> None:
        """Unlock the file and remove it; the worker's runs are handed over."""
        self._enrolled.discard(worker_id)
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
        workers = batch.tx.rows("workers", lease_now=batch.lease.now, boot=batch.lease.boot)
        self._let_go_of_gone({worker_id for _, worker_id, _ in workers})
        for key, worker_id, expired in workers:
            if worker_id not in self._mine and self._is_free(worker_id):
                self._remove(worker_id)
                if not expired:
                    dead.append(key)
        if dead:
            batch.tx.run("expire_workers", rows=json_rows(dead))
            batch.forget_workers()

    def sweep(self, batch: Batch) -> None:
        """Remove files whose workers are gone: of this process, and of processes that died."""
        workers = batch.tx.rows("workers", lease_now=batch.lease.now, boot=batch.lease.boot)
        known = {worker_id for _, worker_id, _ in workers}
        self._let_go_of_gone(known)
        for file in self._folder.glob("*.lock"):
            worker_id = unquote(file.stem)
            if worker_id not in known and worker_id not in self._mine and _is_old(file) and self._is_free(worker_id):
                self._remove(worker_id)

    def _let_go_of_gone(self, known: set[str]) -> None:
        for worker_id in self._enrolled - known:
            self.let_go(worker_id)

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


def _is_old(file: Path) -> bool:
    """Whether its worker had the time to be enrolled: a process makes the file first."""
    try:
        return time.time() - file.stat().st_mtime > _LEFT_BEHIND_S
    except OSError:
        return False
