"""Named statements inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amoxi_py.stores.postgres.line import Line, Sent, array
from amoxi_py.stores.postgres.statements import Statement
from amoxi_py.stores.sql.transaction import Row

_COUNTED = frozenset({"wake_next_runs", "wake_run", "wake_parents", "release_run", "hand_over_runs", "expire_worker"})
"""Statements that make runs due without an event that says so."""


class PostgresTransaction:
    """Statements on a line; `concurrent`, because others write meanwhile.

    Only what returns rows is waited for; what the others raise is raised with the next rows.
    """

    concurrent = True

    __slots__ = ("_asked", "_counted", "_line", "_statements")

    def __init__(self, line: Line, statements: Mapping[str, Statement]) -> None:
        self._line = line
        self._statements = statements
        self._asked: dict[tuple[str, tuple[tuple[str, Any], ...]], Sent] = {}
        self._counted: list[Sent] = []

    def ask(self, name: str, /, **params: Any) -> None:
        """Send a statement whose rows are asked for later, by the same name and parameters."""
        self._asked[name, tuple(params.items())] = self._line.send(self._statements[name], params)

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        sent = self._asked.pop((name, tuple(params.items())), None) if self._asked else None
        if sent is None:
            sent = self._send(name, params)
        if sent.result is None:
            self._line.settle()
        return sent.rows

    def rows_of(self, statement: Statement, /, **params: Any) -> list[Row]:
        """Run a statement that has no name here and return its rows."""
        sent = self._line.send(statement, params)
        self._line.settle()
        return sent.rows

    def run(self, name: str, /, **params: Any) -> None:
        self._send(name, params)

    def run_all(self, name: str, rows: Sequence[Row], /) -> None:
        self._send(name, _columns(rows))

    def insert_all(self, name: str, rows: Sequence[Row], /) -> list[int]:
        sent = self._send(name, _columns(rows))
        self._line.settle()
        return [key for (key,) in sent.rows]

    @property
    def made_due(self) -> bool:
        """Whether a run may be claimable that was not before; known when the transaction has been committed."""
        return any(sent.touched for sent in self._counted)

    def _send(self, name: str, params: Mapping[str, Any]) -> Sent:
        sent = self._line.send(self._statements[name], params)
        if name in _COUNTED:
            self._counted.append(sent)
        return sent


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    return {f"c{n}": array(column) for n, column in enumerate(zip(*rows, strict=True))}
