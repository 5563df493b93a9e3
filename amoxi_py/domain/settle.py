"""What becomes of a run's unsettled calls when the run ends from outside: each gets its one honest result."""

from __future__ import annotations

from msgspec import Struct

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall

STOPPED_TEXT = "This action was stopped before it was done."
HALF_DONE_TEXT = (
    "This action was stopped while it was being done, so it may have been done in part or in whole. "
    "Look it up with another tool, or ask the person, before you do it again."
)
NEVER_STARTED_TEXT = "This action was stopped before it started; nothing was done."
UNKNOWN_TEXT = (
    "The outcome is unknown: the action was interrupted, and it may or may not have been done. "
    "Do not repeat it blindly; look it up with another tool, or ask the person."
)


class Settled(Struct, frozen=True, kw_only=True):
    """The result that a call got: `result` is JSON text."""

    turn: int
    n: int
    status: CallStatus
    result: str


def settle(messages: tuple[Message, ...]) -> tuple[Settled, ...]:
    """Return a result for every unsettled call: not started or repeatable is stopped, started and unsafe is unknown."""
    return tuple(settle_call(call) for message in messages for call in message.calls if not call.status.settled)


def settle_call(call: ToolCall) -> Settled:
    """Return the result of one unsettled call, as `settle` gives it."""
    if call.status is CallStatus.OPEN:
        status, text = CallStatus.STOPPED, NEVER_STARTED_TEXT
    elif call.effect is Effect.READ_ONLY:
        status, text = CallStatus.STOPPED, STOPPED_TEXT
    elif call.effect.repeatable:
        status, text = CallStatus.STOPPED, HALF_DONE_TEXT
    else:
        status, text = CallStatus.UNKNOWN, UNKNOWN_TEXT
    return Settled(turn=call.turn, n=call.n, status=status, result=encode_json(text))
