"""Handlers of events: who calls them, which events they are not done with, and how far they have come."""

from __future__ import annotations

from collections.abc import Sequence

from amoxi_py.domain.event import EventType
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.deliveries import Delivered, Delivery, DeliveryPage, HandlerLease
from amoxi_py.ports.store import WorkerKey
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import read_events
from amoxi_py.stores.sql.rows import json_rows, read_principal
from amoxi_py.stores.sql.times import millis_up, seconds
from amoxi_py.stores.sql.transaction import Transaction

_WIDTH = 11  # columns of an event as `read_events` takes them


def claim_handlers(batch: Batch, names: Sequence[str], worker: WorkerKey | None) -> tuple[HandlerLease, ...]:
    """Insert handlers that are new, and give the worker those that no living one has."""
    tx, rows = batch.tx, json_rows(names)
    known = tx.rows("handlers", rows=rows)
    if len(known) < len(names):
        batch.flush()  # events of the same transaction came before
        tx.run("insert_handlers", rows=rows, position=tx.rows("last_event_key")[0][0])
        known = tx.rows("handlers", rows=rows)
    if worker is None or not batch.worker_lives(worker.key):
        return ()
    free = [key for key, _, holder, _ in known if holder is None or not batch.worker_lives(holder)]
    if free:
        tx.run("claim_handlers", rows=json_rows(free), worker=worker.key)
        known = tx.rows("handlers", rows=rows)
    return tuple(
        HandlerLease(name=name, handler=key, worker=worker.key, fence=fence)
        for key, name, holder, fence in known
        if holder == worker.key
    )


def deliveries(
    tx: Transaction, lease: HandlerLease, types: Sequence[EventType], after: int | None, limit: int
) -> DeliveryPage:
    """Read what a handler is not done with, among the next events."""
    position = _position(tx, lease)
    start = position if after is None else max(after, position)
    ((last, count),) = tx.rows("last_of_next_events", after=start, limit=limit)
    if last is None:
        return DeliveryPage(deliveries=(), read_to=start, more=False)
    rows = tx.rows(
        "undelivered", handler=lease.handler, after=start, read_to=last, types=json_rows(int(kind) for kind in types)
    )
    events = read_events(tx, [row[:_WIDTH] for row in rows])
    found = tuple(
        Delivery(
            place=row[0],
            event=event,
            agent=row[9],
            conversation_id=row[10],
            principal=read_principal(row[11], row[12]),
            tries=row[13] or 0,
            again_at=None if row[14] is None else seconds(row[14]),
        )
        for row, event in zip(rows, events, strict=True)
    )
    return DeliveryPage(deliveries=found, read_to=last, more=count == limit)


def settle_deliveries(batch: Batch, lease: HandlerLease, delivered: Sequence[Delivered], done_to: int) -> None:
    """Store what became of deliveries; those up to the handler's position need no rows."""
    if not batch.worker_lives(lease.worker):
        raise LeaseLost(lease.name)
    _position(batch.tx, lease)
    rows = [
        (
            lease.handler,
            one.place,
            one.tries,
            None if one.again_at is None else millis_up(one.again_at),
            int(one.done),
        )
        for one in delivered
        if one.place > done_to
    ]
    if rows:
        batch.tx.run_all("settle_deliveries", rows)
    batch.tx.run("move_handler", handler=lease.handler, done_to=done_to)
    batch.tx.run("forget_deliveries", handler=lease.handler)


def _position(tx: Transaction, lease: HandlerLease) -> int:
    rows = tx.rows("leased_handler", handler=lease.handler, worker=lease.worker, fence=lease.fence)
    if not rows:
        raise LeaseLost(lease.name)
    position: int = rows[0][0]
    return position
