"""The statements of the SQLite dialect: none reads a table from end to end."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from amoxi_py.stores.sql.transaction import load_queries
from amoxi_py.stores.sqlite.store import SqliteStore

QUERIES = load_queries("amoxi_py.stores.sqlite")
SMALL = ("SCAN j", "SCAN w", "SCAN (subquery", "SCAN json_each", "SCAN CONSTANT", "SCAN worker", "SCAN sqlite_sequence")
IN_ORDER_WITH_LIMIT = {"oldest_idempotency_keys"}
OPEN_ONLY = dict.fromkeys(("count_open_runs", "find_open_runs"), "SCAN run USING INDEX run_open")
PAGES = {"list_approvals", "list_conversations", "list_runs", "newest_messages", "open_approvals"}


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
        if name in PAGES:  # what comes in the order of an index is read no further than the page goes
            assert not any("TEMP B-TREE" in one for one in plan), name
    database.close()
