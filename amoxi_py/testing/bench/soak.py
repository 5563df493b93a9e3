"""The soak: the same load for a long time; memory, latency and what a run stores must not grow."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from amoxi_py.testing.bench.measuring import Measured, measure
from amoxi_py.testing.bench.outcome import Check, SoakRow
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.server import Server

MOST_GROWTH = 0.25
_ENOUGH_PARTS = 3


def soak(
    server: Server,
    profile: Profile,
    *,
    clients: int,
    minutes: float,
    part_s: float = 60.0,
    on_row: Callable[[SoakRow], None],
) -> list[SoakRow]:
    """Load a server for so many minutes, in parts of a minute; `on_row` hears of each when it is over."""
    parts = max(1, round(minutes * 60 / part_s))
    rows: list[SoakRow] = []

    def take(measured: Measured) -> None:
        window = measured.window
        stored = measured.store_bytes
        rows.append(
            SoakRow(
                number=window.number,
                seconds=window.seconds,
                clients=clients,
                turns_per_s=window.turns_per_s,
                ttft=window.ttft,
                turn=window.turn,
                cpu_ms=measured.cpu_ms_per_turn,
                rss=measured.rss,
                store_bytes=None if stored is None or not window.ended else stored / window.ended,
                errors=window.errors,
            )
        )
        on_row(rows[-1])

    load = server.load(clients, turn_s=profile.turn_s, window_s=minutes * 60 / parts, windows=parts)
    measure(server, load, take)
    return rows


def growth_of(rows: Sequence[SoakRow]) -> list[Check]:
    """Compare the last third of the parts with the first one; the values are growth, 0.1 for a tenth more.

    Of fewer than three parts nothing can be said but of errors.
    """
    errors = sum(sum(row.errors.values()) for row in rows)
    checks = [Check(name="errors", value=errors, limit=0, ok=errors == 0)]
    if len(rows) < _ENOUGH_PARTS:
        return checks
    third = len(rows) // 3
    figures: dict[str, Callable[[SoakRow], float | None]] = {
        "growth of memory": lambda row: row.rss,
        "growth of turn p95": lambda row: row.turn.p95,
        "growth of CPU per turn": lambda row: row.cpu_ms,
        "growth of store bytes per run": lambda row: row.store_bytes,
    }
    for name, figure in figures.items():
        first = [value for row in rows[:third] if (value := figure(row)) is not None]
        last = [value for row in rows[-third:] if (value := figure(row)) is not None]
        if first and last and statistics.median(first) > 0:
            value = statistics.median(last) / statistics.median(first) - 1
            checks.append(Check(name=name, value=value, limit=MOST_GROWTH, ok=value <= MOST_GROWTH))
    return checks
