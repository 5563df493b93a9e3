"""What the crash tests look at from outside: rows of the store, effects in the ledger."""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATABASE = "AMOXI_CRASH_DATABASE"
"""The variable with the address of the database; without it the store is in the folder."""
STEPS = "steps-before.json"
"""What was recorded when the last process began."""

Rows = Callable[[str], list[tuple[Any, ...]]]
"""Asks a store; `@` stands before the names of tables. There are no rows before the first migration."""


def schema_of(folder: Path) -> str:
    """Return the name of the schema of a trial, whose folder this is."""
    return f"trial_{folder.resolve().parent.name}"


def table_of(folder: Path) -> str:
    """Return the name of the app's own table of a trial, beside the store's in the database."""
    return f"book_of_{schema_of(folder).replace('-', '_')}"


def booked(folder: Path) -> list[int]:
    """Return how often each call is in the app's own table; on the file store there is none."""
    if DATABASE not in os.environ:
        return []
    return [count for (count,) in rows_of(folder)(f"SELECT count(*) FROM {table_of(folder)} GROUP BY call")]


def rows_of(folder: Path) -> Rows:
    """Return what asks the store of a trial."""
    if DATABASE in os.environ:
        return lambda statement: _ask_postgres(os.environ[DATABASE], schema_of(folder), statement)
    return lambda statement: _ask_sqlite(folder / "amoxi.db", statement)


def steps_in(rows: Rows) -> set[tuple[str, str]]:
    """Return (call id, step name) of every step outcome that is stored."""
    found = rows("SELECT r.id, s.turn, s.n, s.name FROM @step AS s JOIN @run AS r ON r.key = s.run")
    return {(f"call_{run[4:]}_{turn}_{n}", name) for run, turn, n, name in found}


def recorded_before(folder: Path) -> set[tuple[str, str]]:
    """Return the steps whose outcome was stored when the last process began."""
    return {(call, name) for call, name in json.loads((folder / STEPS).read_text("utf-8"))}


def effects(folder: Path) -> Counter[tuple[str, str]]:
    """Return how often each effect of each call happened."""
    ledger = folder / "ledger.jsonl"
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return Counter((line["call"], line["what"]) for line in map(json.loads, lines))


def _ask_sqlite(file: Path, statement: str) -> list[tuple[Any, ...]]:
    if not file.exists():
        return []
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        try:
            return db.execute(statement.replace("@", "")).fetchall()
        except sqlite3.OperationalError:  # killed before the first migration
            return []


def _ask_postgres(url: str, schema: str, statement: str) -> list[tuple[Any, ...]]:
    import psycopg  # half a second that the other store does not need

    with psycopg.connect(url) as connection:
        try:
            return connection.execute(statement.replace("@", f'"{schema}".')).fetchall()  # type: ignore[arg-type]
        except psycopg.errors.UndefinedTable:  # killed before the first migration
            return []
