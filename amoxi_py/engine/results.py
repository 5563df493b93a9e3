"""The one result of a call, as it is stored and told."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.settle import UNKNOWN_TEXT
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.ports.changes import CallResult

DECLINED_TEXT = "The person declined this action."
EXPIRED_TEXT = "Nobody decided in time, so this action was not done."
_CUT = re.compile(r"\n\[cut: [^\n]*\]\Z")


def settled_call(call: ToolCall, status: CallStatus, value: Any, max_result: int, text: str | None = None) -> ToolCall:
    """Return the call with its result, cut when it is longer than a model is given; `text` is its JSON, if known."""
    if text is None:
        text = encode_json(value)
    if len(text) > max_result:
        whole = value if isinstance(value, str) else text
        note = f"\n[cut: this result had {len(text)} bytes; the limit is {max_result}]"
        text = encode_json(whole[: max(max_result - 200, 0)] + note)
        while len(text) > max_result and len(whole) > 0:  # letters of other alphabets take six bytes each
            whole = whole[: len(whole) * max_result // (len(text) + 200)]
            text = encode_json(whole + note)
    return replace(call, status=status, result=text)


def is_cut(text: str) -> bool:
    """Whether the text of a result says at its end that it was too long and is not all."""
    return _CUT.search(text) is not None


def call_result(call: ToolCall) -> CallResult:
    """Return the result of a settled call as it is stored."""
    assert call.result is not None
    return CallResult(turn=call.turn, n=call.n, status=call.status, result=call.result)


def completed_event(call: ToolCall) -> NewEvent:
    """Return the event that tells of a settled call."""
    return NewEvent(type=EventType.TOOL_COMPLETED, turn=call.turn, n=call.n, subject=call)


def gone(call: ToolCall, *, interrupted: bool) -> tuple[CallStatus, Any]:
    """Return what becomes of a call whose tool exists no more."""
    text = f"The tool {call.tool!r} does not exist any more"
    if interrupted:
        return CallStatus.UNKNOWN, f"{UNKNOWN_TEXT} {text}."
    return CallStatus.FAILED, f"{text}; nothing was done."
