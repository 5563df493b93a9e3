"""Connections that are lent to an app's function for one transaction: new, as the driver makes them, and closed after.

A function can neither commit nor roll back by the connection's methods; what ends the transaction all the same is seen
by a setting that ends with it. A server hears within seconds that a client has ended, and within half a minute that its
machine is gone, so that what the function has locked is free again.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from amoxi_py.stores.postgres.statements import Statement
from amoxi_py.stores.sql.transaction import Row

T = TypeVar("T")

_CLOSE_S = 2.0
_CANCEL_S = 5.0
_LEFT_S = 8.0  # longer than connecting takes at the most
_SETTINGS = """
SET LOCAL amoxi.step = '{token}';
SET LOCAL tcp_keepalives_idle = 10;
SET LOCAL tcp_keepalives_interval = 5;
SET LOCAL tcp_keepalives_count = 3;
SAVEPOINT amoxi;
SET LOCAL client_connection_check_interval = '3s';
RELEASE SAVEPOINT amoxi
"""
_OPEN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_AFTER = {
    TransactionStatus.INERROR: "a statement failed in the transaction and the error was caught, which leaves nothing "
    "of it; do what may fail inside of connection.transaction()",
    TransactionStatus.ACTIVE: "the function returned while a statement of its connection goes on",
}
_ENDED = (
    "the function ended the transaction, which records its outcome as well: leave COMMIT and ROLLBACK out, and use "
    "connection.transaction() for a savepoint"
)
_CLOSED = "the function closed its connection, which ends the transaction; leave that out"


class Lent(ABC):
    """One connection; the methods are called on the event loop."""

    connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any] | None = None

    def __init__(self, conninfo: str, token: str) -> None:
        self._conninfo = conninfo
        self._token = token

    async def begin(self) -> None:
        """Connect, and begin the transaction."""
        await self._connect()
        try:
            await self.ask(_SETTINGS.format(token=self._token))
        except psycopg.errors.InvalidParameterValue:  # a server on Windows cannot look whether a client is there
            await self.ask("ROLLBACK TO SAVEPOINT amoxi; RELEASE SAVEPOINT amoxi")

    @property
    def lost(self) -> bool:
        """Whether it broke, and was not closed."""
        return self.connection is None or self.connection.broken

    async def look(self) -> None:
        """Raise `RuntimeError` when a function has not left the transaction as it was."""
        connection = self.connection
        assert connection is not None
        if connection.closed:
            raise RuntimeError(_CLOSED)
        status = connection.info.transaction_status
        if status in _AFTER:
            raise RuntimeError(_AFTER[status])
        if status is TransactionStatus.INTRANS:
            ((token,),), _ = await self.ask("SELECT current_setting('amoxi.step', true)")
            if token == self._token:
                return
        raise RuntimeError(_ENDED)

    @abstractmethod
    async def ask(
        self, statement: str | Statement, params: Mapping[str, Any] | None = None
    ) -> tuple[list[Row], str | None]:
        """Run a statement, whatever a function set for its own; return its rows and what the server says of it."""

    @abstractmethod
    async def cut(self) -> None:
        """End what goes on with it, and let nothing more go over it."""

    @abstractmethod
    async def end(self) -> None:
        """Roll back what was not committed, and close it."""

    @abstractmethod
    async def _connect(self) -> None: ...

    def _shut(self) -> None:
        """Shut the socket, which the driver may be waiting for in another thread: closing would not wake that."""
        with suppress(OSError, psycopg.Error), self._same_socket() as same:
            same.shutdown(socket.SHUT_RDWR)

    def _same_socket(self) -> socket.socket:
        """Return the connection's socket under another number, which stays open when the connection is closed."""
        connection = self.connection
        if connection is None or connection.closed:
            raise OSError("not connected")
        return socket.fromfd(connection.fileno(), 0, socket.SOCK_STREAM)


