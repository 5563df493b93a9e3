"""What the store's logic needs of a database inside one transaction: named statements, run with named parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, Protocol

Row = tuple[Any, ...]
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_NOTE = re.compile(r"^\s*--.*$", re.MULTILINE)


class Transaction(Protocol):
    """One transaction, or one snapshot to read from. A name is that of a statement in the dialect's `queries.sql`.

    `concurrent` says whether others may write while it lasts: what is found is then locked, and looked at again.
    """

    @property
    def concurrent(self) -> bool: ...

    def rows(self, name: str, /, **params: Any) -> list[Row]:
        """Run a statement and return its rows."""
        ...

    def run(self, name: str, /, **params: Any) -> None:
        """Run a statement that returns nothing."""
        ...

    def insert_all(self, name: str, rows: Sequence[Row], /) -> list[int]:
        """Run a statement that inserts `VALUES :rows`, and return the keys of the rows, in order."""
        ...

    def run_all(self, name: str, rows: Sequence[Row], /) -> None:
        """Run a statement that takes `VALUES :rows` for all rows, as few at a time as the dialect can."""
        ...


def load_queries(package: str, file: str = "queries.sql") -> dict[str, str]:
    """Read a file of statements of a package, by name."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: _NOTE.sub("", sql).strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}
