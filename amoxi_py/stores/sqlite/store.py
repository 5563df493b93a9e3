"""The embedded store: a folder with one SQLite file, for as many processes of one machine as there are."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterable, Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from amoxi_py.domain.event import Event
from amoxi_py.domain.limits import NO_LIMITS, Limits
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.errors import AmoxiError, InvalidRequest, NotFound, StoreUnavailable
from amoxi_py.ports.clock import Clock, SystemClock
from amoxi_py.ports.deliveries import HandlerLease
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.ports.listening import EventListener, GapListener, Interest
from amoxi_py.ports.store import WorkerKey
from amoxi_py.ports.transactions import StepPlace, Work
from amoxi_py.stores.sql import claim, files, handlers
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.store import SqlStore
from amoxi_py.stores.sql.sweep import SWEEP_EVERY_S, Sweep
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.verb import Act
from amoxi_py.stores.sql.writer import VerbWriter
from amoxi_py.stores.sqlite.connection import Synchronous, store_error
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.file_work import FileWork
from amoxi_py.stores.sqlite.files import FileFolder
from amoxi_py.stores.sqlite.matrices import BLOCK, Matrices
from amoxi_py.stores.sqlite.migrate import DATABASE, LOCK, open_database
from amoxi_py.stores.sqlite.readers import SqliteReaders
from amoxi_py.stores.sqlite.workers import WorkerLocks
from amoxi_py.stores.sqlite.writer import SqliteWriter

T = TypeVar("T")
_SYSTEM_CLOCK = SystemClock()
_LOOK_AGAIN_S = 0.02
_WIPE_AFTER_S = 1.0
_MERGED_AT_ONCE = 200  # pages of the index of words; others cannot write meanwhile


class SqliteStore(SqlStore):
    """The store in `path`, a folder that is made when it is missing; the database in it is `amoxi.db`.

    Files and records that nobody needs, and conversations that were last added to more than `keep_s` ago, are removed
    in the background from the first worker on, and then every `sweep_every_s`.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock = _SYSTEM_CLOCK,
        synchronous: Synchronous = "FULL",
        sweep_every_s: float = SWEEP_EVERY_S,
        limits: Limits = NO_LIMITS,
        keep_s: float | None = None,
    ) -> None:
        self._folder = path
        self._file = path / DATABASE
        super().__init__(SqliteReaders(self._file), keep_s)
        self._clock = clock
        self._synchronous = synchronous
        self._limits = limits
        self._listener: EventListener | None = None
        self._on_gap: GapListener | None = None
        self._lock: FileLock | None = None
        self._locks = WorkerLocks(path / "workers")
        self._files = FileFolder(path / "files", path / LOCK)
        self._file_work = FileWork(self._files, self._file)
        self._sweep = Sweep(self._sweep_unused, sweep_every_s)
        self._matrices = Matrices()
        self._to_wipe = False
        self._wiping: asyncio.Task[None] | None = None

    @property
    def commits(self) -> int:
        """How many transactions this process has made durable."""
        return 0 if self._writer is None else self._writer.commits

    @property
    def clock(self) -> Clock:
        return self._clock

    async def open(
        self, listener: EventListener, on_gap: GapListener | None = None, interest: Interest | None = None
    ) -> None:
        """Tell all events, whatever `interest` has: of one machine's processes they are few enough."""
        self._listener = listener
        self._on_gap = on_gap
        self._loop = asyncio.get_running_loop()
        self._writer = await asyncio.to_thread(self._open)
        self._writer.start(self.measures)

    async def close(self) -> None:
        await self._sweep.stop()
        if self._wiping is not None:
            self._wiping.cancel()
            await asyncio.wait({self._wiping})
        self._hand_over()
        writer, self._writer = self._writer, None
        await asyncio.to_thread(self._close, writer)

    async def enroll(self, worker_id: str, lease_s: float) -> WorkerKey:
        try:
            self._locks.hold(worker_id)
        except OSError as error:
            raise store_error(self._file, error) from error

        def enroll_here(batch: Batch) -> WorkerKey:
            worker = claim.enroll(batch, worker_id, lease_s)
            self._locks.sweep(batch)
            return worker

        worker = await self._perform(Act(enroll_here))
        self._locks.enrolled(worker_id)
        self._sweep.start()  # not waited for: there may be many files, and the lease counts already
        return cast(WorkerKey, worker)

    def renew(self, worker: WorkerKey, lease_s: float) -> None:
        if self._writer is None:
            raise self._closed()
        caller: ThreadFuture[Any] = ThreadFuture()
        self._writer.put([(Act(lambda batch: claim.renew(batch, worker, lease_s)), caller)])
        caller.result()

    async def retire(self, worker: WorkerKey) -> None:
        await super().retire(worker)
        self._locks.let_go(worker.id)

    async def claim(
        self,
        worker: WorkerKey,
        number: int,
        limit: int,
        *,
        conversations: Sequence[str] | None = None,
        runs: Sequence[str] | None = None,
    ) -> tuple[RunRows, ...]:
        def claim_here(batch: Batch) -> tuple[RunRows, ...]:
            self._locks.expire_dead(batch)
            return claim.claim(batch, self._rotation, worker, number, limit, conversations, runs)

        return cast(tuple[RunRows, ...], await self._perform(Act(claim_here)))

    async def commit_step(self, place: StepPlace, work: Work, *, threaded: bool) -> StepRecord:
        raise InvalidRequest(
            f"ctx.transaction({place.name!r}, ...) records its outcome in the app's own PostgreSQL database, and the "
            "store is a file: set 'ai.store.type' to 'postgres' and DATABASE_URL to the database, or use ctx.step "
            "(a test calls such a tool with tool_context(connection=...))",
            code="transactions_need_postgres",
        )

    async def save_file(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        try:
            return await self.get_file(new.id, new.principal)
        except NotFound:
            pass
        incoming = await self._file_work.begin()
        try:
            async for part in parts:
                await self._file_work.do(partial(incoming.write, part))
            written = await self._file_work.do(incoming.finish)
            return await self._place(new, written, incoming.path)
        finally:
            await self._file_work.discard(incoming)

    async def _place(self, new: NewFile, written: files.Written, incoming: Path) -> StoredFile:
        place = partial(self._files.place, incoming)
        try:
            return cast(StoredFile, await self._perform(Act(lambda batch: files.save_file(batch, new, written, place))))
        except Exception:
            with suppress(AmoxiError):  # else the sweep removes it
                await self._remove_blobs({files.blob_name(new.principal, written.digest)})
            raise

    async def read_file(
        self, file_id: str, principal: Principal, start: int, length: int, *, readable: Sequence[str] = ()
    ) -> bytes:
        blob = await self._read(lambda tx: files.blob_of(tx, file_id, principal, readable))
        piece = await self._file_work.read(blob, start, length)
        if piece is None:
            await self.get_file(file_id, principal, readable=readable)  # deleted in the meantime: not found
            raise StoreUnavailable(f"the bytes of the file {file_id!r} are gone: put the store's files back")
        return piece

    async def _remove_blobs(self, blobs: set[str]) -> None:
        await self._file_work.remove(blobs)

    # -- passages

    def _nearest(
        self, tx: Transaction, space: int, version: int, limit: int, *, vector: bytes, embedder: str
    ) -> Sequence[int]:
        read = partial(tx.rows, "vectors_of_space", space=space, embedder=embedder, limit=BLOCK)
        return self._matrices.nearest(lambda after: read(after=after), space, version, vector, embedder, limit)

    def _wipe_words_soon(self) -> None:
        self._to_wipe = True
        if self._wiping is None or self._wiping.done():
            self._wiping = asyncio.create_task(self._wipe_words_later())

    async def _wipe_words_later(self) -> None:
        while self._to_wipe:
            await asyncio.sleep(_WIPE_AFTER_S)
            self._to_wipe = False
            with suppress(AmoxiError):  # the next sweep does it
                await self._wipe_words()
                await self._clear_log()  # until then the file has the old pages, and the log too

    async def _wipe_words(self) -> None:
        """Rewrite the index of words in pieces: until it is one, what was deleted is only crossed out in it."""
        pages = -_MERGED_AT_ONCE
        while await self._perform(Act(partial(_merge_words, pages=pages))):
            pages = _MERGED_AT_ONCE

    async def _sweep_unused(self) -> None:
        await self._wipe_words()
        await self._file_work.sweep()
        await self._delete_abandoned()
        await self._delete_expired()
        await self._delete_old_keys()
        await self._purge_old()

    async def _give_space_back(self) -> None:
        while True:
            writer = self._writer
            if not isinstance(writer, SqliteWriter) or not writer.has_space_to_look_at:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _clear_log(self) -> None:
        if isinstance(self._writer, SqliteWriter):
            self._writer.clear_log_next()
            await self._perform(Act(lambda batch: None))

    async def claim_handlers(self, names: Sequence[str], worker: WorkerKey | None) -> tuple[HandlerLease, ...]:
        def claim_here(batch: Batch) -> tuple[HandlerLease, ...]:
            self._locks.expire_dead(batch)
            return handlers.claim_handlers(batch, names, worker)

        return cast(tuple[HandlerLease, ...], await self._perform(Act(claim_here)))

    def _open(self) -> SqliteWriter:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # people's messages, and the cookies' secret
            self._lock = FileLock(self._folder / LOCK)
            self._lock.acquire()
            try:
                connection = open_database(self._file, self._lock, self._synchronous)
                return SqliteWriter(
                    self._file,
                    connection,
                    self._lock,
                    self._clock,
                    self._synchronous,
                    self._deliver,
                    self._deliver_gap,
                    self._limits,
                )
            finally:
                self._lock.release()
        except (sqlite3.Error, OSError) as error:
            raise store_error(self._file, error) from error

    def _close(self, writer: VerbWriter | None) -> None:
        self._readers.close()
        if writer is not None:
            writer.stop()
        self._file_work.close()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {str(self._file)!r} is not open")

    def _deliver_gap(self) -> None:
        if self._on_gap is not None:
            self._on_loop(self._on_gap)

    def _publish(self, events: Sequence[Event]) -> None:
        if self._listener is not None:
            self._listener(events)


def _merge_words(batch: Batch, pages: int) -> bool:
    """Merge some of the index of words; return whether there was anything to merge."""
    ((before,),) = batch.tx.rows("changed_rows")
    batch.tx.run("merge_words", pages=pages)
    ((after,),) = batch.tx.rows("changed_rows")
    return bool(after - before >= 2)  # by FTS5's documentation: fewer when nothing was done
