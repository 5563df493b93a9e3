"""Threads that read the database."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.sql.readers import Read, Readers

_WAIT_S = 5.0
_LOOK_AGAIN_S = 0.25


class PostgresReaders(Readers):
    """As many threads as there may be lines; a read that outlives its line begins anew."""

    def __init__(self, address: Address, threads: int) -> None:
        super().__init__(threads)
        self._address = address
        self._lines = _Lines(address)

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
        self._lines.close()

    def _snapshot(self, read: Read, line: Line) -> Any:
        tx = self._address.transaction(line)
        with line.transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"):
            tx.run("begin_reading")
            return read(tx)

    def _attempt_on(self, work: Callable[[Line], Any]) -> tuple[Any, Exception | None]:
        for last in (False, True):
            line: Line | None = None
            try:
                line = self._lines.take()
                return work(line), None
            except (psycopg.Error, OSError) as error:
                failure = self._address.error(error)
                lost = line is not None and not self._address.fits(line)
                if last or not lost:
                    return None, failure
            except Exception as error:  # noqa: BLE001 - it is for its caller to hear; the others go on
                return None, error
            finally:
                if line is not None:
                    self._lines.give_back(line)
        raise AssertionError


class _Lines:
    """The lines of the threads: made when one is needed, and shared when the database gives no more of them."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._free: list[Line] = []
        self._made = 0
        self._changed = threading.Condition()

    def take(self) -> Line:
        """Return a line that nobody uses; the caller gives it back."""
        until = time.monotonic() + _WAIT_S
        while True:
            with self._changed:
                while self._free:
                    line = self._free.pop()
                    if self._address.fits(line):
                        return line
                    self._forget(line)
                self._made += 1
            try:
                return self._address.line()
            except psycopg.OperationalError as error:
                with self._changed:
                    self._made -= 1
                    full = "too many" in str(error) or "remaining connection slots" in str(error)
                    if not full or self._made == 0 or time.monotonic() > until:
                        raise
                    self._changed.wait(_LOOK_AGAIN_S)

    def give_back(self, line: Line) -> None:
        """Let another thread have a line."""
        with self._changed:
            if self._address.fits(line):
                self._free.append(line)
            else:
                self._forget(line)
            self._changed.notify()

    def close(self) -> None:
        """Close all; none is in use any more."""
        with self._changed:
            while self._free:
                self._forget(self._free.pop())

    def _forget(self, line: Line) -> None:
        self._made -= 1
        line.close()
