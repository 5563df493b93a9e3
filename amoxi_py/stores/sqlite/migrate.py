"""From a folder to a database that this version can use: damage is found, missing migrations are made.

A migration only adds: tables, indexes, and columns with a default. So an older version can use what a newer one has
changed, for as long as both are there: it leaves alone what it does not know, and says so in the log.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

from amoxi_py.errors import StoreDamaged
from amoxi_py.stores.sql.migrations import Migration, load_migrations
from amoxi_py.stores.sqlite.connection import OLDEST_SQLITE, Synchronous, connect_to_write, damaged
from amoxi_py.stores.sqlite.file_lock import FileLock

log = logging.getLogger("amoxi_py.stores")

DATABASE = "amoxi.db"
LOCK = "amoxi.lock"

_MADE = b"The database beside this file was made; programs lock this file while they write.\n"
_CHECKED_AT_START = 64 * 1024 * 1024
_CREATE = (
    "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, made_at INTEGER NOT NULL)"
)


def open_database(file: Path, lock: FileLock, synchronous: Synchronous) -> sqlite3.Connection:
    """Return the writer's connection to a database that is whole and up to date; the caller holds `lock`.

    Raises:
        StoreDamaged: when the file is no whole database, or SQLite is too old for it.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise StoreDamaged(
            f"SQLite {sqlite3.sqlite_version} is too old, {oldest} or newer is needed; use a newer Python or system"
        )
    refuse_emptied(file, lock)
    connection = connect_to_write(file, synchronous)
    try:
        if connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone() is None:
            raise StoreDamaged("this Python's SQLite has no FTS5, its search for words; use another Python or system")
        _check(file, connection)
        _migrate(file, connection)
    except BaseException:
        connection.close()
        raise
    if not lock.note:
        lock.note = _MADE
    return connection


def migrations() -> list[Migration]:
    """Return all migrations in order: number, name, SQL."""
    return load_migrations("amoxi_py.stores.sqlite")


def refuse_emptied(file: Path, lock: FileLock) -> None:
    """Raise `StoreDamaged` for a file that lost all: SQLite takes it for a new database and throws its log away."""
    log = file.with_name(file.name + "-wal")
    empty = not file.exists() or file.stat().st_size == 0
    if empty and log.exists() and log.stat().st_size > 0:
        raise damaged(file, "it is empty or missing, but its log is there")
    if empty and file.exists() and lock.note:
        raise damaged(file, "it is empty")


def _check(file: Path, connection: sqlite3.Connection) -> None:
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if file.stat().st_size <= _CHECKED_AT_START:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise damaged(file, " ".join(found.split()))


def _migrate(file: Path, connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_CREATE)
        made = {number for (number,) in connection.execute("SELECT number FROM migration")}
        known = migrations()
        newer = made - {number for number, _, _ in known}
        if newer:
            log.warning(
                "the store %r was changed by a newer version (migration %d); this one uses what it knows of it, "
                "go back to the newer one soon",
                str(file),
                max(newer),
            )
        for number, name, sql in known:
            if number not in made:
                for statement in _statements(sql):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO migration VALUES (?, ?, ?)", (number, name, time.time_ns() // 1_000_000)
                )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _statements(sql: str) -> list[str]:
    """Cut a script into statements; `executescript` would commit what was begun."""
    statements, part = [], ""
    for line in sql.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements
