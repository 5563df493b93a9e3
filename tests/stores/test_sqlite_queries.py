"""The statements of the SQLite dialect: none reads a table from end to end."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from amoxi_py.domain.limits import Limits
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sql.transaction import load_queries
from amoxi_py.stores.sqlite.store import SqliteStore

QUERIES = load_queries("amoxi_py.stores.sqlite")
SMALL = (
    "SCAN j",
    "SCAN w",
    "SCAN (subquery",
    "SCAN json_each",
    "SCAN CONSTANT",
    "SCAN worker",
    "SCAN sqlite_sequence",
    "SCAN passage_words VIRTUAL TABLE INDEX 0:=",  # one row, by its key
    "SCAN passage_words VIRTUAL TABLE INDEX 0:M",  # along the index of words
)
IN_ORDER_WITH_LIMIT = {"oldest_idempotency_keys"}
OPEN_ONLY = {
    "count_open_runs": ["SCAN run USING INDEX run_open", "SCAN run USING INDEX run_open_child"],
    "backlog": [
        "SCAN run USING INDEX run_leased",
        "SCAN t USING INDEX tool_call_open",
    ],
    "find_open_runs": ["SCAN run USING INDEX run_open"],
    "count_in_flight": ["SCAN run USING COVERING INDEX run_in_flight"],
}
PAGES = {
    "list_approvals",
    "list_conversations",
    "list_runs",
    "list_passages",
    "list_tasks",
    "newest_messages",
    "open_approvals",
}


async def open_store(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    await store.open(lambda events: None)
    return store


@pytest.mark.anyio
async def test_no_statement_reads_a_growing_table_from_end_to_end(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    database = sqlite3.connect(tmp_path / "amoxi.db")
    for name, sql in QUERIES.items():
        columns = re.search(r"\(([^()]*)\)\s*(AS \()?VALUES :rows", sql) or re.search(r"j \(([^)]*)\) AS \(VALUES", sql)
        values: dict[str, object] | list[object]
        if columns is not None:
            values = [1] * len(columns[1].split(","))
            sql = sql.replace(":rows", "(" + ", ".join("?" * len(values)) + ")")
        else:
            values = {found: "[]" if found == "rows" else 1 for found in re.findall(r":(\w+)", sql)}
        plan = [row[3] for row in database.execute("EXPLAIN QUERY PLAN " + sql, values)]
        scans = [one for one in plan if one.startswith("SCAN") and not one.startswith(SMALL)]
        if name not in IN_ORDER_WITH_LIMIT and scans != OPEN_ONLY.get(name):
            assert scans == [], name
        if name in PAGES:  # what comes in the order of an index is read no further than the page goes
            assert not any("TEMP B-TREE" in one for one in plan), name
    database.close()


def work_of(database: sqlite3.Connection, name: str, **values: object) -> int:
    """How many steps of SQLite's machine a statement takes."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    database.set_progress_handler(step, 1)
    try:
        database.execute(QUERIES[name], values).fetchall()
    finally:
        database.set_progress_handler(None, 1)
    return steps


@pytest.mark.anyio
async def test_finding_due_runs_costs_no_more_when_one_principal_has_queued_thousands(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = await open_store(tmp_path)
    await store.submit(submission(principal=Principal(id="user:z")))
    work: list[list[int]] = []
    for count in (100, 2000):
        many = (submission(principal=Principal(id="user:m")) for _ in range(count))
        await asyncio.gather(*(store.submit(one) for one in many))
        with closing(sqlite3.connect(tmp_path / "amoxi.db")) as database:
            now = 10**15
            by_principal = [
                work_of(database, "due_runs_by_principal", now=now, after=after, limit=2)
                for after in ("", "user:a", "user:m", "user:z")
            ]
            work.append([work_of(database, "due_runs", now=now, limit=10), *by_principal])
    await store.close()
    assert work[0] == work[1]


@pytest.mark.anyio
async def test_what_is_counted_at_the_gate_costs_no_more_when_thousands_wait(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = await open_store(tmp_path)
    work: list[list[int]] = []
    for count in (100, 2000):
        await asyncio.gather(*(store.submit(submission()) for _ in range(count)))
        with closing(sqlite3.connect(tmp_path / "amoxi.db", isolation_level=None)) as database:
            database.execute("UPDATE run SET status = 'waiting'")
            await store.submit(submission())
            values = {"rows": '["user:ann"]', "limit": 8, "day": 0, "minute": 0}
            work.append([work_of(database, "count_in_flight", limit=8), work_of(database, "standings", **values)])
    await store.close()
    assert work[0] == work[1]


@pytest.mark.anyio
async def test_what_was_used_on_days_that_are_over_is_removed(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = SqliteStore(tmp_path, limits=Limits(runs_per_day=5))
    await store.open(lambda events: None)
    with closing(sqlite3.connect(tmp_path / "amoxi.db", isolation_level=None)) as database:

        def days() -> list[int]:
            return [day for (day,) in database.execute("SELECT day FROM principal_usage ORDER BY day")]

        for _ in range(3):
            await store.submit(submission(principal=Principal(id="user:old")))
            database.execute("UPDATE principal_usage SET day = 20000, principal = principal || day || key")
        await store.submit(submission())
        assert days().count(20000) == 3
        await store.enroll("worker", 30.0)  # it sweeps
        async with asyncio.timeout(60):
            while len(days()) > 1:
                await asyncio.sleep(0.01)
        assert days()[0] > 20000
    await store.close()
