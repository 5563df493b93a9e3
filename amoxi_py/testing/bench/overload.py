"""The overload scene: many more clients than fit. What is too much is refused at once, what was accepted completes."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from amoxi_py.testing.bench.app_process import App, app_server
from amoxi_py.testing.bench.measuring import Measured, measure
from amoxi_py.testing.bench.outcome import Check, OverloadRow
from amoxi_py.testing.bench.profile import Profile
from amoxi_py.testing.bench.provider_process import PlayedProvider
from amoxi_py.testing.bench.server import Server

GATE = 8
PROVIDER_LIMIT = 3
CLIENTS = 200
SECONDS = 30.0
CALM_AFTER_S = 5.0
_CALM_TURNS = 5
_REFUSED_FOR_S = 5.0
_LONG_WAIT_MS = 120_000.0
_REFUSAL_MS = 10.0
_REFUSAL_CPU_MS = 0.5
_SLOWER = 1.25


def overload(
    app: App,
    provider: PlayedProvider,
    profile: Profile,
    place: Path,
    *,
    clients: int = CLIENTS,
    seconds: float = SECONDS,
    calm_after_s: float = CALM_AFTER_S,
) -> OverloadRow:
    """Play the scene: a calm, the overload, the calm 5 s after it, and last refusals alone, for what each costs.

    Args:
        app: What is started, with `ai.runs.max-in-flight` at 8 and `ai.models.concurrency` at 3.
        provider: Whom it asks.
        profile: How it answers.
        place: An empty folder for the store.
        clients: How many come.
        seconds: For how long.
        calm_after_s: After that many seconds more turns must be as quick as before.
    """
    limits = {
        "AI_RUNS_MAX_IN_FLIGHT": str(GATE),
        "AI_MODELS_CONCURRENCY": str(PROVIDER_LIMIT),
        "SERVER_STOP_GRACE_S": "0.1",  # the runs that fill the gate in the end would keep it for longer
    }
    with app_server(app, place, provider.url, **limits) as server:
        provider.answer_like(profile)
        few = max(1, PROVIDER_LIMIT // app.workers)  # each process has its share of the provider's limit
        before = _calm(server, profile, few, after_s=2 * profile.turn_s)
        storm = server.load(clients, turn_s=profile.turn_s, window_s=seconds, warmup_s=0)
        over_at = time.monotonic() + seconds
        during = measure(server, msgspec.structs.replace(storm, turn_timeout_s=seconds + 60))[0]
        drained_s = time.monotonic() - over_at  # what was accepted has completed by now
        after = _calm(server, profile, few, after_s=max(0.0, calm_after_s - drained_s))
        refusal_cpu_ms = _cost_of_refusal(server, provider, profile, clients, seconds=min(_REFUSED_FOR_S, seconds))
    window = during.window
    return OverloadRow(
        clients=clients,
        gate=GATE,
        provider_limit=PROVIDER_LIMIT,
        seconds=seconds,
        completed=window.turn.count,
        errors=window.errors,
        samples=window.samples,
        refused=window.refused,
        refused_without_wait=window.refused_without_wait,
        refusal_cpu_ms=refusal_cpu_ms,
        before=before.window.turn,
        during=window.turn,
        after=after.window.turn,
        checks=_checks(before, during, after, refusal_cpu_ms),
    )


def _calm(server: Server, profile: Profile, clients: int, *, after_s: float) -> Measured:
    calm = server.load(clients, turn_s=profile.turn_s, window_s=_CALM_TURNS * profile.turn_s, warmup_s=after_s)
    return measure(server, calm)[0]


def _cost_of_refusal(
    server: Server, provider: PlayedProvider, profile: Profile, clients: int, *, seconds: float
) -> float | None:
    """Fill the gate with runs that wait for their first word, and let the others be refused meanwhile."""
    provider.answer_like(msgspec.structs.replace(profile, ttft_ms=_LONG_WAIT_MS))
    fill = server.load(GATE, turn_s=0, warmup_s=0, window_s=0.5)
    measure(server, msgspec.structs.replace(fill, turn_timeout_s=0.5))  # their readers leave; the runs stay
    settled_s = min(1.0, seconds)
    idle, begun = server.usage().cpu_s, time.monotonic()
    time.sleep(settled_s)
    idle_per_s = (server.usage().cpu_s - idle) / (time.monotonic() - begun)
    many = server.load(clients, turn_s=0, warmup_s=settled_s, window_s=seconds)
    refused = measure(server, msgspec.structs.replace(many, turn_timeout_s=seconds, longest_wait_s=0.1))[0]
    count = refused.window.refused.count
    return max(0.0, refused.cpu_s - idle_per_s * seconds) * 1000 / count if count else None


def _checks(before: Measured, during: Measured, after: Measured, refusal_cpu_ms: float | None) -> list[Check]:
    window = during.window
    lost = sum(sum(measured.window.errors.values()) for measured in (before, during, after))
    calm, again = before.window.turn.p50 or 0.0, after.window.turn.p50 or float("inf")
    return [
        Check(name="refused", value=window.refused.count, limit=1, ok=window.refused.count > 0),
        _at_most("refused where all fit, after it", after.window.refused.count, 0),
        _at_most("accepted runs, answers and streams that failed", lost, 0),
        _at_most("refusals without Retry-After", window.refused_without_wait, 0),
        _at_most("refusal, ms (median)", window.refused.p50, _REFUSAL_MS),
        _at_most("refusal, CPU ms", refusal_cpu_ms, _REFUSAL_CPU_MS),
        _at_most("turn within 5 s after, times that before", again / calm if calm else None, _SLOWER),
    ]


def _at_most(name: str, value: float | None, limit: float) -> Check:
    """Return a check; a figure that is not there does not keep its limit."""
    if value is None:
        return Check(name=name, value=-1.0, limit=limit, ok=False)
    return Check(name=name, value=value, limit=limit, ok=value <= limit)
