"""Reads over all principals, for who runs the app: each looks at a bounded number of rows, along an index."""

from __future__ import annotations

from typing import Any

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import FINAL, Run, RunStatus
from amoxi_py.errors import NotFound
from amoxi_py.ports.operator_store import Backlog, RunFilter
from amoxi_py.ports.views import CallView, Page
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import read_principal
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import load_call_views, load_runs

_LOOKED_AT = 5000
_COUNTED = 10_000
_NEXT = "\x01"  # behind a key it gives what no key lies before, for one holds no control character but its separator


def find_runs(tx: Transaction, wanted: RunFilter, limit: int, cursor: str | None) -> Page[Run]:
    """Return runs of all principals that fit, newest first."""
    (before,) = decode_cursor("all-runs", cursor, 1)
    look_at = limit + 1 if wanted.status is None and wanted.agent is None else max(_LOOKED_AT, limit + 1)
    *found, (last, count) = _look(tx, wanted, before, look_at, limit + 1)
    keys = [key for key, _ in found]
    if len(keys) > limit:
        return Page(items=load_runs(tx, keys[:limit]), next_cursor=encode_cursor("all-runs", keys[limit - 1]))
    more = encode_cursor("all-runs", last) if count == look_at else None
    return Page(items=load_runs(tx, keys), next_cursor=more)


def open_approvals(tx: Transaction, now: float, limit: int, cursor: str | None) -> Page[CallView]:
    """Return the calls that wait for a decision, those of the oldest run first."""
    run, turn, n = (0, 0, 0) if cursor is None else decode_cursor("all-approvals", cursor, 3)
    rows = tx.rows("open_approvals", run=run, turn=turn, n=n, now=millis(now), limit=limit + 1)
    more = encode_cursor("all-approvals", *rows[limit - 1][:3]) if len(rows) > limit else None
    return Page(items=load_call_views(tx, rows[:limit]), next_cursor=more)


def backlog(tx: Transaction, now: float) -> Backlog:
    """Return what is open, counted up to 10,000 of each."""
    at = millis(now)
    queued, running, approvals = tx.rows("backlog", now=at, limit=_COUNTED)[0]
    due = tx.rows("due_runs", now=at, limit=1)
    oldest = max((at - wake_at) / 1000 for wake_at, *_ in due) if due else 0.0
    return Backlog(queued=queued, running=running, approvals=approvals, oldest=max(oldest, 0.0))


def owner_of(tx: Transaction, run_id: str) -> Principal:
    """Return whose run it is."""
    rows = tx.rows("run_owner", id=run_id)
    if not rows:
        raise NotFound("run", run_id)
    return read_principal(*rows[0])


def _look(tx: Transaction, wanted: RunFilter, before: int, looked_at: int, limit: int) -> list[Row]:
    status = wanted.status
    where: dict[str, Any] = {
        "status": status,
        "agent": wanted.agent,
        "before": before,
        "looked_at": looked_at,
        "limit": limit,
    }
    if wanted.owner_key is not None:
        return tx.rows("find_runs_of_principal", principal=wanted.owner_key, until=wanted.owner_key + _NEXT, **where)
    if wanted.principal is not None:
        return tx.rows("find_runs_of_principal", principal=wanted.principal, until=wanted.principal + " ", **where)
    if status is None or status is RunStatus.COMPLETED:
        return tx.rows("find_runs", **where)
    return tx.rows("find_runs_that_ended_badly" if status in FINAL else "find_open_runs", **where)
