"""The figures of a benchmark as lines of text; they are printed as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amoxi_py.testing.bench.comparison import Compared
from amoxi_py.testing.bench.outcome import Check, MemoryRow, OverloadRow, SoakRow, SweepRow

_MB = 1_000_000
SWEEP_HEAD = (
    f"{'':<12}{'c':>6}{'turns/s':>9}{'ideal':>8}  "
    f"{'first word p50/p95/p99':>24}  {'turn p50/p95/p99, ms':>24}{'CPU ms':>8}{'RSS MB':>8}  errors"
)
MEMORY_HEAD = f"{'c':>6}{'before MB':>11}{'during MB':>11}{'KB each':>9}{'after MB':>10}{'after/before':>14}  errors"
SOAK_HEAD = (
    f"{'part':>6}{'c':>6}{'turns/s':>9}  {'first word p50/p95/p99':>24}  {'turn p50/p95/p99, ms':>24}"
    f"{'CPU ms':>8}{'RSS MB':>8}{'store KB':>10}  errors"
)


def sweep_line(row: SweepRow) -> str:
    """Return the line of a row, without its end."""
    line = (
        f"{row.server:<12}{row.clients:>6}{row.turns_per_s:>9.2f}{row.ideal:>8.1f}  {_three(row.ttft):>24}  "
        f"{_three(row.turn):>24}{_figure(row.cpu_ms, 2):>8}{row.rss / _MB:>8.0f}  {_failed(row.errors, row.refused)}"
    )
    if row.spread:
        low, high = row.spread["turns_per_s"]
        line += f"  ({low:.1f} to {high:.1f}/s)"
    return line


def ratio_lines(rows: Sequence[SweepRow], ours: str = "amoxi") -> Iterator[str]:
    """Return a line for each peer and count: what ours is to it."""
    own = {row.clients: row for row in rows if row.server == ours}
    for row in rows:
        mine = own.get(row.clients)
        if row.server == ours or mine is None or not row.turns_per_s:
            continue
        line = f"{ours} / {row.server}, c={row.clients}: {mine.turns_per_s / row.turns_per_s:.2f} of its turns/s"
        if mine.cpu_ms is not None and row.cpu_ms:
            line += f", {mine.cpu_ms / row.cpu_ms:.1f} times its CPU per turn"
        if mine.turn.p50 is not None and row.turn.p50 is not None:
            line += f", turn p50 {mine.turn.p50 - row.turn.p50:+.0f} ms"
        yield line


def sample_lines(rows: Sequence[SweepRow | OverloadRow]) -> Iterator[str]:
    """Return a line for each kind of error, with words of one answer."""
    told = {kind: text for row in rows for kind, text in row.samples.items()}
    return (f"{kind}: {' '.join(text.split())}" for kind, text in sorted(told.items()))


def memory_line(row: MemoryRow) -> str:
    """Return the line of a row, without its end."""
    return (
        f"{row.clients:>6}{row.before / _MB:>11.1f}{row.during / _MB:>11.1f}{row.per_conversation / 1000:>9.1f}"
        f"{row.after / _MB:>10.1f}{row.after / row.before:>14.2f}  {_failed(row.errors, row.refused)}"
    )


def soak_line(row: SoakRow) -> str:
    """Return the line of a row, without its end."""
    stored = None if row.store_bytes is None else row.store_bytes / 1000
    return (
        f"{row.number + 1:>6}{row.clients:>6}{row.turns_per_s:>9.2f}  {_three(row.ttft):>24}  {_three(row.turn):>24}"
        f"{_figure(row.cpu_ms, 2):>8}{row.rss / _MB:>8.0f}{_figure(stored, 2):>10}  {_errors(row.errors)}"
    )


def overload_lines(row: OverloadRow) -> Iterator[str]:
    """Return the lines of the scene: what came, what each refusal took, and what holds."""
    yield (
        f"{row.clients} clients for {row.seconds:g} s, gate {row.gate}, provider limit {row.provider_limit}: "
        f"{row.completed} runs completed, {row.refused.count} refused, {_errors(row.errors)} errors"
    )
    yield f"refusal p50/p95/p99: {_three(row.refused)} ms, {_figure(row.refusal_cpu_ms, 3)} ms CPU"
    for name, times in (("before", row.before), ("in it", row.during), ("after", row.after)):
        yield f"turn p50/p95/p99 {name}: {_three(times)} ms"
    yield from check_lines(row.checks)


def check_lines(checks: Sequence[Check]) -> Iterator[str]:
    """Return a line for each figure with a limit."""
    for check in checks:
        yield f"{'ok   ' if check.ok else 'FAILS'} {check.name}: {check.value:g} (limit {check.limit:g})"


def compared_lines(compared: Sequence[Compared]) -> Iterator[str]:
    """Return a line for each figure that was compared."""
    for one in compared:
        state = "GREW " if one.grew else "ok   "
        yield f"{state} {one.where}, {one.figure}: {one.before:g} -> {one.now:g} ({one.growth:+.0%})"


def _three(times: object) -> str:
    values = (getattr(times, name) for name in ("p50", "p95", "p99"))
    return "/".join(_figure(value, 0 if value is None or value >= 100 else 1) for value in values)


def _figure(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _failed(errors: dict[str, int], refused: int) -> str:
    return _errors(errors) + (f", {refused} refused" if refused else "")


def _errors(errors: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items())) or "0"
