"""Connections to the database file, their settings, and what SQLite's errors mean."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from amoxi_py.errors import AmoxiError, StoreDamaged, StoreUnavailable
from amoxi_py.stores.sql.transaction import Row, load_queries

Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]
OLDEST_SQLITE = (3, 38, 0)
_BUSY_S = 30.0
_ROWS_AT_ONCE = 16
_PREPARED = 512
_QUERIES = load_queries("amoxi_py.stores.sqlite")
_DAMAGE = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT"})


class SqliteTransaction:
    """Named statements on one connection."""

    concurrent = False

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        return self._connection.execute(_QUERIES[name], params).fetchall()

    def run(self, name: str, /, **params: Any) -> None:
        self._connection.execute(_QUERIES[name], params)

    def run_all(self, name: str, rows: Sequence[Row], /) -> None:
        for part in _parts(rows):
            self._execute_for(name, part)

    def insert_all(self, name: str, rows: Sequence[Row], /) -> list[int]:
        keys: list[int] = []
        for part in _parts(rows):
            last = self._execute_for(name, part).lastrowid
            assert last is not None
            keys.extend(range(last - len(part) + 1, last + 1))  # AUTOINCREMENT; RETURNING takes twice as long
        return keys

    def _execute_for(self, name: str, rows: Sequence[Row]) -> sqlite3.Cursor:
        sql = _for_rows(name, len(rows), len(rows[0]))
        return self._connection.execute(sql, [value for row in rows for value in row])


def _parts(rows: Sequence[Row]) -> list[Sequence[Row]]:
    if len(rows) <= _ROWS_AT_ONCE:
        return [rows]
    return [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]


@cache
def _for_rows(name: str, rows: int, columns: int) -> str:
    """Return the text of a statement for so many rows: a few texts each, so that SQLite's are prepared once."""
    row = "(" + ", ".join("?" * columns) + ")"
    return _QUERIES[name].replace(":rows", ", ".join([row] * rows))


def connect_to_write(file: Path, synchronous: Synchronous) -> sqlite3.Connection:
    """Open the database for the writer, and make it when it is missing; the caller holds the write lock.

    It is this user's alone, and SQLite gives its log the same rights.
    """
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:  # not opened on purpose: to close it again would drop the locks of this process's readers
        pass
    connection = sqlite3.connect(
        file, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=_PREPARED
    )
    try:
        for setting in (
            "auto_vacuum = INCREMENTAL",  # only counts before the first table
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            "secure_delete = ON",
            "cache_size = -32000",
            "wal_autocheckpoint = 0",  # the writer does it, in a way that a cut log file cannot hurt
            "journal_size_limit = 67108864",
        ):
            connection.execute(f"PRAGMA {setting}")
        if sys.platform == "darwin":
            connection.execute("PRAGMA fullfsync = ON")  # macOS' fsync stops at the drive's cache
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(file: Path) -> sqlite3.Connection:
    """Open an existing database for reading only."""
    return sqlite3.connect(
        f"{file.absolute().as_uri()}?mode=ro",
        uri=True,
        timeout=_BUSY_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_PREPARED,
    )


def store_error(file: Path, error: sqlite3.Error | OSError) -> AmoxiError:
    """Return the store's error for SQLite's or the system's, with the file and the way out."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if any(name.startswith(damage) for damage in _DAMAGE):
        return damaged(file, str(error))
    if name.startswith("SQLITE_FULL") or "disk is full" in str(error):
        cure = "the disk is full: make room"
    elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")) or isinstance(error, OSError):
        cure = f"the folder and its files must be readable and writable for this user: look at {str(file.parent)!r}"
    elif name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        cure = "another program holds the file: end it, or wait for it"
    else:
        cure = "nothing that was stored is lost by this; look at the disk and the system's log"
    return StoreUnavailable(f"the store {str(file)!r} cannot be used now ({error}); {cure}")


def damaged(file: Path, what: str) -> StoreDamaged:
    """Return the error for a file that cannot be used."""
    names = ", ".join(file.name + end for end in ("", "-wal", "-shm"))
    return StoreDamaged(
        f"the store's file {str(file)!r} is damaged ({what}); move {names} away to start with an empty store, "
        "or put a copy of the file in its place"
    )
