"""The store on PostgreSQL: as many servers share it as there are, and nothing else is needed between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar, cast

import psycopg

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.limits import NO_LIMITS, Limits
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.errors import AmoxiError, NotFound, StoreUnavailable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.deliveries import ArrivalPage, HandlerLease
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.ports.listening import EventListener, GapListener, Interest
from amoxi_py.ports.store import WorkerKey
from amoxi_py.ports.transactions import StepPlace, Work
from amoxi_py.stores.postgres.bell import Bell, Hearing
from amoxi_py.stores.postgres.clock import DatabaseClock
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.files import (
    Upload,
    has_bytes,
    name_upload,
    names_of_bytes,
    read_part,
    remove_bytes,
    remove_unfinished,
)
from amoxi_py.stores.postgres.horizon import settled_to
from amoxi_py.stores.postgres.lease import LeaseRenewal
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.migrate import migrate
from amoxi_py.stores.postgres.readers import PostgresReaders
from amoxi_py.stores.postgres.telling import Range, Telling
from amoxi_py.stores.postgres.transaction import PostgresTransaction
from amoxi_py.stores.postgres.transaction_steps import TransactionSteps
from amoxi_py.stores.postgres.vectors import VectorSearch, stored_vector
from amoxi_py.stores.postgres.writer import PostgresWriter
from amoxi_py.stores.sql import files, handlers
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import read_events
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.store import SqlStore
from amoxi_py.stores.sql.sweep import SWEEP_EVERY_S, Sweep
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.verb import Act, Touches
from amoxi_py.stores.sql.writer import VerbWriter

T = TypeVar("T")

FEWEST_CONNECTIONS = 5
_FIXED_CONNECTIONS = 3  # the writer's, the lease's, the bell's


class PostgresStore(SqlStore):
    """The store in a schema of a database.

    Args:
        url: Of the database, as libpq takes it; it may lead to a pooler in transaction mode.
        schema: Of all tables.
        listen_url: A direct connection for the bell, where `url` leads to a pooler.
        connections: The most that this process ever has, its `ctx.transaction`s included; at least 5.
        clock: Gives the time in place of the database; for tests.
        limits: What is admitted.
        sweep_every_s: How often what nobody needs is removed, from the first worker on.
        keep_s: How long conversations are kept after the last thing that was added to them; None for ever.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "amoxi",
        listen_url: str | None = None,
        connections: int = 10,
        clock: Clock | None = None,
        sweep_every_s: float = SWEEP_EVERY_S,
        limits: Limits = NO_LIMITS,
        keep_s: float | None = None,
    ) -> None:
        if connections < FEWEST_CONNECTIONS:
            raise ValueError(f"connections {connections!r} are too few; {FEWEST_CONNECTIONS} are needed at least")
        self._address = Address(url, schema)
        self.for_transactions = max(1, (connections - _FIXED_CONNECTIONS) // 3)
        self._readers: PostgresReaders
        for_reads = connections - _FIXED_CONNECTIONS - self.for_transactions
        super().__init__(PostgresReaders(self._address, for_reads), keep_s)
        self._listen_address = self._address if listen_url is None else Address(listen_url, schema)
        self._database_clock = DatabaseClock()
        self._given_clock = clock
        self._limits = limits
        self._transactions = TransactionSteps(self._address, self.for_transactions, self._readers.do, self._given_now)
        self._lease = LeaseRenewal(self._address)
        self._claimed: tuple[int, int] | None = None
        self._bell: Bell | None = None
        self._ringing: asyncio.Future[None] | None = None
        self._telling: Telling | None = None
        self._sweep = Sweep(self._sweep_unused, sweep_every_s)
        self._vectors = VectorSearch(self._address)

    @property
    def clock(self) -> Clock:
        return self._given_clock or self._database_clock

    @property
    def commits(self) -> int:
        """How many transactions this process has made durable."""
        return 0 if self._writer is None else self._writer.commits

    async def open(
        self, listener: EventListener, on_gap: GapListener | None = None, interest: Interest | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._telling = telling = Telling(listener, on_gap, interest, self._events_of, self._last_seqs)
        hearing = Hearing(
            news=lambda news, due: self._on_loop(telling.news, news, due),
            missed=lambda: self._on_loop(telling.missed),
            poll=lambda: self._on_loop(telling.poll),
            try_it=lambda channel, what: self._on_loop(self._ring_from_elsewhere, channel, what),
        )
        self._bell = bell = Bell(self._listen_address, hearing)

        def made_due() -> None:
            if interest is not None:
                self._on_loop(interest.news, (), True)

        writer = PostgresWriter(
            self._address, self.clock, self._database_clock, self._deliver, bell.ring, made_due, self._limits
        )
        try:
            await asyncio.to_thread(self._open, writer)
        except BaseException:
            bell.stop()
            raise
        self._writer = writer
        writer.start(self.measures)
        await asyncio.to_thread(bell.start)

    async def close(self) -> None:
        await self._sweep.stop()
        self._hand_over()
        writer, self._writer = self._writer, None
        if self._telling is not None:
            await self._telling.close()
        if self._ringing is not None:
            self._ringing.cancel()
            await asyncio.wait({self._ringing})
        await self._transactions.close()
        await asyncio.to_thread(self._close, writer)

    async def enroll(self, worker_id: str, lease_s: float) -> WorkerKey:
        worker = await super().enroll(worker_id, lease_s)
        self._sweep.start()
        return worker

    async def claim(
        self,
        worker: WorkerKey,
        number: int,
        limit: int,
        *,
        conversations: Sequence[str] | None = None,
        runs: Sequence[str] | None = None,
    ) -> tuple[RunRows, ...]:
        mine, claim = conversations is not None or runs is not None, (worker.key, number)
        if not mine and claim != self._claimed and not await self._readers.do(self._may_claim):
            return ()  # one that is sent again may have got something
        self._claimed = claim
        return await super().claim(worker, number, limit, conversations=conversations, runs=runs)

    def _may_claim(self, line: Line) -> bool:
        """Whether a claim may get anything; a plain read, for nearly always it would not."""
        ((now, may),) = self._address.transaction(line).rows("may_claim", now=self._given_now())
        self._database_clock.follow(now)
        return bool(may)

    def renew(self, worker: WorkerKey, lease_s: float) -> None:
        self._lease.renew(worker, lease_s, self._given_now())

    async def commit_step(self, place: StepPlace, work: Work, *, threaded: bool) -> StepRecord:
        if self._writer is None:
            raise self._closed()
        return await self._transactions.commit(place, work, threaded=threaded)

    def _given_now(self) -> int | None:
        return None if self._given_clock is None else millis(self._given_clock.now())

    # -- files

    async def save_file(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        try:
            return await self.get_file(new.id, new.principal)
        except NotFound:
            pass
        upload = Upload(self._address, self._readers)
        try:
            written = await upload.take(parts)
            touches = Touches(
                names=names_of_bytes([files.blob_name(new.principal, written.digest)]),
                conversations=() if new.lease is None else (new.lease.conversation,),
            )

            def save(batch: Batch) -> StoredFile:
                return files.save_file(batch, new, written, partial(name_upload, batch, upload.key))

            return cast(StoredFile, await self._perform(Act(save, touches=touches)))
        finally:
            await self._discard(upload)

    async def read_file(
        self, file_id: str, principal: Principal, start: int, length: int, *, readable: Sequence[str] = ()
    ) -> bytes:
        def read(tx: Transaction) -> bytes:
            blob = files.blob_of(tx, file_id, principal, readable)
            piece = read_part(tx, blob, start, length)
            if not piece and not has_bytes(tx, blob):
                raise StoreUnavailable(f"the bytes of the file {file_id!r} are gone: put the store's tables back")
            return piece

        return await self._read(read)

    async def _remove_blobs(self, blobs: set[str]) -> None:
        if blobs:
            some = sorted(blobs)
            await self._perform(
                Act(lambda batch: remove_bytes(batch, some), touches=Touches(names=names_of_bytes(some)))
            )

    async def _discard(self, upload: Upload) -> None:
        """Remove an upload that got no name, whatever becomes of who waits for it."""
        if upload.key >= 0:
            with suppress(AmoxiError):  # else the sweep removes it
                await asyncio.shield(
                    asyncio.ensure_future(self._perform(Act(lambda batch: remove_unfinished(batch, upload.key))))
                )

    async def _sweep_unused(self) -> None:
        while await self._perform(Act(remove_unfinished)):
            pass
        await self._delete_abandoned()
        await self._delete_expired()
        await self._delete_old_keys()
        await self._purge_old()

    # -- passages

    vectors_at_once = 8  # an index of pgvector's takes one to three milliseconds for each

    async def _prepare_search(self, embedder: str, dimensions: int) -> None:
        await asyncio.to_thread(self._prepare, embedder, dimensions)

    def _prepare(self, embedder: str, dimensions: int) -> None:
        try:
            self._vectors.prepare(embedder, dimensions)
        except (psycopg.Error, OSError) as error:
            raise self._address.error(error) from error

    def _stored_vector(self, vector: bytes) -> bytes:
        return stored_vector(vector)

    def _nearest(
        self, tx: Transaction, space: int, version: int, limit: int, *, vector: bytes, embedder: str
    ) -> Sequence[int] | None:
        assert isinstance(tx, PostgresTransaction)
        return self._vectors.nearest(tx, space, limit, vector, embedder)

    # -- handlers of events

    async def arrivals(
        self, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int
    ) -> ArrivalPage:
        until = await settled_to(self._address, self._readers.do)
        return await self._read(lambda tx: handlers.arrivals_until(tx, lease, types, after, limit, until))

    # -- what others committed

    async def _events_of(self, ranges: Sequence[Range], types: Sequence[EventType] | None) -> Sequence[Event]:
        rows = json_rows(ranges)
        kinds = None if types is None else json_rows(int(kind) for kind in types)
        return await self._read(lambda tx: read_events(tx, tx.rows("events_between", rows=rows, types=kinds)))

    async def _last_seqs(self, conversations: Collection[int]) -> dict[int, int]:
        return await self._read(lambda tx: dict(tx.rows("last_seqs", rows=json_rows(conversations))))

    def _ring_from_elsewhere(self, channel: str, what: str) -> None:
        """Tell a channel something for the bell to hear, which finds out by itself whether it was told."""

        async def ring() -> None:
            try:
                await self._readers.do(
                    lambda line: self._address.transaction(line).rows("ring", channel=channel, told=what)
                )
            except StoreUnavailable:
                if self._bell is not None:
                    self._bell.not_tried()

        self._ringing = asyncio.ensure_future(ring())

    # -- threads

    def _open(self, writer: PostgresWriter) -> None:
        try:
            with self._address.connect() as connection:
                migrate(self._address, connection)
                row = connection.execute(self._address.statements["now"].text).fetchone()
                if row is not None:
                    self._database_clock.follow(row[0])
            writer.connect()
        except (psycopg.Error, OSError) as error:
            raise self._address.error(error) from error

    def _close(self, writer: VerbWriter | None) -> None:
        self._readers.close()
        if writer is not None:
            writer.stop()
        if self._bell is not None:
            self._bell.stop()
        self._lease.close()

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store in {self._address} is not open")

    def _publish(self, events: Sequence[Event]) -> None:
        if self._telling is not None:
            self._telling.own(events)
