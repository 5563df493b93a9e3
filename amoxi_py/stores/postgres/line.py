"""A connection on which statements are sent without waiting for each: the hot way to the database.

It speaks to libpq by psycopg's own binding to it. psycopg's pipelines wait for the socket several times a statement,
which costs more than ten times as much as all that is done here; see the decision about it.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import psycopg
from psycopg import pq

from amoxi_py.stores.postgres.statements import Statement
from amoxi_py.stores.postgres.waiting import wait_for
from amoxi_py.stores.sql.transaction import Row

_Load = Callable[[bytes], Any]
_BAD = frozenset({pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.NONFATAL_ERROR})
_BINARY = int(pq.Format.BINARY)
_READ_ONLY = "25006"


class Sent:
    """A statement that is on its way; the rows and their count are there after the next `Line.settle`."""

    __slots__ = ("result",)

    def __init__(self) -> None:
        self.result: pq.abc.PGresult | None = None

    @property
    def rows(self) -> list[Row]:
        """What it returned."""
        result = self.result
        assert result is not None
        value, columns = result.get_value, range(result.nfields)
        loads = [_LOADS.get(result.ftype(column), bytes.decode) for column in columns]
        return [
            tuple([_loaded(value(row, column), loads[column]) for column in columns]) for row in range(result.ntuples)
        ]

    @property
    def touched(self) -> int:
        """How many rows it inserted, changed or deleted."""
        return (self.result.command_tuples or 0) if self.result is not None else 0

    @property
    def said(self) -> str:
        """The server's word for it, such as `COMMIT`."""
        return ((self.result.command_status or b"") if self.result is not None else b"").decode()


class Line:
    """Sends statements, and settles what they came to; for one thread at a time.

    Args:
        connection: What it takes over, and closes.
        prepares: Whether statements are prepared where they are used first.
    """

    def __init__(self, connection: psycopg.Connection[Any], *, prepares: bool) -> None:
        self.prepares = prepares
        self._connection = connection
        self._libpq = connection.pgconn
        self._libpq.enter_pipeline_mode()
        self._token = secrets.token_hex(6)  # behind a pooler others' statements are on the same server process
        self._prepared: dict[bytes, bytes] = {}
        self._names = count()
        self._unsure: list[bytes] = []  # prepared since the last time that all was settled
        self._sent: deque[Sent] = deque()

    @property
    def usable(self) -> bool:
        """Whether it can still be spoken over."""
        return self._libpq.status == pq.ConnStatus.OK

    def send(self, statement: Statement, params: Mapping[str, Any]) -> Sent:
        """Send a statement."""
        values = [_dumped(params[name]) for name in statement.parameters]
        formats = None
        if any(isinstance(params[name], bytes) for name in statement.parameters):
            formats = [_BINARY * isinstance(params[name], bytes) for name in statement.parameters]
        try:
            if not self.prepares:
                self._libpq.send_query_params(statement.text, values, param_formats=formats)
                return self._expect()
            name = self._prepared.get(statement.text)
            if name is None:
                name = self._prepared[statement.text] = f"{self._token}_{next(self._names)}".encode()
                self._unsure.append(statement.text)
                self._libpq.send_prepare(name, statement.text)
                self._expect()
            self._libpq.send_query_prepared(name, values, param_formats=formats)
        except psycopg.OperationalError:
            self.close()
            raise
        return self._expect()

    def say(self, text: str) -> Sent:
        """Send a statement without parameters, such as BEGIN."""
        return self.send(Statement(text.encode(), ()), {})

    def settle(self) -> None:
        """Wait until the server has done all that was sent; raise the first of what went wrong.

        What came after a statement that went wrong was not done.
        """
        first: psycopg.Error | None = None
        try:
            self._libpq.pipeline_sync()
            self._flush()
            while self._sent:
                error = self._collect(self._sent.popleft())
                first = first or error
            self._result()  # of the end of the pipeline
        except psycopg.OperationalError:
            self.close()
            raise
        unsure, self._unsure = self._unsure, []
        if first is None:
            return
        for text in unsure:  # what came after the mistake was not prepared
            self._prepared.pop(text, None)
        if first.sqlstate == _READ_ONLY:  # another server is the primary by now: this line never leads to it
            self.close()
        raise first

    @contextmanager
    def transaction(self, begin: str = "BEGIN ISOLATION LEVEL READ COMMITTED") -> Iterator[None]:
        """Send what is sent inside in one transaction; it is committed at the end, or undone by what is raised."""
        self.say(begin)
        try:
            yield
            committed = self.say("COMMIT")
            self.settle()
        except BaseException:
            self._roll_back()
            raise
        if committed.said != "COMMIT":
            raise psycopg.OperationalError(f"the server answered {committed.said!r} to a commit")

    def close(self) -> None:
        """Disconnect; what was not settled may have been done or not."""
        self._sent.clear()
        with suppress(psycopg.Error):
            self._connection.close()

    def _roll_back(self) -> None:
        if not self.usable:
            return
        with suppress(psycopg.Error):
            self.say("ROLLBACK")
            with suppress(psycopg.Error):
                self.settle()  # also of what was sent before and raises again
            if self._libpq.transaction_status != pq.TransactionStatus.IDLE:
                self.say("ROLLBACK")
                self.settle()

    def _expect(self) -> Sent:
        sent = Sent()
        self._sent.append(sent)
        return sent

    def _collect(self, sent: Sent) -> psycopg.Error | None:
        sent.result = result = self._result()
        while self._result() is not None:
            pass
        if result is None:
            raise psycopg.OperationalError("the server's answer is missing")
        if result.status in _BAD:
            return psycopg.errors.error_from_result(result)
        return None

    def _flush(self) -> None:
        while self._libpq.flush():
            wait_for([self._libpq.socket], [self._libpq.socket])
            self._libpq.consume_input()

    def _result(self) -> pq.abc.PGresult | None:
        while self._libpq.is_busy():
            wait_for([self._libpq.socket])
            self._libpq.consume_input()
        return self._libpq.get_result()


def array(values: Sequence[Any]) -> str:
    """Return PostgreSQL's text of an array of numbers or texts."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(int(value))


def _dumped(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"t" if value else b"f"
    text = str(value) if isinstance(value, int) else value if isinstance(value, str) else array(value)
    try:
        dumped: bytes = text.encode()
    except UnicodeEncodeError:
        dumped = text.encode(errors="replace")
    # What is stored has been cleaned before; an id that is only looked for finds nothing then.
    return dumped.replace(b"\0", b"?") if b"\0" in dumped else dumped


def _loaded(value: bytes | None, load: _Load) -> Any:
    return None if value is None else load(value)


def _loaded_bytes(value: bytes) -> bytes:
    return bytes.fromhex(value[2:].decode())


_LOADS: Mapping[int, _Load] = {
    16: lambda value: value == b"t",
    17: _loaded_bytes,
    20: int,
    21: int,
    23: int,
    26: int,
}
"""By the number of a type: boolean, bytes, whole numbers; all else is text."""
