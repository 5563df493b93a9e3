"""The numbered log of a conversation: stored events as readers get them, and where a reader starts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.errors import NotFound
from amoxi_py.ports.store import LogPosition
from amoxi_py.stores.sql.rows import load_calls, load_turns
from amoxi_py.stores.sql.transaction import Row, Transaction

_TYPES = {int(kind): kind for kind in EventType}


def queued_data(agent: str, conversation_id: str) -> dict[str, Any]:
    """Return what `run.queued` tells; other rows hold it."""
    return {"agent": agent, "conversation_id": conversation_id}


def find_log(
    tx: Transaction, principal: str, run_id: str | None, conversation_id: str | None, agent: str | None
) -> LogPosition:
    """Return where the log of a principal's run or conversation is."""
    if run_id is not None:
        rows = tx.rows("log_of_run", id=run_id, principal=principal, agent=agent)
        if not rows or conversation_id not in (None, rows[0][5]):
            raise NotFound("run", run_id)
        run, conversation, first_seq, last_seq, ended_seq, _ = rows[0]
        return LogPosition(
            conversation=conversation, run=run, first_seq=first_seq, last_seq=last_seq, ended_seq=ended_seq
        )
    rows = tx.rows("log_of_conversation", id=conversation_id, principal=principal, agent=agent)
    if not rows:
        raise NotFound("conversation", conversation_id or "")
    conversation, last_seq, first_seq = rows[0]
    return LogPosition(conversation=conversation, run=None, first_seq=first_seq or 1, last_seq=last_seq)


def read_log(tx: Transaction, position: LogPosition, after: int, limit: int) -> tuple[Event, ...]:
    """Return the next events; a page of nothing but types of a newer version is passed over."""
    while True:
        if position.run is None:
            rows = tx.rows("log_after", conversation=position.conversation, after=after, limit=limit)
        else:
            rows = tx.rows(
                "log_of_run_after",
                conversation=position.conversation,
                run=position.run,
                after=after,
                limit=limit,
            )
        events = read_events(tx, rows)
        if events or len(rows) < limit:
            return events
        after = rows[-1][2]


def read_events(tx: Transaction, rows: Iterable[Row]) -> tuple[Event, ...]:
    """Return stored events with what they point to; types that this version does not know are left out."""
    known = [row for row in rows if row[5] in _TYPES]
    turns = {(row[3], row[6]) for row in known if row[6] is not None and row[7] is None}
    calls_of = {(row[3], row[6]) for row in known if row[6] is not None and row[7] is not None}
    messages = {
        (run, message.turn): message
        for run, of_run in (load_turns(tx, sorted(turns)) if turns else {}).items()
        for message in of_run
    }
    calls = {
        (*place, call.n): call
        for place, of_turn in (load_calls(tx, sorted(calls_of)) if calls_of else {}).items()
        for call in of_turn
    }
    return tuple(_event(row, messages, calls) for row in known)


def _event(row: Row, messages: dict[tuple[int, int], Message], calls: dict[tuple[int, int, int], ToolCall]) -> Event:
    _, conversation, seq, run, run_id, number, turn, n, data, agent, conversation_id = row
    kind = _TYPES[number]
    subject: Message | ToolCall | None = None
    if turn is not None:
        subject = messages.get((run, turn)) if n is None else calls.get((run, turn, n))
    return Event(
        conversation=conversation,
        seq=seq,
        run=run,
        run_id=run_id,
        type=kind,
        stored=queued_data(agent, conversation_id) if kind is EventType.RUN_QUEUED else data,
        subject=subject,
    )
