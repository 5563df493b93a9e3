"""Handlers of events: who calls them, how far they have come, and which conversations are behind."""

from __future__ import annotations

from collections.abc import Sequence

from amoxi_py.domain.event import EventType
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.deliveries import Arrival, ArrivalPage, Behind, Delivery, HandlerLease
from amoxi_py.ports.store import WorkerKey
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import read_events
from amoxi_py.stores.sql.rows import json_rows, read_principal
from amoxi_py.stores.sql.times import millis_up, seconds
from amoxi_py.stores.sql.transaction import Transaction

_WIDTH = 13  # columns of an event as `read_events` takes them


def claim_handlers(batch: Batch, names: Sequence[str], worker: WorkerKey | None) -> tuple[HandlerLease, ...]:
    """Insert handlers that are new, and give the worker those that no living one has."""
    tx, rows = batch.tx, json_rows(names)
    known = tx.rows("handlers_to_claim", rows=rows)
    if len(known) < len(names):
        batch.flush()  # events of the same transaction came before
        tx.run("insert_handlers", rows=rows, position=tx.rows("last_event_key")[0][0])
        known = tx.rows("handlers_to_claim", rows=rows)
    if worker is None or not batch.worker_lives(worker.key):
        return ()
    free = [key for key, _, holder, _ in known if holder is None or not batch.worker_lives(holder)]
    if free:
        tx.run("claim_handlers", rows=json_rows(free), worker=worker.key)
        known = tx.rows("handlers_to_claim", rows=rows)
    return tuple(
        HandlerLease(name=name, handler=key, worker=worker.key, fence=fence)
        for key, name, holder, fence in known
        if holder == worker.key
    )


def behind(tx: Transaction, lease: HandlerLease) -> tuple[Behind, ...]:
    """Read which conversations a handler is not done with before its position."""
    _position(tx, lease)
    return tuple(
        Behind(
            conversation=conversation, seq=seq, tries=tries, again_at=None if again_at is None else seconds(again_at)
        )
        for conversation, seq, tries, again_at in tx.rows("behind", handler=lease.handler)
    )


def arrivals(
    tx: Transaction, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int
) -> ArrivalPage:
    """Read where the next events are, and none of what they tell."""
    start = _start(tx, lease, after)
    ((last, count),) = tx.rows("last_of_next_events", after=start, limit=limit)
    return _page(tx, types, start, start if last is None else last, more=count == limit)


def arrivals_until(
    tx: Transaction, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int, until: int
) -> ArrivalPage:
    """Read the same where keys are given before they are committed: up to a key that all events have come to."""
    start = _start(tx, lease, after)
    read_to = max(min(start + limit, until), start)
    return _page(tx, types, start, read_to, more=read_to < until)


def delivery(
    tx: Transaction, lease: HandlerLease, types: Sequence[EventType], conversation: int, seq: int, until: int
) -> Delivery | None:
    """Read the next event of a conversation."""
    _position(tx, lease)
    rows = tx.rows("delivery", conversation=conversation, seq=seq, until=until, types=_types(types))
    if not rows:
        return None
    (row,) = rows
    (event,) = read_events(tx, [row[:_WIDTH]])
    return Delivery(
        place=row[0], event=event, agent=row[9], conversation_id=row[10], principal=read_principal(row[13], row[14])
    )


def fall_behind(batch: Batch, lease: HandlerLease, rows: Sequence[Behind], position: int | None) -> None:
    """Store what conversations are behind with, and how far the handler has come but for those."""
    _prove(batch, lease)
    if rows:
        batch.tx.run_all(
            "fall_behind",
            [
                (
                    lease.handler,
                    one.conversation,
                    one.seq,
                    one.tries,
                    None if one.again_at is None else millis_up(one.again_at),
                )
                for one in rows
            ],
        )
    if position is not None:
        batch.tx.run("move_handler", handler=lease.handler, position=position)


def catch_up(batch: Batch, lease: HandlerLease, conversation: int, seq: int) -> None:
    """Store that a handler is done with a conversation up to an event."""
    _prove(batch, lease)
    batch.tx.run("catch_up", handler=lease.handler, conversation=conversation, seq=seq)


def _start(tx: Transaction, lease: HandlerLease, after: int | None) -> int:
    position = _position(tx, lease)
    return position if after is None else max(after, position)


def _page(tx: Transaction, types: Sequence[EventType], start: int, read_to: int, *, more: bool) -> ArrivalPage:
    rows = tx.rows("arrivals", after=start, read_to=read_to, types=_types(types)) if read_to > start else []
    found = tuple(Arrival(place=place, conversation=conversation, seq=seq) for place, conversation, seq in rows)
    return ArrivalPage(arrivals=found, read_to=read_to, more=more)


def _types(types: Sequence[EventType]) -> str:
    return json_rows(int(kind) for kind in types)


def _prove(batch: Batch, lease: HandlerLease) -> None:
    if not batch.worker_lives(lease.worker):
        raise LeaseLost(lease.name)
    if not batch.tx.rows("handler_to_move", handler=lease.handler, worker=lease.worker, fence=lease.fence):
        raise LeaseLost(lease.name)


def _position(tx: Transaction, lease: HandlerLease) -> int:
    rows = tx.rows("leased_handler", handler=lease.handler, worker=lease.worker, fence=lease.fence)
    if not rows:
        raise LeaseLost(lease.name)
    position: int = rows[0][0]
    return position
