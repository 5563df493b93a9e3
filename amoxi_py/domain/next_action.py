"""What a run does next, as a pure function of its rows: taking a run up after a crash is the ordinary path."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunFailure
from amoxi_py.domain.tool_call import CallStatus, ToolCall


class Limits(Struct, frozen=True, kw_only=True):
    """What bounds a run: replies of its model, and crashes without a new checkpoint between them."""

    max_turns: int = 20
    max_attempts: int = 5


class AskModel(Struct, frozen=True, kw_only=True):
    """Ask the model for the reply of this turn."""

    turn: int


class Work(Struct, frozen=True, kw_only=True):
    """Do something about these calls: `start` fresh ones, `resume` interrupted ones, settle `refused` ones."""

    start: tuple[ToolCall, ...] = ()
    resume: tuple[ToolCall, ...] = ()
    refused: tuple[ToolCall, ...] = ()


class Wait(Struct, frozen=True, kw_only=True):
    """Nothing can be done until a person decides; `until` is the first expiry, seconds since 1970, or None."""

    until: float | None = None


class Finish(Struct, frozen=True, kw_only=True):
    """The run has ended; `failure` is None when it completed."""

    failure: RunFailure | None = None


Action = AskModel | Work | Wait | Finish


def next_action(messages: tuple[Message, ...], crashes: int, limits: Limits, now: float) -> Action:
    """Return what a run does next.

    Args:
        messages: The run's own messages with their calls, in order.
        crashes: Takeovers since the last new checkpoint.
        limits: What bounds the run.
        now: The store's time in seconds since 1970, against which approvals expire.
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
        return _for_calls(unsettled, now)
    if not last.calls:
        return Finish()
    if last.turn >= limits.max_turns:
        return Finish(failure=RunFailure(code="max_turns", message=f"the run took more than {limits.max_turns} turns"))
    return AskModel(turn=last.turn + 1)


def _for_calls(unsettled: list[ToolCall], now: float) -> Action:
    start, resume, refused, open_approvals = [], [], [], []
    for call in unsettled:
        approval = call.approval
        if call.status is CallStatus.STARTED:
            resume.append(call)
        elif approval is None or approval.decision == "approve":
            start.append(call)
        elif approval.decision is not None or approval.expired(now):
            refused.append(call)
        else:
            open_approvals.append(approval)
    if start or resume or refused:
        return Work(start=tuple(start), resume=tuple(resume), refused=tuple(refused))
    expiries = [approval.expires_at for approval in open_approvals if approval.expires_at is not None]
    return Wait(until=min(expiries, default=None))
