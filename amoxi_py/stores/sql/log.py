"""The numbered log of a conversation: stored events as readers get them, and where a reader starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.errors import NotFound
from amoxi_py.ports.store import LogPage, LogPosition, event_size
from amoxi_py.stores.sql.rows import load_calls, load_turns
from amoxi_py.stores.sql.transaction import Row, Transaction

_TYPES = {int(kind): kind for kind in EventType}
_BATCH = 16


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


def read_log(tx: Transaction, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
    """Return the next events; a page of nothing but types of a newer version is passed over.

    What events point to is loaded batch by batch, so that little is loaded that the page has no place for.
    """
    events: list[Event] = []
    size = 0
    while True:
        rows = _rows_after(tx, position, after, limit)
        for batch in _batches(rows):
            if size > limit_size:
                return LogPage(events=tuple(events), more=True)
            loaded = read_events(tx, batch)
            events += loaded
            size += sum(map(event_size, loaded))
        more = len(rows) == limit
        if events or not more:
            return LogPage(events=tuple(events), more=more)
        after = rows[-1][2]


def _batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Split rows of events where the reply changes: its calls are loaded all at once, and not twice for one page."""
    batch: list[Row] = []
    for row in rows:
        if len(batch) >= _BATCH and (row[3], row[6]) != (batch[-1][3], batch[-1][6]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _rows_after(tx: Transaction, position: LogPosition, after: int, limit: int) -> list[Row]:
    conversation, run = position.conversation, position.run
    if run is None:
        return tx.rows("log_after", conversation=conversation, after=after, limit=limit)
    return tx.rows("log_of_run_after", conversation=conversation, run=run, after=after, limit=limit)


def read_events(tx: Transaction, rows: Iterable[Row]) -> tuple[Event, ...]:
    """Return stored events with what they point to; types that this version does not know are left out."""
    known = [row for row in rows if row[5] in _TYPES]
    turns = {(row[3], row[6]) for row in known if row[6] is not None and row[7] is None}
    calls_of = {(row[3], row[6]) for row in known if row[6] is not None and row[7] is not None} - turns
    messages = {
        (run, message.turn): message
        for run, of_run in (load_turns(tx, sorted(turns)) if turns else {}).items()
        for message in of_run
    }
    calls = {(*place, call.n): call for place, message in messages.items() for call in message.calls}
    for place, of_turn in (load_calls(tx, sorted(calls_of)) if calls_of else {}).items():
        calls |= {(*place, call.n): call for call in of_turn}
    return tuple(_event(row, messages, calls) for row in known)


def _event(row: Row, messages: dict[tuple[int, int], Message], calls: dict[tuple[int, int, int], ToolCall]) -> Event:
    _, conversation, seq, run, run_id, number, turn, n, data, agent, conversation_id = row
    kind = _TYPES[number]
    subject: Message | ToolCall | None = None
    if turn is not None and n is None:
        message = messages.get((run, turn))
        subject = message and _without_results(message)
    elif turn is not None:
        call = calls.get((run, turn, n))
        subject = call if call is None or kind is EventType.TOOL_COMPLETED else _without_result(call)
    return Event(
        conversation=conversation,
        seq=seq,
        run=run,
        run_id=run_id,
        type=kind,
        stored=queued_data(agent, conversation_id) if kind is EventType.RUN_QUEUED else data,
        subject=subject,
    )


def _without_results(message: Message) -> Message:
    """Return a message with its calls as they were when it was completed: an event keeps no more than it tells."""
    if all(call.result is None for call in message.calls):
        return message
    return replace(message, calls=tuple(map(_without_result, message.calls)))


def _without_result(call: ToolCall) -> ToolCall:
    return call if call.result is None else replace(call, result=None)
