"""Webhooks of runs: kept, held by one process at a time, and swept some days after they are over.

One time says when a webhook may be claimed: of one that is held it is the end of the lease, so that a claim passes by
those that are held without looking at them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from amoxi_py.domain.principal import Principal
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.ports.views import Page
from amoxi_py.ports.webhooks import HeldWebhook, Webhook
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import json_rows, read_principal
from amoxi_py.stores.sql.times import millis, millis_up, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import find_run

_LONGEST_MS = 24 * 3600 * 1000
"""Nothing is held, or put off, for longer."""
_OVER_LIFE_MS = 7 * 24 * 3600 * 1000
_SWEPT_AT_ONCE = 500


def keep_webhook(batch: Batch, run_id: str, principal: Principal, id: str, content: str, limit: int) -> Webhook:
    """Store a webhook of a run, or give the one of this id a new beginning."""
    run = find_run(batch.tx, run_id, principal, None)
    others = {other for (other,) in batch.tx.rows("ids_of_webhooks", run=run)} - {id}
    if len(others) >= limit:
        raise Conflict(
            f"the run {run_id!r} has {len(others)} webhooks, and may have no more than {limit}: remove one first",
            code="too_many_webhooks",
        )
    batch.tx.run("keep_webhook", run=run, id=id, content=content, now=batch.now)
    return Webhook(id=id, run_id=run_id, content=content, created_at=seconds(batch.now))


def find_webhook(tx: Transaction, run_id: str, principal: Principal, id: str) -> Webhook:
    """Return a webhook of a principal's run."""
    run = find_run(tx, run_id, principal, None)
    rows = tx.rows("find_webhook", run=run, id=id)
    if not rows:
        raise NotFound("webhook", id)
    return _webhook(rows[0], run_id)


def list_webhooks(tx: Transaction, run_id: str, principal: Principal, limit: int, cursor: str | None) -> Page[Webhook]:
    """Return the webhooks of a principal's run, in the order in which they came."""
    (after,) = (0,) if cursor is None else decode_cursor("webhooks", cursor, 1)
    run = find_run(tx, run_id, principal, None)
    rows = tx.rows("list_webhooks", run=run, after=after, limit=limit + 1)
    more = encode_cursor("webhooks", rows[limit - 1][0]) if len(rows) > limit else None
    return Page(items=tuple(_webhook(row, run_id) for row in rows[:limit]), next_cursor=more)


def drop_webhook(batch: Batch, run_id: str, principal: Principal, id: str) -> None:
    """Remove a webhook of a principal's run, if it is there."""
    batch.tx.run("drop_webhook", run=find_run(batch.tx, run_id, principal, None), id=id)


def due_webhooks(tx: Transaction, now: int, limit: int) -> list[int]:
    """Return the keys of those that may be claimed."""
    return [key for key, _ in tx.rows("due_webhooks", now=now, latest=now + _LONGEST_MS, limit=limit)]


class Claim:
    """One claim of a holder; done again because its answer was lost, it finds what it got."""

    def __init__(self, holder: str, lease_s: float, limit: int) -> None:
        self._holder = holder
        self._lease_s = lease_s
        self._limit = limit
        self._got: dict[int, int] = {}

    def __call__(self, batch: Batch) -> tuple[HeldWebhook, ...]:
        """Return what is held now that was not before."""
        landed = [held for held in self._held(batch, list(self._got)) if self._got[held.key] == held.fence]
        if landed:
            return tuple(landed)
        due = due_webhooks(batch.tx, batch.now, self._limit)
        if not due:
            return ()
        claimed = batch.tx.rows(
            "claim_webhooks",
            rows=json_rows(due),
            holder=self._holder,
            until=_until(batch, self._lease_s),
            now=batch.now,
            latest=batch.now + _LONGEST_MS,
        )
        mine = {key for (key,) in claimed}
        held = self._held(batch, [key for key in due if key in mine])
        self._got = {one.key: one.fence for one in held}
        gone = mine - self._got.keys()
        if gone:  # a process of a version before webhooks erased their runs
            batch.tx.run("drop_webhooks", rows=json_rows(sorted(gone)))
        return tuple(held)

    def _held(self, batch: Batch, keys: Sequence[int]) -> list[HeldWebhook]:
        rows = batch.tx.rows("webhooks_held", rows=json_rows(keys), holder=self._holder) if keys else []
        return [
            HeldWebhook(
                webhook=_webhook((key, *webhook), run_id),
                principal=read_principal(owner, facts),
                key=key,
                fence=fence,
            )
            for key, *webhook, fence, run_id, owner, facts in rows
        ]


def renew_webhooks(batch: Batch, holder: str, lease_s: float, keys: Collection[int] | None) -> frozenset[int]:
    """Hold what a holder has for so long from now, and return the keys of it."""
    some = None if keys is None else json_rows(sorted(keys))
    rows = batch.tx.rows("renew_webhooks", holder=holder, until=_until(batch, lease_s), some=some)
    return frozenset(key for (key,) in rows)


def note_delivery(batch: Batch, held: HeldWebhook, cursor: int, over: bool) -> bool:
    """Note how far a webhook was told, under its fence."""
    return bool(batch.tx.rows("note_delivery", key=held.key, fence=held.fence, cursor=cursor, over=over, now=batch.now))


def put_off_webhook(batch: Batch, held: HeldWebhook, due_at: float, over: bool) -> bool:
    """Let a webhook go until a time, with one more failure, under its fence."""
    until = min(millis_up(due_at), batch.now + _LONGEST_MS)
    return bool(
        batch.tx.rows("put_off_webhook", key=held.key, fence=held.fence, due_at=until, over=over, now=batch.now)
    )


def release_webhooks(batch: Batch, holder: str) -> None:
    """Let go all that a holder has; what it says of them afterwards is of no account."""
    batch.tx.run("release_webhooks", holder=holder, now=batch.now)


def sweep_webhooks(batch: Batch) -> bool:
    """Remove some that were over long ago; return whether there may be more."""
    before = batch.now - _OVER_LIFE_MS
    if not batch.tx.rows("webhooks_to_sweep", before=before):  # the rule: nothing is written then
        return False
    rows = batch.tx.rows("sweep_webhooks", before=before, limit=_SWEPT_AT_ONCE)
    return len(rows) == _SWEPT_AT_ONCE


def _until(batch: Batch, lease_s: float) -> int:
    return batch.now + min(millis(lease_s), _LONGEST_MS)


def _webhook(row: Row, run_id: str) -> Webhook:
    _, name, content, delivered, failures, over, created_at = row
    return Webhook(
        id=name,
        run_id=run_id,
        content=content,
        cursor=delivered,
        failures=failures,
        over=bool(over),
        created_at=seconds(created_at),
    )
