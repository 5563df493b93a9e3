"""What the engine needs of durable storage: rows of runs, and the verbs that change them.

Every verb is one transaction: it happens whole, or not at all, and it can be sent twice: the second time it finds its
own work and answers the same, because the answer to a commit can be lost. What is committed is durable. A worker's
writes carry its `Lease`; one that is not current is refused with `LeaseLost` and changes nothing. Reads for the outside
take the principal, and someone else's things are not found. Any verb raises `StoreUnavailable` when the
database cannot be used; nothing that was stored is lost by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, Run, RunRows
from amoxi_py.domain.usage import Usage
from amoxi_py.ports.changes import Change, History, HistoryMark
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.deliveries import ArrivalPage, Behind, Delivery, HandlerLease
from amoxi_py.ports.files import FileStore
from amoxi_py.ports.inputs import Answer, Signal, Verdict
from amoxi_py.ports.listening import EventListener, GapListener, Interest
from amoxi_py.ports.measures import MeasuredStore
from amoxi_py.ports.passages import PassageStore
from amoxi_py.ports.records import RecordStore
from amoxi_py.ports.tasks import TaskStore
from amoxi_py.ports.transactions import TransactionStore
from amoxi_py.ports.views import CallView, Conversation, ConversationPage, LogPage, LogPosition, Page
from amoxi_py.ports.webhooks import WebhookStore

OnBusy = Literal["replace", "queue", "reject"]


class WorkerKey(Struct, frozen=True, kw_only=True):
    """A worker that is enrolled: its public id (new at each start) and the store's key of it."""

    id: str
    key: int


class Submission(Struct, frozen=True, kw_only=True):
    """A message that becomes a run. The engine makes all ids, so that it can be sent twice.

    `digest` is a hash of the request's content: the same idempotency key with another digest is refused. `claim_by` is
    a worker of this process with a free place. `trace` is where the run's spans belong (W3C Trace Context). `reply` is
    the run's first one, with a call that has started, where no model has to be asked: it is stored when the run is
    claimed in the same commit.

    A `new_conversation` has an id that was made for it, so it cannot be there. One that the submission `begins` when it
    is not there has an id that others may give too, at the same moment.
    `key_scope` is what the idempotency key is unique in, for its principal, in place of the agent.
    """

    run_id: str
    message_id: str
    conversation_id: str
    new_conversation: bool
    begins: bool = False
    agent: str
    principal: Principal
    text: str
    files: tuple[str, ...] = ()
    idempotency_key: str | None = None
    key_scope: str | None = None
    digest: str = ""
    on_busy: OnBusy = "replace"
    claim_by: WorkerKey | None = None
    trace: str | None = None
    reply: Message | None = None

    @property
    def may_replace(self) -> bool:
        """Whether it takes the place of what is open in its conversation, if there is anything."""
        return self.on_busy == "replace" and not self.new_conversation


class Submitted(Struct, frozen=True, kw_only=True):
    """The run of a submission.

    Attributes:
        run: It.
        rows: Its rows, when it was claimed in the same commit.
        created: False for a repeated key.
        began: Whether its conversation was begun by it, so that nothing was said before it.
        busy: Whether an earlier run of its conversation was open.
    """

    run: Run
    rows: RunRows | None = None
    created: bool = True
    began: bool = False
    busy: bool = False


