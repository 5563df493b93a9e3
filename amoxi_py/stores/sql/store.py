"""The store port in terms of two things that a dialect brings: a writer of verbs, and reads of a snapshot."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, Run, RunRows
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.operator_store import RunFilter
from amoxi_py.ports.store import (
    CallView,
    Change,
    Conversation,
    ConversationPage,
    LogPage,
    LogPosition,
    Page,
    Submission,
    Submitted,
    Verdict,
    WorkerKey,
)
from amoxi_py.stores.sql import cancel, changes, claim, decide, log, operating, reading, views
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import load_leased_runs, load_messages
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.verb import Act, Verb

T = TypeVar("T")


class SqlStore(ABC):
    """All verbs and reads of the port but `open`, `close`, and what a dialect knows of dead workers."""

    @abstractmethod
    def _put(self, verb: Verb) -> asyncio.Future[Any]:
        """Queue a verb for a transaction that others may share; the future has its value when it is durable."""

    async def _perform(self, verb: Verb) -> Any:
        return await self._put(verb)

    @abstractmethod
    def _perform_blocking(self, verb: Verb) -> Any:
        """Do the same from any thread, and block."""

    @abstractmethod
    async def _read(self, read: Callable[[Transaction], T]) -> T:
        """Read from one snapshot of what is committed."""

    # -- a principal's verbs

    def submit(self, submission: Submission) -> asyncio.Future[Submitted]:
        return self._put(submission)

    async def cancel(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        return cast(Run, await self._perform(Act(lambda batch: cancel.cancel(batch, run_id, principal, agent))))

    async def decide(self, verdict: Verdict) -> tuple[Approval, CallView]:
        decided = await self._perform(Act(lambda batch: decide.decide(batch, verdict)))
        return cast(tuple[Approval, CallView], decided)

    async def erase(self, conversation_id: str, principal: Principal, agent: str | None = None) -> int:
        found: list[int] = []

        def erase(batch: Batch) -> int:
            try:
                found.append(cancel.erase(batch, conversation_id, principal, agent))
            except NotFound:
                if not found:  # a second pass, after a commit whose answer was lost, finds it gone
                    raise
            return found[-1]

        return cast(int, await self._perform(Act(erase)))

    # -- a worker's verbs

    async def enroll(self, worker_id: str, lease_s: float) -> WorkerKey:
        return cast(WorkerKey, await self._perform(Act(lambda batch: claim.enroll(batch, worker_id, lease_s))))

    def renew(self, worker: WorkerKey, lease_s: float) -> None:
        self._perform_blocking(Act(lambda batch: claim.renew(batch, worker, lease_s)))

    async def retire(self, worker: WorkerKey) -> None:
        await self._perform(Act(lambda batch: claim.retire(batch, worker), after_writes=True))

    async def claim(
        self,
        worker: WorkerKey,
        number: int,
        limit: int,
        *,
        conversations: Sequence[str] | None = None,
        runs: Sequence[str] | None = None,
    ) -> tuple[RunRows, ...]:
        claimed = await self._perform(Act(lambda batch: claim.claim(batch, worker, number, limit, conversations, runs)))
        return cast(tuple[RunRows, ...], claimed)

    def write(self, change: Change) -> asyncio.Future[float | None]:
        return self._put(change)

    async def pause(self, change: Change, until: float | None, kinds: tuple[str, ...]) -> bool:
        verb = Act(lambda batch: changes.pause(batch, change, until, kinds), after_writes=True)
        return cast(bool, await self._perform(verb))

    async def release(self, lease: Lease, *, crashed: bool = False) -> None:
        await self._perform(Act(lambda batch: claim.release(batch, lease, crashed), after_writes=True))

    async def load(self, lease: Lease) -> RunRows:
        def load(tx: Transaction) -> RunRows:
            if not tx.rows("leased_run", run=lease.run, worker=lease.worker, fence=lease.fence):
                raise LeaseLost(lease.run_id)
            return load_leased_runs(tx, [lease.run])[lease.run]

        return await self._read(load)

    async def history(self, lease: Lease) -> tuple[Message, ...]:
        def history(tx: Transaction) -> tuple[Message, ...]:
            runs = [run for (run,) in tx.rows("earlier_runs", conversation=lease.conversation, run=lease.run)]
            messages = load_messages(tx, runs) if runs else {}
            return tuple(message for run in runs for message in messages.get(run, ()))

        return await self._read(history)

    # -- reads for the outside

    async def get_run(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        return await self._read(lambda tx: views.get_run(tx, run_id, principal, agent))

    async def run_messages(self, run_id: str, principal: Principal) -> tuple[Message, ...]:
        return await self._read(lambda tx: views.run_messages(tx, run_id, principal))

    async def list_runs(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Run]:
        return await self._read(lambda tx: reading.list_runs(tx, principal, agent, limit, cursor))

    async def get_call(self, call_id: str, principal: Principal) -> CallView:
        return await self._read(lambda tx: reading.get_call(tx, call_id, principal))

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
    ) -> ConversationPage:
        return await self._read(
            lambda tx: reading.read_conversation(tx, conversation_id, principal, agent, limit, cursor)
        )

    async def find_log(
        self,
        principal: Principal,
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
    ) -> LogPosition:
        return await self._read(lambda tx: log.find_log(tx, principal.id, run_id, conversation_id, agent))

    async def read_log(self, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
        return await self._read(lambda tx: log.read_log(tx, position, after, limit, limit_size))

    # -- reads over all principals

    async def find_runs(self, wanted: RunFilter, *, limit: int = 50, cursor: str | None = None) -> Page[Run]:
        return await self._read(lambda tx: operating.find_runs(tx, wanted, limit, cursor))

    async def open_approvals(self, now: float, *, limit: int = 50, cursor: str | None = None) -> Page[CallView]:
        return await self._read(lambda tx: operating.open_approvals(tx, now, limit, cursor))

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
