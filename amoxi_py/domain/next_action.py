"""What a run does next, as a pure function of its rows: taking a run up after a crash is the ordinary path."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunFailure, WaitKind
from amoxi_py.domain.tool_call import CallStatus, ToolCall


class Limits(Struct, frozen=True, kw_only=True):
    """What bounds a run: replies of its model, and crashes without a new checkpoint between them.

    A `direct` one is of one tool: it ends when its call is settled.
    """

    max_turns: int = 20
    max_attempts: int = 5
    direct: bool = False


class AskModel(Struct, frozen=True, kw_only=True):
    """Ask the model for the reply of this turn."""

    turn: int


class Work(Struct, frozen=True, kw_only=True):
    """Do something about these calls: `start` fresh ones, `resume` interrupted ones, settle `refused` ones."""

    start: tuple[ToolCall, ...] = ()
    resume: tuple[ToolCall, ...] = ()
    refused: tuple[ToolCall, ...] = ()


class Pause(Struct, frozen=True, kw_only=True):
    """Nothing can be done until something comes; `until` is the first time that counts, in seconds since 1970, or None.

    `kinds` are those of all that is waited for, each once.
    """

    until: float | None = None
    kinds: tuple[WaitKind, ...] = ()


class Finish(Struct, frozen=True, kw_only=True):
    """The run has ended; `failure` is None when it completed."""

    failure: RunFailure | None = None


Action = AskModel | Work | Pause | Finish


def next_action(
    messages: tuple[Message, ...], crashes: int, limits: Limits, now: float, patience: float = 0.0
) -> Action:
    """Return what a run does next.

    Args:
        messages: The run's own messages with their calls, in order.
        crashes: Takeovers since the last new checkpoint.
        limits: What bounds the run.
        now: The store's time in seconds since 1970.
        patience: How many seconds after its expiry an approval is taken for expired.
    """
    if crashes >= limits.max_attempts:
        return Finish(
            failure=RunFailure(
                code="max_attempts",
                message=f"the run was interrupted {crashes} times without getting any further",
            )
        )
    last = messages[-1]
    if last.role == "user":
        return AskModel(turn=last.turn + 1)
    unsettled = [call for call in last.calls if not call.status.settled]
    if unsettled:
        return _for_calls(unsettled, now, patience)
    if not last.calls or limits.direct:
        return Finish()
    if last.turn >= limits.max_turns:
        return Finish(failure=RunFailure(code="max_turns", message=f"the run took more than {limits.max_turns} turns"))
    return AskModel(turn=last.turn + 1)


def waiting(call: ToolCall, now: float) -> bool:
    """Whether the code of a started call has ended because it waits for something that has not come yet."""
    return call.status is CallStatus.STARTED and call.wait is not None and not call.wait.over(now)


def _for_calls(unsettled: list[ToolCall], now: float, patience: float) -> Action:
    start, resume, refused = [], [], []
    kinds: dict[WaitKind, None] = {}
    times = []
    for call in unsettled:
        approval = call.approval
        if call.status is CallStatus.STARTED:
            if call.wait is None or call.wait.over(now):
                resume.append(call)
                continue
            kinds[call.wait.kind] = None
            times.append(call.wait.until)
        elif approval is None or approval.decision == "approve":
            start.append(call)
        elif approval.decision is not None or approval.expired(now - patience):
            refused.append(call)
        else:
            kinds["approval"] = None
            times.append(None if approval.expires_at is None else approval.expires_at + patience)
    if start or resume or refused:
        return Work(start=tuple(start), resume=tuple(resume), refused=tuple(refused))
    return Pause(until=min((time for time in times if time is not None), default=None), kinds=tuple(kinds))
