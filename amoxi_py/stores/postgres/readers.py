"""Threads that read the database."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.sql.readers import Read, Readers


class PostgresReaders(Readers):
    """Each with a connection of its own; a read that outlives its connection begins anew."""

    def __init__(self, address: Address, threads: int) -> None:
        super().__init__(threads)
        self._address = address
        self._own = threading.local()
        self._lines: set[Line] = set()

    async def do(self, work: Callable[[Line], Any]) -> Any:
        """Do something else with a line."""
        try:
            future = self._pool.submit(self._attempt_on, work)
        except RuntimeError:
            raise self._closed() from None
        value, error = await asyncio.wrap_future(future)
        if error is not None:
            raise error
        return value

    def _attempt(self, read: Read) -> tuple[Any, Exception | None]:
        return self._attempt_on(partial(self._snapshot, read))

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store in {self._address} is not open")

    def _disconnect(self) -> None:
        for line in self._lines:
            line.close()

    def _snapshot(self, read: Read, line: Line) -> Any:
        tx = self._address.transaction(line)
        with line.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            tx.run("begin_reading")
            return read(tx)

    def _attempt_on(self, work: Callable[[Line], Any]) -> tuple[Any, Exception | None]:
        for last in (False, True):
            line: Line | None = None
            try:
                line = self._line()
                return work(line), None
            except (psycopg.Error, OSError) as error:
                failure = self._address.error(error)
                lost = line is not None and not self._address.fits(line)
                if last or not lost:
                    return None, failure
            except Exception as error:  # noqa: BLE001 - it is for its caller to hear; the others go on
                return None, error
        raise AssertionError

    def _line(self) -> Line:
        line: Line | None = getattr(self._own, "line", None)
        if line is not None and not self._address.fits(line):
            self._lines.discard(line)
            line.close()
            line = None
        if line is None:
            self._own.line = None
            line = self._own.line = self._address.line()
            self._lines.add(line)
        return line
