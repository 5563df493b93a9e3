"""The sweep: servers side by side, with more and more clients, each count as often as was asked."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from amoxi_py.testing.bench.measuring import measure
from amoxi_py.testing.bench.outcome import SweepRow
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import PlayedProvider
from amoxi_py.testing.bench.server import Server

_TO_WARM_UP = 16


def sweep(
    servers: Sequence[Server],
    provider: PlayedProvider,
    profile: Profile,
    *,
    counts: Sequence[int],
    seconds: float,
    repeat: int,
    on_row: Callable[[SweepRow], None],
) -> list[SweepRow]:
    """Measure each count of clients on each server in turn, so that a busy machine is busy for all of them.

    Args:
        servers: They run already.
        provider: Whom they ask.
        profile: How it answers.
        counts: Of clients.
        seconds: What is counted of each measurement, after its warm-up.
        repeat: Measurements of each; a row is the one with the median of turns per second.
        on_row: Hears of each row when it is there.
    """
    for server in servers:
        measure(server, server.load(_TO_WARM_UP, turn_s=profile.turn_s, warmup_s=0, window_s=profile.turn_s))
    rows = []
    for clients in counts:
        tries: dict[str, list[SweepRow]] = {server.name: [] for server in servers}
        for _ in range(repeat):
            for server in servers:
                tries[server.name].append(_measure_row(server, provider, profile, clients, seconds))
        for measured in tries.values():
            rows.append(median_of(measured))
            on_row(rows[-1])
    return rows


def _measure_row(server: Server, provider: PlayedProvider, profile: Profile, clients: int, seconds: float) -> SweepRow:
    provider.answer_like(profile)
    measured = measure(server, server.load(clients, turn_s=profile.turn_s, window_s=seconds))[0]
    window = measured.window
    return SweepRow(
        server=server.name,
        clients=clients,
        ideal=clients / profile.turn_s,
        turns_per_s=window.turns_per_s,
        ttft=window.ttft,
        turn=window.turn,
        cpu_ms=measured.cpu_ms_per_turn,
        rss=measured.rss,
        errors=window.errors,
        samples=window.samples,
        refused=window.refused.count,
        most_at_provider=int(provider.stats()["most_in_flight"]),
    )


def median_of(tries: Sequence[SweepRow]) -> SweepRow:
    """Return the one with the median of turns per second, with the spread of all and the errors of each."""
    middle = statistics.median_low([row.turns_per_s for row in tries])
    row = next(row for row in tries if row.turns_per_s == middle)
    if len(tries) == 1:
        return row
    rates = [row.turns_per_s for row in tries]
    spread = {"turns_per_s": (min(rates), max(rates))}
    slow = [row.turn.p95 for row in tries if row.turn.p95 is not None]
    if slow:
        spread["turn_p95"] = (min(slow), max(slow))
    errors: dict[str, int] = {}
    samples: dict[str, str] = {}
    for one in tries:  # no error or refusal of any of them is left out
        samples.update(one.samples)
        for kind, count in one.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    refused = sum(one.refused for one in tries)
    return msgspec.structs.replace(row, spread=spread, errors=errors, samples=samples, refused=refused)
