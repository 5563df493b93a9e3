"""The tasks of a caller over A2A: runs that no other run asked for, in the order of the times of their statuses."""

from __future__ import annotations

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.ports.tasks import TaskFilter, TaskPage
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis_up
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import find_run, load_runs

_ASKS = frozenset({"approval", "question"})


def list_tasks(tx: Transaction, principal: Principal, wanted: TaskFilter, limit: int, cursor: str | None) -> TaskPage:
    """Return a page of those that are wanted, and how many there are."""
    after = decode_cursor("tasks", cursor, 2)
    owner = principal.owner_key
    asking = [] if wanted.asking is None else [key for (key,) in tx.rows("tasks_that_ask", principal=owner, since=0)]
    where = {
        "principal": owner,
        "since": 0 if wanted.updated_after is None else max(millis_up(wanted.updated_after), 0),
        "statuses": json_rows([status.value for status in wanted.statuses]),
        "asking": wanted.asking,
        "begun": wanted.begun,
        "asking_ones": json_rows(asking),
    }
    rows: list[Row]
    if wanted.conversation_id is None:
        status_at, before = after
        rows = tx.rows("list_tasks", status_at=status_at, before=before, limit=limit + 1, **where)
        total: int = tx.rows("count_tasks", **where)[0][0]
    else:
        found = tx.rows("tasks_of_conversation", conversation=wanted.conversation_id, **where)
        rows = [row for row in found if (row[1], row[0]) < after][: limit + 1]
        total = len(found)
    more = encode_cursor("tasks", rows[limit - 1][1], rows[limit - 1][0]) if len(rows) > limit else None
    return TaskPage(items=load_runs(tx, [row[0] for row in rows[:limit]]), next_cursor=more, total=total)


def asking_before(tx: Transaction, run_id: str, principal: Principal) -> Run | None:
    """Return what asks before a principal's run in its conversation; raise `NotFound`."""
    run = find_run(tx, run_id, principal, None)
    before = load_runs(tx, [key for (key,) in tx.rows("waiting_before", run=run)])
    return next((one for one in before if any(waiting.kind in _ASKS for waiting in one.waiting_for)), None)
