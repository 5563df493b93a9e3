"""The plot of a sweep as one SVG file: turns per second beside the ideal, and how long turns take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from amoxi_py.testing.bench.outcome import Outcome, SweepRow

_WIDTH, _HEIGHT = 460, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 44, 44
_COLOURS = ("#1565c0", "#e65100", "#2e7d32", "#6a1b9a", "#ad1457", "#37474f")
_IDEAL = "#9e9e9e"
_STEPS = 4

Line = tuple[str, str, Sequence[tuple[float, float]], bool]


def plot(outcome: Outcome) -> str:
    """Return the SVG of an outcome's sweep: two panels over the count of clients, each server in a colour."""
    names = list(dict.fromkeys(row.server for row in outcome.sweep))
    ideal = sorted({(row.clients, row.ideal) for row in outcome.sweep})
    counts = [clients for clients, _ in ideal]
    rates: list[Line] = [("ideal", _IDEAL, ideal, True)]
    times: list[Line] = [("ideal", _IDEAL, [(count, outcome.profile.turn_s * 1000) for count in counts], True)]
    for place, name in enumerate(names):
        colour = _COLOURS[place % len(_COLOURS)]
        rows = [row for row in outcome.sweep if row.server == name]
        rates.append((name, colour, _points(rows, lambda row: row.turns_per_s), False))
        times.append((f"{name} p50", colour, _points(rows, lambda row: row.turn.p50), False))
        times.append((f"{name} p95", colour, _points(rows, lambda row: row.turn.p95), True))
    profile = outcome.profile
    title = (
        f"first token after {profile.ttft_ms:g} ms, {profile.tokens} tokens at {profile.tokens_per_s:g}/s; "
        f"store {outcome.store}, {outcome.workers} processes; {outcome.machine.cores} cores, {outcome.at}"
    )
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * _WIDTH}" height="{_HEIGHT + 24}" '
            'font-family="sans-serif" font-size="11">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_LEFT}" y="16" font-size="12">{escape(title)}</text>',
            *_panel(0, "turns per second", counts, rates),
            *_panel(_WIDTH, "turn, ms", counts, times),
            "</svg>",
            "",
        )
    )


def _points(rows: Sequence[SweepRow], figure: Callable[[SweepRow], float | None]) -> list[tuple[float, float]]:
    return [(row.clients, value) for row in rows if (value := figure(row)) is not None]


def _panel(left: int, title: str, counts: Sequence[int], lines: Sequence[Line]) -> list[str]:
    step = _round_step(max((y for _, _, points, _ in lines for _, y in points), default=1.0))
    top = step * _STEPS
    first, last = math.log(counts[0]), math.log(counts[-1])

    def across(count: float) -> float:
        share = (math.log(count) - first) / (last - first) if last > first else 0.5
        return left + _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def down(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<text x="{left + _LEFT}" y="{_TOP - 10}" font-weight="bold">{escape(title)}</text>']
    parts += [
        f'<line x1="{left + _LEFT}" x2="{left + _WIDTH - _RIGHT}" y1="{down(value):.1f}" y2="{down(value):.1f}" '
        f'stroke="#e0e0e0"/><text x="{left + _LEFT - 6}" y="{down(value) + 4:.1f}" text-anchor="end">'
        f"{value:,g}</text>"
        for value in (step * number for number in range(_STEPS + 1))
    ]
    parts += [
        f'<text x="{across(count):.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{count}</text>'
        for count in counts
    ]
    parts.append(f'<text x="{left + _WIDTH / 2}" y="{_HEIGHT - 8}" text-anchor="middle">clients at once</text>')
    for place, (name, colour, points, dashed) in enumerate(lines):
        dash = ' stroke-dasharray="5 3"' if dashed else ""
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"{dash}/>')
        parts += [f'<circle cx="{across(x):.1f}" cy="{down(y):.1f}" r="2.5" fill="{colour}"/>' for x, y in points]
        parts.append(
            f'<text x="{left + _LEFT + 8}" y="{_TOP + 12 + 14 * place}" fill="{colour}">{escape(name)}'
            f"{' (dashed)' if dashed else ''}</text>"
        )
    return parts


def _round_step(most: float) -> float:
    """Return a step of the axis that people can add up, so that all steps reach over the largest value."""
    least = max(most, 1e-9) * 1.02 / _STEPS
    size = 10.0 ** math.floor(math.log10(least))
    return next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= least)
