"""Runs with those that they asked for: what a whole tree has used, and what is open below a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from amoxi_py.domain.run import Lease
from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.errors import LeaseLost
from amoxi_py.stores.sql.rows import json_rows, read_usage
from amoxi_py.stores.sql.transaction import Row, Transaction


def load_usages(tx: Transaction, lease: Lease) -> tuple[Usage, ...]:
    """Load what the runs above a run have used, the root first, and then the run itself, each with all below."""
    roots = tx.rows("root_of_run", run=lease.run)
    if not roots:  # erased
        raise LeaseLost(lease.run_id)
    tree = load_trees(tx, [roots[0][0]])
    chain: list[int] = []
    above: int | None = lease.run
    while above is not None:
        chain.append(above)
        above = tree.parents[above]
    return tuple(tree.usage(key) for key in reversed(chain))


class Trees:
    """Runs with all that they asked for, and what that asked for; empty for runs that asked for none."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = {row[0]: row for row in rows}
        self._below = _below(rows)
        self.parents: dict[int, int | None] = {row[0]: row[1] for row in rows}
        self.agents: dict[str, str] = {row[2]: row[3] for row in rows if row[3] is not None}

    def usage(self, run: int) -> Usage:
        """Return what a run has used, with all below it."""
        return self.usage_below(run) + read_usage(self._rows[run][5:])

    def usage_below(self, run: int) -> Usage:
        """Return what all below a run have used."""
        return sum((read_usage(self._rows[key][5:]) for key in self._below.get(run, ())), NO_USAGE)

    def id_of(self, run: int) -> str:
        """Return the public id of a run."""
        found: str = self._rows[run][2]
        return found

    def open_below(self, run: int) -> list[tuple[int, str]]:
        """Return the open runs below a run: key and id."""
        return [(key, self._rows[key][2]) for key in self._below.get(run, ()) if self._rows[key][4]]


def _below(rows: Iterable[Row]) -> dict[int, list[int]]:
    """Return the keys of the runs below each, all of them, from rows that begin with a run and the one above it."""
    found: dict[int, list[int]] = defaultdict(list)
    above: dict[int, int | None] = {}
    for key, parent, *_ in sorted(rows, key=lambda row: row[0]):
        above[key] = parent
        while parent is not None:
            found[parent].append(key)
            parent = above.get(parent)
    return found


def load_trees(tx: Transaction, roots: Iterable[int]) -> Trees:
    """Load trees by the keys of their roots."""
    keys = sorted(roots)
    return Trees(tx.rows("runs_of_trees", rows=json_rows(keys)) if keys else [])
