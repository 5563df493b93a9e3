"""Makes verbs durable in the database file, and is the process's ear for others.

What another process commits is told before anything that this one commits after it, so listeners get each
conversation's events in order.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from amoxi_py.domain.limits import Limits
from amoxi_py.ports.clock import Clock
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import read_events
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.verb import Answer, Verb, perform
from amoxi_py.stores.sql.writer import Deliver, VerbWriter
from amoxi_py.stores.sqlite.connection import SqliteTransaction, Synchronous, connect_to_write, store_error
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.workers import LeaseClock

_LISTEN_EVERY_S = 0.01
_TAIL_PAGE = 500
_TAIL_MOST = 5000
_FREE_PAGES_KEPT = 1000
_FREE_PAGES_AT_ONCE = 200
_CHECKPOINT_BYTES = 8 * 1024 * 1024
_CHECKPOINT_WAIT_MS = 100
_BUSY_MS = 30_000
_FORGET_AFTER_COMMITS = 500
_FORGET_AFTER_S = 0.2


class SqliteWriter(VerbWriter):
    """The writer on one connection.

    `deliver_gap` is called, in the order of what is delivered, when so much of others was not told yet that it never
    will be.
    """

    def __init__(
        self,
        file: Path,
        connection: sqlite3.Connection,
        lock: FileLock,
        clock: Clock,
        synchronous: Synchronous,
        deliver: Deliver,
        deliver_gap: Callable[[], None],
        limits: Limits,
    ) -> None:
        super().__init__(deliver, idle_every_s=_LISTEN_EVERY_S)
        self._limits = limits
        self._file = file
        self._log_file = file.with_name(file.name + "-wal")
        self._lock = lock
        self._clock = clock
        self._lease_clock = LeaseClock(clock)
        self._synchronous = synchronous
        self._deliver_gap = deliver_gap
        self._checkpoint_at = _CHECKPOINT_BYTES
        self._space_looked_at = 0
        self._forgotten_at = 0
        self._use(connection)
        self._last_event = self._last_event_key()

    @property
    def has_space_to_look_at(self) -> bool:
        """Whether it has still to find out that few pages of the file are free, or to cut them off."""
        return self.commits != self._space_looked_at

    def clear_log_next(self) -> None:
        """Let the next commit move the log into the file, however short it is; from any thread."""
        self._checkpoint_at = 0

    def _failure(self, error: Exception) -> Exception:
        return store_error(self._file, error) if isinstance(error, sqlite3.Error | OSError) else error

    def _idle(self) -> None:
        try:
            self._listen()
            self._give_space_back()
            self._forget_pages()
        except Exception:  # noqa: BLE001 - nobody waits for this; the next transaction tells its callers
            self._behind = True

    def _transact(self, verbs: list[Verb]) -> list[Answer]:
        answers = self._transact_now(verbs, patient=True)
        if answers is None:
            self._listen()
            answers = self._transact_now(verbs, patient=False)
        assert answers is not None
        return answers

    def _transact_now(self, verbs: list[Verb], *, patient: bool) -> list[Answer] | None:
        """Do verbs in one transaction, after what others committed has been read.

        A patient one does nothing when that is long, so that it can be read where it keeps nobody from writing.
        """
        self._lock.acquire()  # not SQLite's busy handler: that one sleeps, and is not fair
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            more = self._last_event_key() != self._last_event and self._read_page()
            if more and patient:
                self._connection.execute("ROLLBACK")
                return None
            while more:
                more = self._read_page()
            now = millis(self._clock.now())
            batch = Batch(self._tx, now, self._lease_clock.now(), self._limits)
            answers = perform(batch, verbs)
            self._connection.execute("COMMIT")
            self.commits += 1
            self._last_event += len(batch.told)  # keys are given one after the other
            self._told.extend(batch.told)
            self.measures.committed(batch.told)
            self._checkpoint()
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._lock.release()
        return answers

    def _checkpoint(self) -> None:
        """Move a long log into the file and cut it to nothing.

        What SQLite would do by itself leaves frames in the log that are older than the file; a log that is then cut
        short would bring old pages back.
        """
        try:
            size = self._log_file.stat().st_size
            if size < self._checkpoint_at:
                return
            self._connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MS}")
            (busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        except (sqlite3.Error, OSError):
            busy, size = 1, self._checkpoint_at
        self._checkpoint_at = 2 * size if busy else _CHECKPOINT_BYTES  # a long reader is in the way: not each time

    def _give_space_back(self) -> None:
        """Cut some free pages off the file when there are many, such as after an erasure."""
        if self.commits == self._space_looked_at:
            return
        looked_at, self._space_looked_at = self._space_looked_at, self.commits
        (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if free <= _FREE_PAGES_KEPT:
            return
        if self._lock.try_acquire():
            try:
                # `execute` would stop after the first page, because this statement has rows but no columns
                self._connection.executescript(f"PRAGMA incremental_vacuum({_FREE_PAGES_AT_ONCE})")
                self._checkpoint()
            finally:
                self._lock.release()
        self._space_looked_at = looked_at  # go on at the next quiet moment

    def _forget_pages(self) -> None:
        """Give up the memory for pages of the file that a load has left; the system still has them."""
        many = self.commits - self._forgotten_at >= _FORGET_AFTER_COMMITS
        if many and time.perf_counter() - self._begun >= _FORGET_AFTER_S:
            self._forgotten_at = self.commits
            self._connection.execute("PRAGMA shrink_memory")

    def _roll_back(self) -> None:
        """Undo; what landed all the same is read back as if another process had written it."""
        self._behind = True
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._connection.close()
            self._use(connect_to_write(self._file, self._synchronous))

    def _use(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._tx = SqliteTransaction(connection)
        self._version = self._data_version()
        self._behind = True

    def _close(self) -> None:
        self._lock.acquire()  # the last connection of all moves the log into the file
        try:
            self._connection.close()
        finally:
            self._lock.release()

    # -- what others committed

    def _listen(self) -> None:
        """Tell what others committed, page by page."""
        more = self._behind or self._data_version() != self._version
        while more:
            try:
                self._connection.execute("BEGIN")
                more = self._read_page()
                self._connection.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise
            self._tell([], [])

    def _read_page(self) -> bool:
        """Read some events that this process has not told yet, inside a transaction; return whether there are more."""
        version = self._data_version()
        last = self._last_event_key()
        if last - self._last_event > _TAIL_MOST:
            self._tell([], [])
            self._deliver_gap()
            self._last_event = last
        rows = self._tx.rows("events_since", key=self._last_event, limit=_TAIL_PAGE)
        self._told.extend(read_events(self._tx, rows))
        if rows:
            self._last_event = rows[-1][0]
        self._behind = len(rows) == _TAIL_PAGE
        self._version = version
        return self._behind

    def _last_event_key(self) -> int:
        key: int = self._tx.rows("last_event_key")[0][0]
        return key

    def _data_version(self) -> int:
        version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        return version
