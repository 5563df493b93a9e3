"""An event as an app's own code gets it: with whose run it is of, and where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amoxi_py.domain.event import Event
from amoxi_py.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened in a run, as it is in the conversation's log.

    Attributes:
        id: Its number in the log of the conversation; with `conversation_id` it is unique in the world.
        type: Such as `approval.requested` or `run.failed`.
        run_id: The run.
        conversation_id: The conversation that the log is of.
        agent: The agent's name on the wire.
        principal: Whose run it is.
        data: What the event tells, as readers of HTTP get it.
        attempt: How often a handler of it has been called, with this time; 1 where nothing is handled.
    """

    id: int
    type: str
    run_id: str
    conversation_id: str
    agent: str
    principal: Principal
    data: Mapping[str, Any]
    attempt: int = 1


def run_event(event: Event, *, agent: str, conversation_id: str, principal: Principal, attempt: int = 1) -> RunEvent:
    """Return a stored event as an app's own code gets it."""
    return RunEvent(
        id=event.seq,
        type=event.type.label,
        run_id=event.run_id,
        conversation_id=conversation_id,
        agent=agent,
        principal=principal,
        data=event.data,
        attempt=attempt,
    )
