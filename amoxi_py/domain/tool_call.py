"""One call of a tool that a model asked for: what is stored of it, and how far it got."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.wait import Wait


class Effect(StrEnum):
    """What running a tool again may do: nothing, nothing new, or harm."""

    READ_ONLY = "read_only"
    IDEMPOTENT = "idempotent"
    UNSAFE = "unsafe"

    @property
    def repeatable(self) -> bool:
        """Whether an interrupted call may run again without asking."""
        return self is not Effect.UNSAFE


class CallStatus(StrEnum):
    """How far a call got; all but `open` and `started` are final. Readers see `waiting` for open with an approval."""

    OPEN = "open"
    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    DECLINED = "declined"
    STOPPED = "stopped"
    UNKNOWN = "unknown"

    @property
    def settled(self) -> bool:
        """Whether the call has its one result."""
        return self is not CallStatus.OPEN and self is not CallStatus.STARTED


class ToolCall(Struct, frozen=True, kw_only=True):
    """A stored call. `arguments` and `result` are JSON texts; `tries` counts starts, `failures` failed tries.

    `wait` is the last thing that it waited for, which it may still do while its status is `started`.
    """

    id: str
    turn: int
    n: int
    tool: str
    arguments: str
    effect: Effect
    status: CallStatus = CallStatus.OPEN
    tries: int = 0
    failures: int = 0
    result: str | None = None
    approval: Approval | None = None
    wait: Wait | None = None

    @property
    def is_error(self) -> bool:
        """Whether the result tells of anything but success."""
        return self.status.settled and self.status is not CallStatus.DONE

    @property
    def concerns_people(self) -> bool:
        """Whether somebody has to do something about it, or had to: a decision, or an answer to its last question."""
        return self.approval is not None or (self.wait is not None and self.wait.kind == "question")

    @property
    def effective_arguments(self) -> str:
        """The arguments to run with: the ones a person edited, else the model's."""
        if self.approval is not None and self.approval.arguments is not None:
            return self.approval.arguments
        return self.arguments


class StepRecord(Struct, frozen=True, kw_only=True):
    """The one recorded outcome of a step: `value` is the codec's JSON text; `failed` when it is an error."""

    name: str
    value: str
    failed: bool = False
