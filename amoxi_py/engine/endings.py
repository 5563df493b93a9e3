"""What the end of a run is made of: its calls settled, and what readers see of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Run, RunFailure, RunRows, RunStatus
from amoxi_py.domain.settle import settle
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.domain.usage import Usage


def settle_open(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls that were not settled yet, as the end of their run settles them."""
    settled = {(item.turn, item.n): item for item in settle(tuple(messages))}
    return [
        replace(call, status=item.status, result=item.result)
        for message in messages
        for call in message.calls
        if (item := settled.get((call.turn, call.n))) is not None
    ]


def end_event(failure: RunFailure | None) -> NewEvent:
    """Return the last event of a run."""
    if failure is None:
        return NewEvent(type=EventType.RUN_COMPLETED)
    data = encode_json({"error": {"code": failure.code, "message": failure.message}})
    return NewEvent(type=EventType.RUN_FAILED, data=data)


def discarding(partial: str) -> dict[str, Any]:
    """Return the parts of a change that drops what was streamed of a reply, by its id."""
    event = NewEvent(type=EventType.MESSAGE_DISCARDED, data=encode_json({"message_id": partial}))
    return {"discard": True, "events": (event,)}


def ended_run(rows: RunRows, status: RunStatus, ended_at: float, usage: Usage, **parts: Any) -> Run:
    """Return what the store would tell of a run that has ended; `parts` are its output or its error."""
    return Run(
        id=rows.lease.run_id,
        agent=rows.agent,
        conversation_id=rows.conversation_id,
        principal=rows.principal,
        status=status,
        attempt=rows.attempt,
        usage=usage,
        created_at=rows.messages[0].created_at,
        updated_at=ended_at,
        **parts,
    )
