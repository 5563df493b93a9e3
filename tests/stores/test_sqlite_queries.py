"""The statements of the SQLite dialect: none reads a table from end to end, and rows of a newer version do no harm."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sql.transaction import load_queries
from amoxi_py.stores.sqlite.store import SqliteStore

QUERIES = load_queries("amoxi_py.stores.sqlite")
SMALL = ("SCAN j", "SCAN json_each", "SCAN CONSTANT", "SCAN worker", "SCAN sqlite_sequence")
IN_ORDER_WITH_LIMIT = {"oldest_idempotency_keys"}
OPEN_ONLY = {"count_open_runs": "SCAN run USING INDEX run_open"}


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
        if name not in IN_ORDER_WITH_LIMIT and scans != [OPEN_ONLY.get(name)]:
            assert scans == [], name
    database.close()


@pytest.mark.anyio
async def test_an_event_of_a_type_that_a_newer_version_wrote_is_passed_over(tmp_path: Path) -> None:
    ann = Principal(id="user:ann")
    store = await open_store(tmp_path)
    submitted = await store.submit(
        Submission(
            run_id=new_id("run"),
            message_id=new_id("msg"),
            conversation_id=new_id("conv"),
            new_conversation=True,
            agent="a",
            principal=ann,
            text="hello",
        )
    )
    position = await store.find_log(ann, run_id=submitted.run.id)
    newer = sqlite3.connect(tmp_path / "amoxi.db", isolation_level=None)
    for seq in range(3, 6):
        newer.execute(
            "INSERT INTO event (conversation, seq, run, type) VALUES (?, ?, ?, 99)",
            (position.conversation, seq, position.run),
        )
    newer.execute("UPDATE conversation SET last_seq = 5")
    newer.close()
    await store.cancel(submitted.run.id, ann)
    assert [event.seq for event in await store.read_log(position, 0, 100)] == [1, 2, 6]
    assert [event.seq for event in await store.read_log(position, 2, 1)] == [6]
    await store.close()
    await store.close()
