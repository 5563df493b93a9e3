"""The life of a run: its statuses, the only ways from one to the next, and what readers see of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct, field

from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import Conflict


class RunStatus(StrEnum):
    """Where a run stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the run has ended."""
        return self in FINAL


class Trigger(StrEnum):
    """What moves a run from one status to the next."""

    CLAIM = "claim"
    TAKE_OVER = "take_over"
    RELEASE = "release"
    PAUSE = "pause"
    WAKE = "wake"
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"


FINAL = frozenset({RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED})

TRANSITIONS: dict[tuple[RunStatus, Trigger], RunStatus] = {
    (RunStatus.QUEUED, Trigger.CLAIM): RunStatus.RUNNING,
    (RunStatus.QUEUED, Trigger.CANCEL): RunStatus.CANCELLED,
    (RunStatus.RUNNING, Trigger.TAKE_OVER): RunStatus.RUNNING,  # its worker's lease expired, another one claims it
    (RunStatus.RUNNING, Trigger.RELEASE): RunStatus.QUEUED,
    (RunStatus.RUNNING, Trigger.PAUSE): RunStatus.WAITING,
    (RunStatus.RUNNING, Trigger.COMPLETE): RunStatus.COMPLETED,
    (RunStatus.RUNNING, Trigger.FAIL): RunStatus.FAILED,
    (RunStatus.RUNNING, Trigger.CANCEL): RunStatus.CANCELLED,
    (RunStatus.WAITING, Trigger.CLAIM): RunStatus.RUNNING,  # what it waited for was a time, and it has come
    (RunStatus.WAITING, Trigger.WAKE): RunStatus.QUEUED,
    (RunStatus.WAITING, Trigger.CANCEL): RunStatus.CANCELLED,
}


def next_status(status: RunStatus, trigger: Trigger) -> RunStatus:
    """Return the status that follows; raise `Conflict` if there is none."""
    try:
        return TRANSITIONS[status, trigger]
    except KeyError:
        raise Conflict(f"a {status} run does not accept {trigger!r}", code="invalid_transition") from None


WaitKind = Literal["approval", "question", "sleep", "signal", "child", "model"]


class Waiting(Struct, frozen=True, kw_only=True):
    """One thing a run waits for; `arguments` and `schema` are JSON texts, `expires_at` seconds since 1970.

    `name` is the question that is asked, the name of the signal, or the agent of the child run; `k` is the question's
    number in its call.
    """

    kind: WaitKind
    call_id: str | None = None
    tool: str | None = None
    arguments: str | None = None
    expires_at: float | None = None
    name: str | None = None
    schema: str | None = None
    k: int | None = None


class RunFailure(Struct, frozen=True, kw_only=True):
    """Why a run failed: a stable code, and a text fit for the person who asked."""

    code: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """What readers see of a run. `output` is the final text; `result` is JSON text; times are seconds since 1970.

    `waiting_for` also tells of the calls to decide about while others of the same reply still run, and what the calls
    of all runs below it wait for from outside. `usage` includes theirs. `root_id` is the run at the top, of one that
    another agent asked for. `status_at` is when it came into its status, or what runs below it began or ceased to wait;
    it is known of runs of callers over A2A that another agent did not ask for, once they are read from the store.
    """

    id: str
    agent: str
    conversation_id: str
    principal: Principal
    status: RunStatus
    output: str | None = None
    result: str | None = None
    error: RunFailure | None = None
    waiting_for: tuple[Waiting, ...] = ()
    attempt: int = 0
    usage: Usage = NO_USAGE
    created_at: float
    updated_at: float
    root_id: str | None = None
    status_at: float | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """A worker's exclusive right to one run; keys are the store's own. `fence` grows with every claim."""

    run_id: str
    run: int
    conversation: int
    worker: int
    fence: int


class Ancestor(Struct, frozen=True, kw_only=True):
    """A run above a child run; `turn` and `n` are of its call that started the next one below."""

    run: int
    run_id: str
    agent: str
    turn: int
    n: int
    created_at: float


class RunRows(Struct, frozen=True, kw_only=True):
    """All that is stored of a run, as its worker needs it; the next action is a pure function of this.

    `messages` are the run's own with their calls, in order. `steps` holds, by (turn, n) of a call, its records.
    `partial` is the id of a reply that was being streamed when the last worker stopped. `model_failures` counts
    failed model requests since the last reply. `crashes` counts takeovers since the last new checkpoint.
    `changes` is the number of the last change written under the present lease. `instructions` are what the agent's
    method said, when it was asked. `waits` holds, by (turn, n) of a call, all that it has waited for. `ancestors` are
    those of a child run, the root first. `first_seq` is the number of the run's first event.
    """

    lease: Lease
    agent: str
    conversation_id: str
    principal: Principal
    attempt: int
    crashes: int = 0
    changes: int = 0
    model_failures: int = 0
    usage: Usage = NO_USAGE
    messages: tuple[Message, ...] = ()
    steps: dict[tuple[int, int], tuple[StepRecord, ...]]
    partial: str | None = None
    instructions: str | None = None
    waits: dict[tuple[int, int], tuple[Wait, ...]] = field(default_factory=dict)
    ancestors: tuple[Ancestor, ...] = ()
    trace: str | None = None
    first_seq: int = 0
    created_at: float = 0.0
