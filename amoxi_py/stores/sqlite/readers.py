"""Threads that read the database file."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.sql.readers import Read, Readers
from amoxi_py.stores.sqlite.connection import SqliteTransaction, connect_to_read, store_error

_THREADS = 4


class SqliteReaders(Readers):
    """Each with a connection of its own, made at its first read."""

    def __init__(self, file: Path) -> None:
        super().__init__(_THREADS)
        self._file = file
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []

    def _attempt(self, read: Read) -> tuple[Any, Exception | None]:
        try:
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                return read(SqliteTransaction(connection)), None
            finally:
                connection.execute("COMMIT")
        except sqlite3.Error as error:
            return None, store_error(self._file, error)
        except Exception as error:  # noqa: BLE001 - it is for its caller to hear; the others go on
            return None, error

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store {str(self._file)!r} is not open")

    def _disconnect(self) -> None:
        for connection in self._connections:
            connection.close()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = connect_to_read(self._file)
            self._connections.append(connection)
        return connection
