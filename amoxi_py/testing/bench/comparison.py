"""What has grown since an earlier outcome: latency, CPU and memory of the same measurements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.outcome import Outcome

MOST_GROWTH = 0.25
OURS = "amoxi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure then and now, without end where no turn completed; `grew` says whether it is over a quarter more."""

    where: str
    figure: str
    before: float
    now: float

    @property
    def growth(self) -> float:
        """0.1 for a tenth more."""
        return self.now / self.before - 1

    @property
    def grew(self) -> bool:
        return self.growth > MOST_GROWTH


def compare(now: Outcome, before: Outcome) -> list[Compared]:
    """Return each figure that both have: p95 of turns and of first words, CPU per turn, and memory.

    Raises:
        CommandRefused: they measured something else, or have no row in common.
    """
    for name in ("profile", "app", "workers", "store"):
        this, that = getattr(now, name), getattr(before, name)
        if this != that:
            raise CommandRefused(f"these cannot be compared: {name!r} is {this!r} now, and was {that!r} then")
    found = [*_of_sweeps(now, before), *_of_memory(now, before)]
    if not found:
        raise CommandRefused("these cannot be compared: no count of clients was measured in both")
    return found


def _of_sweeps(now: Outcome, before: Outcome) -> Iterator[Compared]:
    earlier = {row.clients: row for row in before.sweep if row.server == OURS}
    for row in now.sweep:
        old = earlier.get(row.clients)
        if row.server != OURS or old is None:
            continue
        figures = (
            ("turn p95, ms", old.turn.p95, row.turn.p95),
            ("first word p95, ms", old.ttft.p95, row.ttft.p95),
            ("CPU per turn, ms", old.cpu_ms, row.cpu_ms),
            ("memory, bytes", old.rss, row.rss),
        )
        for name, then, this in figures:
            if then:
                yield Compared(
                    where=f"c={row.clients}", figure=name, before=then, now=math.inf if this is None else this
                )


def _of_memory(now: Outcome, before: Outcome) -> Iterator[Compared]:
    earlier = {row.clients: row for row in before.memory}
    for row in now.memory:
        old = earlier.get(row.clients)
        if old is not None:
            yield Compared(where=f"memory, c={row.clients}", figure="memory, bytes", before=old.during, now=row.during)