class Store(FileStore, MeasuredStore, PassageStore, RecordStore, TaskStore, TransactionStore, WebhookStore, Protocol):
    """Runs, conversations, their logs, files, passages, records and webhooks, durably.

    Events are given to the listener of `open`, on the event loop, in the order of each conversation's log and after
    they are durable: all that this process commits, and of others at least those of conversations that `interest` has
    (without an `interest`, all). Those of others may arrive a moment later (10 ms on SQLite).

    A process that was stopped for a while may find thousands of events of others that it has not told. In their place
    `on_gap` is called then, on the event loop: who follows a log reads it anew, who executes a run looks at its lease.
    """

    @property
    def clock(self) -> Clock:
        """The clock whose `now` the times in rows are of, the same for all processes; once the store is open.

        Its `running` is this machine's own.
        """
        ...

    async def open(
        self, listener: EventListener, on_gap: GapListener | None = None, interest: Interest | None = None
    ) -> None:
        """Connect, migrate when needed (under one lock), and start to listen.

        Raises:
            StoreDamaged: when what is there cannot be used; the message names it and the way out.
            StoreUnavailable: when it cannot be reached.
        """
        ...

    async def close(self) -> None:
        """Finish what was accepted, then disconnect. Nothing may be called after it."""
        ...

    # -- a principal's verbs

    def submit(self, submission: Submission) -> asyncio.Future[Submitted]:
        """Store a message and its run.

        An idempotency key is looked up before all else. A busy conversation queues the run behind, cancels what is
        open in it (`replace`; but only queues when an open run waits for somebody else than the asker), or refuses.
        Events: `run.queued`, `message.completed`, and when it was claimed `run.started` and what tells of its `reply`.

        Raises:
            NotFound: the conversation is not this principal's with this agent, or a file is not this principal's.
            Conflict: the key was used with another body (`idempotency_key_reused`), or the conversation is busy and the
                submission says `reject` (`conversation_busy`).
            TooMany: the store's limits do not admit one more run now (`domain.limits.REFUSALS`). That is found out
                after the key, and before anything of the conversation is touched.
        """
        ...

    async def knows_key(self, submission: Submission) -> bool:
        """Whether a run is known under the idempotency key of a submission; a read of what is committed."""
        ...

    async def count_request(self, principal: Principal) -> None:
        """Count something that a principal asks for and that becomes no run, where requests are limited.

        When the answer to the commit is lost, it may count twice.

        Raises:
            TooMany: the principal has asked as often as it may in a minute (`too_many_requests`); nothing is counted.
        """
        ...

    async def cancel(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """End a run and all below it now, whoever executes them, and return it; one that had ended stays unchanged.

        The fence is raised, open and started calls get the results of `settle`, stored deltas become a message marked
        stopped, the terminal event is logged. The next run of the conversation may be claimed when the old worker has
        released this one, or 1 s later.

        Raises:
            NotFound: no such run of this principal (and agent, when given).
        """
        ...

    async def decide(self, verdict: Verdict) -> tuple[Approval, CallView]:
        """Record the first decision about an open call and wake its run; return what is recorded.

        The same decision again returns the recorded one.

        Raises:
            NotFound: no such approval for this principal (neither owner nor approver).
            Forbidden: the owner, who is not the approver.
            Conflict: decided otherwise (`already_decided`), expired (`approval_expired`), or its run or call has ended
                (`approval_closed`).
        """
        ...

    async def answer(self, answer: Answer) -> CallView:
        """Record the first answer to the question of a call (its wait `k`) and wake its run; return the call with it.

        The same answer again returns the recorded one. Event: `question.answered`.

        Raises:
            NotFound: no such question of this principal, who owns the run.
            Conflict: answered otherwise (`already_answered`), or its time is over or its run or call has ended
                (`question_closed`).
        """
        ...

    async def signal(self, signal: Signal) -> None:
        """Give a signal to the oldest open wait for its name in a run, which wakes it, or keep it for the next one.

        One to a root run is for the runs below it too: for a wait of its own first. Event: `signal.received`.

        Raises:
            NotFound: no such run of this principal (and agent, when given).
            Conflict: `run_ended`, `too_many_signals` (1000 are kept), `idempotency_key_reused` (with another payload).
        """
        ...

    async def erase(self, conversation_id: str, principal: Principal, agent: str | None = None) -> int:
        """Cancel what runs in a conversation and delete it with all that belongs to it; idempotency keys stay.

        Files that are used in it alone are deleted too, and their space is given back.

        Returns the key that the conversation had in its events.
        Every process hears `run.cancelled` of the runs that were open. No read finds anything any more.

        Raises:
            NotFound: no such conversation of this principal.
        """
        ...

    # -- a worker's verbs

    async def enroll(self, worker_id: str, lease_s: float) -> WorkerKey:
        """Register a worker with a lease from now. The id must be new at each process start."""
        ...

    def renew(self, worker: WorkerKey, lease_s: float) -> None:
        """Extend the worker's lease from now; blocks, and may be called from any thread.

        Raises:
            LeaseLost: it had expired, or is gone. An expired lease cannot be renewed, even if nobody took over.
        """
        ...

    async def retire(self, worker: WorkerKey) -> None:
        """Take a worker off the list; runs that still name it are handed over at once, not counted as crashes."""
        ...

    async def expire_worker(self, worker_id: str) -> None:
        """End the lease of a worker (its public id) whose process is surely dead: its runs are due as after a crash."""
        ...

    async def claim(
        self,
        worker: WorkerKey,
        number: int,
        limit: int,
        *,
        conversations: Sequence[str] | None = None,
        runs: Sequence[str] | None = None,
    ) -> tuple[RunRows, ...]:
        """Lease up to `limit` runs that are due; with `conversations` or `runs` (ids) only of those, oldest first.

        Due are: queued at the head of their conversation, waiting for a time that has come, and running under a worker
        whose lease expired (one more crash and attempt), which come first. When there are more than `limit`, half of
        it goes to the oldest and half to one run each of the next principals in rotation.

        `number` grows by one with each claim of a worker; a repeated number returns what that claim got. Events:
        `run.started` at a run's first claim, else `run.resumed`.
        """
        ...

    async def load(self, lease: Lease) -> RunRows:
        """Read a leased run's rows anew; raise `LeaseLost` when the lease is not current."""
        ...

    async def history(self, lease: Lease, known: HistoryMark | None = None) -> History:
        """Read the messages of the conversation's earlier runs, with their calls, in order; all of them have ended.

        Those that the newest summary of the thread stands for are left out, and those that are `known` by an earlier
        history of the same conversation, if there is no newer summary. A child run is a thread of its own, so it has no
        earlier ones.

        Raises:
            LeaseLost: the run was erased.
        """
        ...

    async def usages(self, lease: Lease) -> tuple[Usage, ...]:
        """Return what each run above and the run itself have used, the root first, each with all below; `LeaseLost`."""
        ...

    def write(self, change: Change) -> asyncio.Future[float | None]:
        """Add a change to a leased run; it takes its place in the order of changes at the call, not at the await.

        Returns when it was stored, in seconds since 1970, or None when it had been stored before.
        Changes of many runs that wait at the same moment share a commit; a refused one leaves the others alone.
        A change that adds a message, a result, a step or a wait sets the run's crashes to 0.

        Raises:
            LeaseLost: the lease is not current, or the run has ended.
            StoreUnavailable: also when a change before it has not been stored.
            Conflict: a call that should expire was decided about in time (`already_decided`); read the rows anew.
        """
        ...

    async def pause(self, change: Change, until: float | None, kinds: tuple[str, ...]) -> bool:
        """Store a change and let the run wait, without a worker, until a decision or a time (seconds since 1970).

        Looks again in the same transaction: when an approval of an open call was decided already, when the last wait of
        a started call is over by a value, or when a call that waits for a child was settled by the child's end, nothing
        waits and False says "go on" (the change is stored all the same, but for its events). Event: `run.waiting`. What
        `write` refuses is refused here too.
        """
        ...

    async def release(self, lease: Lease, *, crashed: bool = False, rest: float = 0.0) -> None:
        """Say that no code of this run is executed here any more.

        A running one is queued again, for anybody: after `rest` seconds (less than a minute) and not counted as a
        crash, or, when it `crashed` (an error that nobody expected ended its execution), about 1 s later and as one
        more crash and attempt, like a takeover.
        After a cancel the next run of the conversation becomes claimable. Anything else is left as it is.
        """
        ...

    # -- a worker's verbs about handlers of events

    async def claim_handlers(self, names: Sequence[str], worker: WorkerKey | None) -> tuple[HandlerLease, ...]:
        """Take note of handlers, lease those that no living worker has, and return all that this worker has.

        A handler that was not known begins after the events that are there. It is had until the worker retires or its
        lease expires. Without a worker none is leased.
        """
        ...

    async def behind(self, lease: HandlerLease) -> tuple[Behind, ...]:
        """Return the conversations that a handler is not done with before the place where it stands.

        Raises:
            LeaseLost: the lease is not current; also below.
        """
        ...

    async def arrivals(
        self, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int
    ) -> ArrivalPage:
        """Read where the next events of these types are, after a place or after where the handler stands.

        It looks at `limit` events of any type. Each conversation's come in the order of its log.
        """
        ...

    async def delivery(
        self, lease: HandlerLease, types: Sequence[EventType], conversation: int, seq: int, until: int
    ) -> Delivery | None:
        """Return the first event of these types in a conversation, from a number of its log up to a place of all.

        Events of erased conversations are gone.
        """
        ...

    async def fall_behind(self, lease: HandlerLease, rows: Sequence[Behind], position: int | None = None) -> None:
        """Note what conversations are behind with, and that the handler has come so far but for those.

        A row for a conversation takes the place of the one before it, unless that one is further on.
        """
        ...

    async def catch_up(self, lease: HandlerLease, conversation: int, seq: int) -> None:
        """Note that a conversation is not behind any more, if it was not behind with more than up to this number."""
        ...

    # -- reads for the outside

    async def get_run(
        self, run_id: str, principal: Principal, agent: str | None = None, *, readable: Sequence[str] = ()
    ) -> Run:
        """Return the principal's run; raise `NotFound`.

        `readable` names agents of which the principal may also read what others of its tenant own; also below.
        """
        ...

    async def run_messages(self, run_id: str, principal: Principal, *, calls: bool = True) -> tuple[Message, ...]:
        """Return all messages of the principal's run, in order, with their calls or without; raise `NotFound`."""
        ...

    async def list_runs(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Run]:
        """Return the principal's runs, newest first; raise `InvalidRequest` for a cursor that is none."""
        ...

    async def get_call(self, call_id: str, principal: Principal) -> CallView:
        """Return a call that the principal owns or may decide about; raise `NotFound`."""
        ...

    async def list_approvals(
        self, principal: Principal, now: float, *, functions: bool, limit: int = 50, cursor: str | None = None
    ) -> Page[CallView]:
        """Return the calls that wait for a decision of this principal and have not expired at `now`, oldest run first.

        With `functions` those are among them, of the principal's tenant, about which a function has to be asked.

        Raises:
            InvalidRequest: the cursor is none.
        """
        ...

    async def list_conversations(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Conversation]:
        """Return the principal's conversations, newest first."""
        ...

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
        """Return the newest messages of a conversation (a cursor gives older ones), oldest first; raise `NotFound`."""
        ...

    async def find_log(
        self,
        principal: Principal,
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        readable: Sequence[str] = (),
    ) -> LogPosition:
        """Return where the log of a run or of a conversation is; raise `NotFound`."""
        ...

    async def read_log(self, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
        """Return the next events with `seq > after`; a finished message stands in the place of its deltas.

        A page ends before the event that would be one more than `limit`, or would bring the sum of their `event_size`
        over `limit_size`. One event is always there when the log has one, however large it is.
        """
        ...

    async def secret(self, name: str, proposed: str) -> str:
        """Return the app's stored secret of this name; the first one proposed is kept."""
        ...
