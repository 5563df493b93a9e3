"""The store port in terms of two things that a dialect brings: a writer of verbs, and reads of a snapshot."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterable, Sequence
from functools import partial
from typing import TypeVar, cast

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.event import EventType
from amoxi_py.domain.file import File
from amoxi_py.domain.ids import parse_call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, Run, RunRows
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.changes import Change, History, HistoryMark
from amoxi_py.ports.deliveries import ArrivalPage, Behind, Delivery, HandlerLease
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.ports.inputs import Answer, Signal, Verdict
from amoxi_py.ports.operator_store import Backlog, RunFilter
from amoxi_py.ports.records import Record
from amoxi_py.ports.store import Submission, Submitted, WorkerKey
from amoxi_py.ports.tasks import ALL_TASKS, TaskFilter, TaskPage
from amoxi_py.ports.views import CallView, Conversation, ConversationPage, LogPage, LogPosition, Page
from amoxi_py.stores.sql import (
    admission,
    cancel,
    changes,
    claim,
    decide,
    files,
    handlers,
    log,
    operating,
    reading,
    records,
    tasks,
    views,
    waits,
    webhooks,
)
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.kept_data_verbs import KeptDataVerbs
from amoxi_py.stores.sql.readers import Readers
from amoxi_py.stores.sql.rotation import Rotation
from amoxi_py.stores.sql.rows import load_history, load_leased_runs
from amoxi_py.stores.sql.submit import knows_key
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.trees import load_usages
from amoxi_py.stores.sql.verb import Act, Touches

T = TypeVar("T")


class SqlStore(KeptDataVerbs):
    """All verbs and reads of the port but `open`, `close`, and what a dialect knows of dead workers."""

    def __init__(self, readers: Readers, keep_s: float | None = None) -> None:
        super().__init__(readers, keep_s)
        self._rotation = Rotation()

    # -- a principal's verbs

    def submit(self, submission: Submission) -> asyncio.Future[Submitted]:
        return self._put(submission)

    async def knows_key(self, submission: Submission) -> bool:
        return await self._read(lambda tx: knows_key(tx, submission, millis(self.clock.now())))

    async def count_request(self, principal: Principal) -> None:
        owner = principal.owner_key
        touches = Touches(names=(admission.name_of_limits(owner),))
        await self._perform(Act(lambda batch: admission.count_request(batch, owner), touches=touches))

    async def cancel(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        return cast(
            Run,
            await self._perform(
                Act(lambda batch: cancel.cancel(batch, run_id, principal, agent), touches=Touches(run_ids=(run_id,)))
            ),
        )

    async def decide(self, verdict: Verdict) -> tuple[Approval, CallView]:
        touches = Touches(run_ids=(verdict.run_id,))
        decided = await self._perform(Act(lambda batch: decide.decide(batch, verdict), touches=touches))
        return cast(tuple[Approval, CallView], decided)

    async def answer(self, answer: Answer) -> CallView:
        place = parse_call_id(answer.call_id)
        touches = Touches(run_ids=() if place is None else (place[0],))
        return cast(CallView, await self._perform(Act(lambda batch: waits.answer(batch, answer), touches=touches)))

    async def signal(self, signal: Signal) -> None:
        touches = Touches(run_ids=(signal.run_id,))
        await self._perform(Act(lambda batch: waits.signal(batch, signal), touches=touches))

    async def erase(self, conversation_id: str, principal: Principal, agent: str | None = None) -> int:
        found: list[int] = []
        blobs: set[str] = set()

        def erase(batch: Batch) -> int:
            try:
                found.append(cancel.erase(batch, conversation_id, principal, agent))
                blobs.update(files.erase_files(batch, found[-1]))
            except NotFound:
                if not found:  # a second pass, after a commit whose answer was lost, finds it gone
                    raise
            return found[-1]

        touches = Touches(conversation_ids=(conversation_id,))
        erased = cast(int, await self._perform(Act(erase, touches=touches)))
        await self._remove_blobs(blobs)
        return erased

    # -- files

    @abstractmethod
    async def save_file(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        """Make the bytes durable, then add their row."""

    @abstractmethod
    async def read_file(
        self, file_id: str, principal: Principal, start: int, length: int, *, readable: Sequence[str] = ()
    ) -> bytes:
        """Return a piece of the bytes."""

    async def _delete_abandoned(self) -> None:
        """Delete all files that are used nowhere and past their time."""
        after: int | None = 0
        while after is not None:
            find = partial(files.find_abandoned, after=after, now=millis(self.clock.now()))
            abandoned, after = await self._read(find)
            if abandoned:
                blobs: set[str] = set()
                await self._perform(Act(partial(_delete_files, keys=abandoned, blobs=blobs)))
                await self._remove_blobs(blobs)

    async def get_file(self, file_id: str, principal: Principal, *, readable: Sequence[str] = ()) -> StoredFile:
        return await self._read(lambda tx: files.get_file(tx, file_id, principal, readable))

    async def find_files(self, file_ids: Sequence[str], principal: Principal) -> tuple[File, ...]:
        return await self._read(lambda tx: files.find_files(tx, file_ids, principal))

    async def files_of_run(self, lease: Lease) -> tuple[str, ...]:
        return await self._read(lambda tx: files.files_of_run(tx, lease))

    async def delete_file(self, file_id: str, principal: Principal) -> None:
        blobs: set[str] = set()

        def delete(batch: Batch) -> None:
            try:
                blobs.update(files.delete_file(batch, file_id, principal))
            except NotFound:
                if not blobs:  # a second pass, after a commit whose answer was lost, finds it gone
                    raise

        await self._perform(Act(delete))
        await self._remove_blobs(blobs)

    # -- records

    async def keep_record(self, record: Record) -> None:
        touches = Touches(names=records.names_of_keeping(record))
        await self._perform(Act(lambda batch: records.keep_record(batch, record), touches=touches))

    async def find_record(self, kind: str, key: str) -> Record | None:
        return await self._read(lambda tx: records.find_record(tx, kind, key, millis(self.clock.now())))

    async def find_records(self, kind: str, group: str, *, limit: int = 100) -> tuple[Record, ...]:
        return await self._read(lambda tx: records.find_records(tx, kind, group, limit, millis(self.clock.now())))

    async def take_record(self, kind: str, key: str) -> Record | None:
        touches = Touches(names=records.names_of_taking(kind, key))
        return cast(Record | None, await self._perform(Act(records.Take(kind, key), touches=touches)))

    async def forget_records(self, kind: str, group: str) -> int:
        touches = Touches(names=records.names_of_forgetting(kind, group))
        return cast(int, await self._perform(Act(records.Forget(kind, group), touches=touches)))

    async def _delete_expired(self) -> None:
        """Delete all records that have expired, webhooks that were over long ago, and what was used on earlier days."""
        for sweep in (records.sweep_records, webhooks.sweep_webhooks):
            while await self._perform(Act(sweep)):
                pass
        while await self._read(lambda tx: admission.has_old_usage(tx, millis(self.clock.now()))):
            await self._perform(Act(admission.sweep_usage))

    # -- a worker's verbs

    async def enroll(self, worker_id: str, lease_s: float) -> WorkerKey:
        return cast(WorkerKey, await self._perform(Act(lambda batch: claim.enroll(batch, worker_id, lease_s))))

    @abstractmethod
    def renew(self, worker: WorkerKey, lease_s: float) -> None:
        """Renew a lease from any thread, and block."""

    async def retire(self, worker: WorkerKey) -> None:
        touches = Touches(worker=worker.key)
        await self._perform(Act(lambda batch: claim.retire(batch, worker), after_writes=True, touches=touches))

    async def expire_worker(self, worker_id: str) -> None:
        await self._perform(Act(lambda batch: claim.expire(batch, worker_id)))

    async def claim(
        self,
        worker: WorkerKey,
        number: int,
        limit: int,
        *,
        conversations: Sequence[str] | None = None,
        runs: Sequence[str] | None = None,
    ) -> tuple[RunRows, ...]:
        def claim_runs(batch: Batch) -> tuple[RunRows, ...]:
            return claim.claim(batch, self._rotation, worker, number, limit, conversations, runs)

        return cast(tuple[RunRows, ...], await self._perform(Act(claim_runs)))

    def write(self, change: Change) -> asyncio.Future[float | None]:
        return self._put(change)

    async def pause(self, change: Change, until: float | None, kinds: tuple[str, ...]) -> bool:
        touches = Touches(conversations=(change.lease.conversation,))
        verb = Act(lambda batch: changes.pause(batch, change, until, kinds), after_writes=True, touches=touches)
        return cast(bool, await self._perform(verb))

    async def release(self, lease: Lease, *, crashed: bool = False, rest: float = 0.0) -> None:
        touches = Touches(conversations=(lease.conversation,))
        verb = Act(lambda batch: claim.release(batch, lease, crashed, rest), after_writes=True, touches=touches)
        await self._perform(verb)

    async def load(self, lease: Lease) -> RunRows:
        def load(tx: Transaction) -> RunRows:
            if not tx.rows("leased_run", run=lease.run, worker=lease.worker, fence=lease.fence):
                raise LeaseLost(lease.run_id)
            return load_leased_runs(tx, [lease.run])[lease.run]

        return await self._read(load)

    async def history(self, lease: Lease, known: HistoryMark | None = None) -> History:
        return await self._read(lambda tx: load_history(tx, lease, known))

    async def usages(self, lease: Lease) -> tuple[Usage, ...]:
        return await self._read(lambda tx: load_usages(tx, lease))

    # -- a worker's verbs about handlers of events

    async def claim_handlers(self, names: Sequence[str], worker: WorkerKey | None) -> tuple[HandlerLease, ...]:
        claimed = await self._perform(Act(lambda batch: handlers.claim_handlers(batch, names, worker)))
        return cast(tuple[HandlerLease, ...], claimed)

    async def behind(self, lease: HandlerLease) -> tuple[Behind, ...]:
        return await self._read(lambda tx: handlers.behind(tx, lease))

    async def arrivals(
        self, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int
    ) -> ArrivalPage:
        return await self._read(lambda tx: handlers.arrivals(tx, lease, types, after, limit))

    async def delivery(
        self, lease: HandlerLease, types: Sequence[EventType], conversation: int, seq: int, until: int
    ) -> Delivery | None:
        return await self._read(lambda tx: handlers.delivery(tx, lease, types, conversation, seq, until))

    async def fall_behind(self, lease: HandlerLease, rows: Sequence[Behind], position: int | None = None) -> None:
        await self._perform(Act(lambda batch: handlers.fall_behind(batch, lease, rows, position)))

    async def catch_up(self, lease: HandlerLease, conversation: int, seq: int) -> None:
        await self._perform(Act(lambda batch: handlers.catch_up(batch, lease, conversation, seq)))

    # -- reads for the outside

    async def get_run(
        self, run_id: str, principal: Principal, agent: str | None = None, *, readable: Sequence[str] = ()
    ) -> Run:
        return await self._read(lambda tx: views.get_run(tx, run_id, principal, agent, readable))

    async def run_messages(self, run_id: str, principal: Principal, *, calls: bool = True) -> tuple[Message, ...]:
        return await self._read(lambda tx: views.run_messages(tx, run_id, principal, calls=calls))

    async def list_runs(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Run]:
        return await self._read(lambda tx: reading.list_runs(tx, principal, agent, limit, cursor))

    async def list_tasks(
        self,
        principal: Principal,
        wanted: TaskFilter = ALL_TASKS,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        return await self._read(lambda tx: tasks.list_tasks(tx, principal, wanted, limit, cursor))

    async def asking_before(self, run_id: str, principal: Principal) -> Run | None:
        return await self._read(lambda tx: tasks.asking_before(tx, run_id, principal))

    async def get_call(self, call_id: str, principal: Principal) -> CallView:
        return await self._read(lambda tx: reading.get_call(tx, call_id, principal))

    async def list_approvals(
        self, principal: Principal, now: float, *, functions: bool, limit: int = 50, cursor: str | None = None
    ) -> Page[CallView]:
        return await self._read(lambda tx: reading.list_approvals(tx, principal, now, functions, limit, cursor))

    async def list_conversations(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Conversation]:
        return await self._read(lambda tx: reading.list_conversations(tx, principal, agent, limit, cursor))

    async def read_conversation(
        self,
        conversation_id: str,
        principal: Principal,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        readable: Sequence[str] = (),
    ) -> ConversationPage:
        return await self._read(
            lambda tx: reading.read_conversation(tx, conversation_id, principal, agent, limit, cursor, readable)
        )

    async def find_log(
        self,
        principal: Principal,
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        readable: Sequence[str] = (),
    ) -> LogPosition:
        return await self._read(lambda tx: log.find_log(tx, principal, run_id, conversation_id, agent, readable))

    async def read_log(self, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
        return await self._read(lambda tx: log.read_log(tx, position, after, limit, limit_size))

    # -- reads over all principals

    async def find_runs(self, wanted: RunFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        return await self._read(lambda tx: operating.find_runs(tx, wanted, limit, cursor))

    async def open_approvals(self, now: float, *, limit: int = 50, cursor: str | None = None) -> Page[CallView]:
        return await self._read(lambda tx: operating.open_approvals(tx, now, limit, cursor))

    async def backlog(self, now: float) -> Backlog:
        return await self._read(lambda tx: operating.backlog(tx, now))

    async def owner_of(self, run_id: str) -> Principal:
        return await self._read(lambda tx: operating.owner_of(tx, run_id))

    async def secret(self, name: str, proposed: str) -> str:
        def secret(batch: Batch) -> str:
            batch.tx.run("insert_secret", name=name, value=proposed)
            return cast(str, batch.tx.rows("secret", name=name)[0][0])

        return cast(str, await self._perform(Act(secret)))

    async def busy_runs(self) -> int:
        def count(tx: Transaction) -> int:
            return cast(int, tx.rows("count_open_runs")[0][0])

        return await self._read(count)


def _delete_files(batch: Batch, keys: list[int], blobs: set[str]) -> None:
    blobs.update(files.delete_abandoned(batch, keys))
