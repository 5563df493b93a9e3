"""A few threads that read, each from snapshots of its own connection; no snapshot outlives its read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sqlite.connection import SqliteTransaction, connect_to_read, store_error

Read = Callable[[Transaction], Any]
_Waiting = tuple[Read, "asyncio.Future[Any]"]
_Answer = tuple["asyncio.Future[Any]", Any, Exception | None]

_THREADS = 4
_TOGETHER = 4
_KEEP_S = 0.002


class Readers:
    """Runs reads in threads; short ones that are asked for in the same turn of the loop go to a thread together."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="amoxi-read")
        self._own = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._gathered: list[_Waiting] = []

    def read(self, read: Read) -> asyncio.Future[Any]:
        """Run a read in one snapshot."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._gathered.append((read, future))
        if len(self._gathered) == 1:
            loop.call_soon(self._hand_over, loop)
        return future

    def close(self) -> None:
        """Wait for reads that go on, then disconnect; blocks."""
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered, self._gathered = self._gathered, []
        share = max(_TOGETHER, -(-len(gathered) // _THREADS))
        for start in range(0, len(gathered), share):
            part = gathered[start : start + share]
            try:
                self._pool.submit(self._read_all, loop, part)
            except RuntimeError:  # closed in the meantime
                _settle([(future, None, store_error(self._file, OSError("it is closed"))) for _, future in part])

    def _read_all(self, loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
        answers: list[_Answer] = []
        begun = time.perf_counter()
        for read, future in waiting:
            answers.append((future, *self._read(read)))
            if time.perf_counter() - begun > _KEEP_S:  # a long read does not keep its neighbours waiting
                _deliver(loop, answers)
                answers = []
                begun = time.perf_counter()
        if answers:
            _deliver(loop, answers)

    def _read(self, read: Read) -> tuple[Any, Exception | None]:
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

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = connect_to_read(self._file)
            self._connections.append(connection)
        return connection


def _deliver(loop: asyncio.AbstractEventLoop, answers: list[_Answer]) -> None:
    try:
        loop.call_soon_threadsafe(_settle, answers)
    except RuntimeError:  # the loop is closed: nobody is there to hear
        pass


def _settle(answers: list[_Answer]) -> None:
    for future, value, error in answers:
        if future.done():  # its task was cancelled while it waited
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
