"""Which due runs are claimed when there are more than places: the oldest, and one of each principal in rotation.

Half of the places go to the oldest runs, so that nobody waits for ever behind newcomers; half go round the principals,
so that nobody waits behind all that one principal has queued.
"""

from __future__ import annotations

from collections.abc import Iterable

from amoxi_py.stores.sql.transaction import Row, Transaction


class Rotation:
    """Where the rotation of this process stands. It is stored nowhere: to begin anew after a restart is as fair."""

    def __init__(self) -> None:
        self._last = ""
        self._by_age: frozenset[str] = frozenset()

    def choose(self, tx: Transaction, now: int, number: int, limit: int) -> list[int]:
        """Return the keys of up to `limit` due runs; the odd place is the oldest run's in every other claim."""
        oldest = tx.rows("due_runs", now=now, limit=limit)
        if len(oldest) < limit:
            self._by_age = frozenset()
            return [key for _, key, _ in oldest]
        in_rotation = (limit + (number % 2 == 0)) // 2
        by_age = oldest[: limit - in_rotation]
        chosen = [key for _, key, _ in by_age]
        served = frozenset(principal for *_, principal in by_age)
        if in_rotation:
            chosen += self._next(tx, now, in_rotation, self._by_age | served)
        chosen += [key for _, key, _ in oldest if key not in chosen][: limit - len(chosen)]
        self._by_age = served
        return chosen

    def _next(self, tx: Transaction, now: int, places: int, served: frozenset[str]) -> list[int]:
        """Return a run each of the next principals, but for those that have just been served by age."""
        found: list[int] = []
        for key, principal in self._round(tx, now, places + len(served)):
            if len(found) == places:
                break
            if principal not in served:
                found.append(key)
                self._last = principal
        return found

    def _round(self, tx: Transaction, now: int, limit: int) -> Iterable[Row]:
        """Give a run each of up to `limit` principals after the last one, and go on from the first."""
        last = self._last
        after = tx.rows("due_runs_by_principal", now=now, after=last, limit=limit)
        yield from after
        if last and len(after) < limit:
            given = {principal for _, principal in after}  # not compared here: a database has an order of its own
            for key, principal in tx.rows("due_runs_by_principal", now=now, after="", limit=limit - len(after)):
                if principal not in given:
                    yield key, principal