class AsyncLent(Lent):
    """For a function on the event loop."""

    connection: psycopg.AsyncConnection[Any] | None = None

    async def ask(
        self, statement: str | Statement, params: Mapping[str, Any] | None = None
    ) -> tuple[list[Row], str | None]:
        assert self.connection is not None
        cursor = psycopg.AsyncRawCursor(self.connection, row_factory=tuple_row)
        await cursor.execute(*_text_and_values(statement, params))
        return (await cursor.fetchall() if cursor.description else []), cursor.statusmessage

    async def cut(self) -> None:
        connection = self.connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error, OSError):
                await connection.cancel_safe(timeout=_CANCEL_S)
            self._shut()

    async def end(self) -> None:
        connection = self.connection
        if connection is None:
            return
        try:
            if connection.lock.locked():  # a task that the function left behind
                await self.cut()
            async with asyncio.timeout(_CLOSE_S):
                if connection.info.transaction_status in _OPEN:
                    await self.ask("ROLLBACK")
        except (psycopg.Error, OSError, TimeoutError):
            pass
        finally:
            await self._close(connection)

    async def _close(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Close it, and wait till the server's process has gone: until then its place is not free for another one."""
        try:
            same = self._same_socket()
        except (OSError, psycopg.Error):
            await connection.close()
            return
        with same:
            same.setblocking(False)
            await connection.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    while await asyncio.get_running_loop().sock_recv(same, 4096):
                        pass

    async def _connect(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self._conninfo, prepare_threshold=None)
        await psycopg.AsyncTransaction(self.connection).__aenter__()  # inside of one `commit()` is refused


class ThreadLent(Lent):
    """For a function in a thread; what is done for it here goes on in other threads."""

    connection: psycopg.Connection[Any] | None = None

    def __init__(self, conninfo: str, token: str) -> None:
        super().__init__(conninfo, token)
        self._doing: asyncio.Future[Any] | None = None

    async def ask(
        self, statement: str | Statement, params: Mapping[str, Any] | None = None
    ) -> tuple[list[Row], str | None]:
        return await self._in_thread(lambda: self._ask(statement, params))

    async def cut(self) -> None:
        await asyncio.to_thread(self._cut)

    async def end(self) -> None:
        """Close it when the threads that use it have found that they cannot."""
        doing = self._doing
        if doing is not None and not doing.done():
            await self.cut()
            await asyncio.wait((doing,), timeout=_LEFT_S)
        if self.connection is not None:
            await self._in_thread(self._end)

    async def _connect(self) -> None:
        await self._in_thread(self._begin)

    async def _in_thread(self, do: Callable[[], T]) -> T:
        self._doing = asyncio.ensure_future(asyncio.to_thread(do))
        self._doing.add_done_callback(_look_away)
        return await asyncio.shield(self._doing)

    def _begin(self) -> None:
        self.connection = psycopg.connect(self._conninfo, prepare_threshold=None)
        psycopg.Transaction(self.connection).__enter__()

    def _ask(self, statement: str | Statement, params: Mapping[str, Any] | None) -> tuple[list[Row], str | None]:
        assert self.connection is not None
        cursor = psycopg.RawCursor(self.connection, row_factory=tuple_row)
        cursor.execute(*_text_and_values(statement, params))
        return (cursor.fetchall() if cursor.description else []), cursor.statusmessage

    def _cut(self) -> None:
        connection = self.connection
        if connection is not None and not connection.closed:
            with suppress(psycopg.Error, OSError):
                connection.cancel_safe(timeout=_CANCEL_S)
            self._shut()

    def _end(self) -> None:
        connection = self.connection
        assert connection is not None
        if not connection.lock.acquire(blocking=False):
            self._cut()
            if not connection.lock.acquire(timeout=_CLOSE_S):
                return  # its socket is shut; the thread that holds it finds that
        try:
            idle = connection.info.transaction_status not in _OPEN
        finally:
            connection.lock.release()
        with suppress(psycopg.Error, OSError):
            if not idle:
                self._ask("ROLLBACK", None)
        self._close(connection)

    def _close(self, connection: psycopg.Connection[Any]) -> None:
        """Close it, and wait till the server's process has gone: until then its place is not free for another one."""
        try:
            same = self._same_socket()
        except (OSError, psycopg.Error):
            connection.close()
            return
        with same:
            same.settimeout(_CLOSE_S)
            connection.close()
            with suppress(OSError):
                while same.recv(4096):
                    pass


def _look_away(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


def _text_and_values(
    statement: str | Statement, params: Mapping[str, Any] | None
) -> tuple[bytes, tuple[Any, ...] | None]:
    if isinstance(statement, str):
        return statement.encode(), None
    given = params or {}
    return statement.text, tuple(given[name] for name in statement.parameters) or None
