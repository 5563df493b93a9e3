"""The numbered facts of a conversation's log, and how each is told to a reader.

An event is a type and a reference; its data are rendered from what it points to, by one function for the
live stream and for the stored log, so that both are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, Literal

from msgspec import Struct

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.domain.wait import Wait


class EventType(IntEnum):
    """What happened; the number is stored, the label is on the wire. Numbers are never reused."""

    RUN_QUEUED = 1
    RUN_STARTED = 2
    RUN_RESUMED = 3
    MESSAGE_DELTA = 4
    MESSAGE_COMPLETED = 5
    MESSAGE_DISCARDED = 6
    TOOL_CALLED = 7
    TOOL_PROGRESS = 8
    TOOL_COMPLETED = 9
    APPROVAL_REQUESTED = 10
    APPROVAL_DECIDED = 11
    RUN_WAITING = 12
    RUN_COMPLETED = 13
    RUN_FAILED = 14
    RUN_CANCELLED = 15
    QUESTION_ASKED = 16
    QUESTION_ANSWERED = 17
    SIGNAL_RECEIVED = 18
    HISTORY_COMPACTED = 19
    QUESTION_CLOSED = 20

    @property
    def label(self) -> str:
        """The name on the wire, such as `run.queued`."""
        return _LABELS[self]

    @property
    def ends_run(self) -> bool:
        """Whether it is the last event of its run."""
        return self in _ENDS


_NEVER = float("-inf")
_ENDS = frozenset({EventType.RUN_COMPLETED, EventType.RUN_FAILED, EventType.RUN_CANCELLED})
_LABELS = {kind: kind.name.lower().replace("_", ".", 1) for kind in EventType}


class NewEvent(Struct, frozen=True, kw_only=True):
    """An event to be stored with a change.

    `turn` and `n` point to a message or a call, and `subject` is that message or call, for the live stream: one goes
    with the other. `data` is JSON text that no other row holds. In a child run, `told_as` says whose event it is:
    the run's own, which readers of the conversation do not see; the root run's, pointing to a row of the child (such as
    the approval that is asked for); or the root run's, pointing to the root's own call (such as its progress).
    """

    type: EventType
    turn: int | None = None
    n: int | None = None
    data: str | None = None
    subject: Message | ToolCall | None = None
    told_as: Literal["own", "root", "root_call"] = "own"


class Event:
    """A stored event as readers get it: `seq` is its number in the conversation's log, `data` is what it tells.

    `hidden` is an own event of a child run, for readers of that run alone; `source` is the key of the child run whose
    row an event of the root run points to. `data` is made when it is first asked for, from the stored data (JSON text,
    or its values) and the message or call that the event points to. Most events of a process have no reader in it, so
    this is a plain class: a frozen dataclass of this size takes four times as long to make.
    """

    __slots__ = ("_told", "conversation", "hidden", "run", "run_id", "seq", "source", "stored", "subject", "type")

    def __init__(
        self,
        *,
        conversation: int,
        seq: int,
        run: int,
        run_id: str,
        type: EventType,
        stored: str | Mapping[str, Any] | None = None,
        subject: Message | ToolCall | None = None,
        source: int | None = None,
        hidden: bool = False,
    ) -> None:
        self.conversation = conversation
        self.seq = seq
        self.run = run
        self.run_id = run_id
        self.type = type
        self.stored = stored
        self.subject = subject
        self.source = source
        self.hidden = hidden
        self._told: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"Event(seq={self.seq}, type={self.type.label!r}, run_id={self.run_id!r})"

    @property
    def data(self) -> Mapping[str, Any]:
        """What the event tells."""
        if self._told is None:
            self._told = event_data(self.type, self.run_id, self.stored, self.subject)
        return self._told


def event_data(
    type: EventType,
    run_id: str,
    data: str | Mapping[str, Any] | None = None,
    subject: Message | ToolCall | None = None,
) -> dict[str, Any]:
    """Return what an event tells: the run's id, the stored data, and what it points to as it was at that moment."""
    told: dict[str, Any] = {"run_id": run_id}
    if isinstance(subject, Message):
        told["message"] = message_json(subject, as_new=True)
    elif isinstance(subject, ToolCall):
        told |= _call_data(type, subject)
    if data is not None:
        told |= decode_json(data) if isinstance(data, str) else data
    return told


