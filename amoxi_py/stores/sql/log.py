"""The numbered log of a conversation: stored events as readers get them, and where a reader starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import NotFound
from amoxi_py.ports.views import LogPage, LogPosition, event_size
from amoxi_py.stores.sql.rows import load_calls_of_events, load_messages_of_events, load_waits
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import seen_by

_TYPES = {int(kind): kind for kind in EventType}
_COMPLETED = int(EventType.TOOL_COMPLETED)
_OF_WAITS = (int(EventType.QUESTION_ASKED), int(EventType.QUESTION_ANSWERED))
_FIRST_ROWS = 16
_MOST_ROWS = 64
_LAST = 2**31 - 1  # more than any number of a call in its reply

_Subjects = dict[tuple[int, int, int | None], Message | ToolCall]


def queued_data(agent: str, conversation_id: str) -> dict[str, Any]:
    """Return what `run.queued` tells; other rows hold it."""
    return {"agent": agent, "conversation_id": conversation_id}


def wait_reference(wait: Wait) -> str:
    """Return what is stored with an event of a question: which wait of its call it tells of."""
    return str(wait.k)


def find_log(
    tx: Transaction,
    principal: Principal,
    run_id: str | None,
    conversation_id: str | None,
    agent: str | None,
    readable: Sequence[str],
) -> LogPosition:
    """Return where the log of a principal's run or conversation is, or of one that it may read."""
    seen = seen_by(principal, readable)
    if run_id is not None:
        rows = tx.rows("log_of_run", id=run_id, agent=agent, **seen)
        if not rows or conversation_id not in (None, rows[0][5]):
            raise NotFound("run", run_id)
        run, conversation, first_seq, last_seq, ended_seq, _ = rows[0]
        return LogPosition(
            conversation=conversation, run=run, first_seq=first_seq, last_seq=last_seq, ended_seq=ended_seq
        )
    rows = tx.rows("log_of_conversation", id=conversation_id, agent=agent, **seen)
    if not rows:
        raise NotFound("conversation", conversation_id or "")
    conversation, last_seq, first_seq = rows[0]
    return LogPosition(conversation=conversation, run=None, first_seq=first_seq or 1, last_seq=last_seq)


def read_log(tx: Transaction, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
    """Return the next events, of rows that are read a few at a time: how much they point to is not known before."""
    events: list[Event] = []
    size, rows_at_once = 0, _FIRST_ROWS
    while len(events) < limit:
        asked = min(rows_at_once, limit - len(events))
        rows = _rows_after(tx, position, after, asked)
        for event in read_events(tx, rows):
            size += event_size(event)
            if events and size > limit_size:
                return LogPage(events=tuple(events), more=True)
            events.append(event)
        if len(rows) < asked:
            return LogPage(events=tuple(events), more=False)
        after = rows[-1][2]
        rows_at_once = min(2 * rows_at_once, _MOST_ROWS)
    return LogPage(events=tuple(events), more=True)


def _rows_after(tx: Transaction, position: LogPosition, after: int, limit: int) -> list[Row]:
    conversation, run = position.conversation, position.run
    if run is None:
        return tx.rows("log_after", conversation=conversation, after=after, limit=limit)
    return tx.rows("log_of_run_after", conversation=conversation, run=run, after=after, limit=limit)


def read_events(tx: Transaction, rows: Iterable[Row]) -> tuple[Event, ...]:
    """Return stored events with what they point to; types that this version does not know are left out.

    A reply's results are loaded for the events that tell them alone: they are most of what a log weighs.
    """
    known = [row for row in rows if row[5] in _TYPES]
    turns = {(_run_of(row), row[6]) for row in known if row[6] is not None and row[7] is None}
    called = {(_run_of(row), row[6], row[7], row[7]) for row in known if row[7] is not None and row[5] != _COMPLETED}
    completed = {(_run_of(row), row[6], row[7], row[7]) for row in known if row[7] is not None and row[5] == _COMPLETED}
    asked = {(run, turn, 0, _LAST) for run, turn in turns if turn > 0}
    asked |= {place for place in called if place[:2] not in turns}
    calls = load_calls_of_events(tx, sorted(asked), results=False) if asked else {}
    done = load_calls_of_events(tx, sorted(completed), results=True) if completed else {}
    subjects: _Subjects = {
        (run, message.turn, None): replace(message, calls=tuple(calls.get((run, message.turn), ())))
        for run, message in (load_messages_of_events(tx, sorted(turns)) if turns else ())
    }
    subjects |= {(*place, call.n): call for place, of_turn in calls.items() for call in of_turn}
    results: _Subjects = {(*place, call.n): call for place, of_turn in done.items() for call in of_turn}
    waits = _waits(tx, known)
    return tuple(_event(row, results if row[5] == _COMPLETED else subjects, waits) for row in known)


def _run_of(row: Row) -> int:
    """Return the run whose row an event points to."""
    run: int = row[3] if row[12] is None else row[12]
    return run


def _waits(tx: Transaction, rows: Iterable[Row]) -> dict[tuple[int, int, int, int], Wait]:
    places = {(_run_of(row), row[6], row[7], int(row[8])) for row in rows if row[5] in _OF_WAITS and row[8] is not None}
    return load_waits(tx, sorted(places)) if places else {}


def _event(row: Row, subjects: _Subjects, waits: Mapping[tuple[int, int, int, int], Wait]) -> Event:
    _, conversation, seq, run, run_id, number, turn, n, data, agent, conversation_id, hidden, source = row
    kind = _TYPES[number]
    told_from = _run_of(row)
    subject = None if turn is None else subjects.get((told_from, turn, n))
    if number in _OF_WAITS and data is not None and isinstance(subject, ToolCall):
        subject, data = replace(subject, wait=waits.get((told_from, turn, n, int(data)))), None
    return Event(
        conversation=conversation,
        seq=seq,
        run=run,
        run_id=run_id,
        type=kind,
        stored=queued_data(agent, conversation_id) if kind is EventType.RUN_QUEUED else data,
        subject=subject,
        source=source,
        hidden=bool(hidden),
    )