def message_json(message: Message, *, now: float | None = None, as_new: bool = False) -> dict[str, Any]:
    """Return a message as readers get it; `as_new` shows its calls as they were when it was completed.

    `now` is the store's time, as in `public_status`.
    """
    return {
        "id": message.id,
        "role": message.role,
        "text": message.text,
        "files": list(message.files),
        "calls": [call_json(call, now=now, as_new=as_new) for call in message.calls],
        "status": message.status,
        "run_id": message.run_id,
        "created_at": time_text(message.created_at),
    }


def call_json(call: ToolCall, *, now: float | None = None, as_new: bool = False) -> dict[str, Any]:
    """Return a call as readers get it; `as_new` shows it as it was when the model asked for it."""
    told = {
        "call_id": call.id,
        "tool": call.tool,
        "arguments": decode_json(call.arguments),
        "status": "open" if as_new else public_status(call, now),
        "result": None if as_new or call.result is None else decode_json(call.result),
    }
    if not as_new and call.approval is not None and call.approval.arguments is not None:
        told["edited_arguments"] = decode_json(call.approval.arguments)
    if not as_new and call.approval is not None and call.approval.decision is not None:
        approval = call.approval
        told["approval"] = {"decision": approval.decision, "by": approval.by, "reason": approval.reason}
    if not as_new and call.wait is not None and call.wait.kind == "question":
        told["question"] = _question(call.wait) | _answer(call.wait)
    return told


def public_status(call: ToolCall, now: float | None = None) -> str:
    """Return a call's status as readers get it: `waiting` while it waits for a decision, an answer, a signal or a time.

    What a call asked another agent to do is being done, so such a call is `started`. `now` is the store's time; where
    that is not at hand, only what comes ends a wait.
    """
    if call.status is CallStatus.OPEN and call.approval is not None and call.approval.decision is None:
        return "waiting"
    wait = call.wait if call.status is CallStatus.STARTED else None
    if wait is not None and wait.kind != "child" and not wait.over(_NEVER if now is None else now):
        return "waiting"
    return call.status.value


def time_text(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds, such as `2026-11-29T13:31:38.042Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _call_data(type: EventType, call: ToolCall) -> dict[str, Any]:
    told: dict[str, Any] = {"call_id": call.id}
    if type in (EventType.TOOL_CALLED, EventType.APPROVAL_REQUESTED):
        told |= {"tool": call.tool, "arguments": decode_json(call.arguments)}
    if type is EventType.APPROVAL_REQUESTED and call.approval is not None:
        expires_at = call.approval.expires_at
        told["expires_at"] = None if expires_at is None else time_text(expires_at)
    if type is EventType.APPROVAL_DECIDED and call.approval is not None:
        approval = call.approval
        told |= {"decision": approval.decision, "by": approval.by, "reason": approval.reason}
        if approval.arguments is not None:
            told["arguments"] = decode_json(approval.arguments)
    if type is EventType.QUESTION_ASKED and call.wait is not None:
        told |= {"tool": call.tool} | _question(call.wait)
    if type is EventType.QUESTION_ANSWERED and call.wait is not None:
        told |= _answer(call.wait)
    if type is EventType.TOOL_COMPLETED:
        told |= {"result": None if call.result is None else decode_json(call.result), "is_error": call.is_error}
        told["status"] = public_status(call)
    return told


def _question(wait: Wait) -> dict[str, Any]:
    return {
        "k": wait.k,
        "question": wait.name,
        "schema": None if wait.schema is None else decode_json(wait.schema),
        "expires_at": None if wait.until is None else time_text(wait.until),
    }


def _answer(wait: Wait) -> dict[str, Any]:
    return {"k": wait.k, "answer": None if wait.value is None else decode_json(wait.value), "by": wait.by}
