"""What a process tells of itself to who watches it: each metric once, with its labels, and where its number is read.

The numbers are plain, so that processes can give them to each other as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from amoxi_py.domain.event import EventType
from amoxi_py.engine.engine import Engine
from amoxi_py.ports.measures import Histogram, StoreMeasures

Kind = Literal["counter", "gauge", "histogram"]
Sample = tuple[tuple[str, ...], Any]
"""The values of the labels, and a number; of a histogram its upper bounds, the count of each bucket, and the sum."""
Numbers = dict[str, list[Sample]]
"""The samples of each metric by its name."""

_NANO = 1e9
_ENDS = {
    "completed": EventType.RUN_COMPLETED,
    "failed": EventType.RUN_FAILED,
    "cancelled": EventType.RUN_CANCELLED,
}


class Process(Struct, frozen=True, kw_only=True):
    """What is read: the parts of a process that count; `responses` are answers over HTTP by status."""

    engine: Engine
    store: StoreMeasures
    responses: Mapping[str, int]


class Metric(Struct, frozen=True):
    """A metric of each process; those of all processes are added up.

    Attributes:
        name: As Prometheus has it, of a counter with its `_total`.
        kind: A gauge is of living processes alone.
        text: What it says.
        labels: Their names.
        read: Gives its samples.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...]
    read: Callable[[Process], Iterable[Sample]]


def numbers_of(process: Process) -> Numbers:
    """Return what a process counts now; call it on its event loop."""
    return {metric.name: list(metric.read(process)) for metric in METRICS}


def added_up(parts: Iterable[Numbers]) -> Numbers:
    """Return the numbers of several processes together."""
    sums: dict[str, dict[tuple[str, ...], Any]] = {}
    for numbers in parts:
        for name, samples in numbers.items():
            known = sums.setdefault(name, {})
            for labels, value in samples:
                key = tuple(labels)
                known[key] = value if key not in known else _plus(known[key], value)
    return {name: list(known.items()) for name, known in sums.items()}


def without_gauges(numbers: Numbers) -> Numbers:
    """Return what stays of a process that has ended: what it has counted."""
    return {name: samples for name, samples in numbers.items() if name not in GAUGES}


def _plus(one: Any, other: Any) -> Any:
    if not isinstance(one, list):
        return one + other
    (bounds, counts, total), (other_bounds, more, other_total) = one, other
    if list(bounds) != list(other_bounds):  # of another version of the program
        return one
    return [bounds, [a + b for a, b in zip(counts, more, strict=True)], total + other_total]


def _one(value: float) -> list[Sample]:
    return [((), value)]


def _by_name(values: Mapping[str, float]) -> list[Sample]:
    return [((name,), value) for name, value in values.items()]


def _by_names(values: Mapping[tuple[str, str], float]) -> list[Sample]:
    return list(values.items())


def _spread(histogram: Histogram) -> list[Any]:
    return [list(histogram.bounds), list(histogram.counts), histogram.total]


def _spreads(histograms: Mapping[str, Histogram]) -> list[Sample]:
    return [((name,), _spread(one)) for name, one in histograms.items()]


def _ended(process: Process) -> Iterator[Sample]:
    for status, kind in _ENDS.items():
        yield (status,), process.store.events[kind]


def _events(process: Process) -> Iterator[Sample]:
    for kind in EventType:
        yield (kind.label,), process.store.events[kind]


METRICS: tuple[Metric, ...] = (
    Metric(
        "amoxi_runs_in_flight",
        "gauge",
        "Runs that are executed now.",
        (),
        lambda one: _one(one.engine.executing),
    ),
    Metric(
        "amoxi_runs_submitted_total",
        "counter",
        "Runs that were accepted, those that other runs asked for included.",
        (),
        lambda one: _one(one.store.events[EventType.RUN_QUEUED]),
    ),
    Metric("amoxi_runs_ended_total", "counter", "Runs that have ended, by status.", ("status",), _ended),
    Metric(
        "amoxi_runs_resumed_total",
        "counter",
        "Runs that went on: after a crash of another worker (taken over) or of an attempt here, or after a pause.",
        ("after",),
        lambda one: _by_name(one.engine.measures.resumed),
    ),
    Metric(
        "amoxi_run_duration_seconds",
        "histogram",
        "From the submission of a run to its end, waiting included, by agent.",
        ("agent",),
        lambda one: _spreads(one.engine.measures.run_seconds),
    ),
    Metric(
        "amoxi_turn_duration_seconds",
        "histogram",
        "From asking the model to the end of the calls of its reply, where no call waited, by agent.",
        ("agent",),
        lambda one: _spreads(one.engine.measures.turn_seconds),
    ),
    Metric(
        "amoxi_time_to_first_token_seconds",
        "histogram",
        "From asking a model to the first piece of its text; replies without text have none.",
        ("model",),
        lambda one: _spreads(one.engine.measures.first_token_seconds),
    ),
    Metric(
        "amoxi_model_requests_total",
        "counter",
        "Requests to models, by outcome: ok or failed.",
        ("model", "outcome"),
        lambda one: _by_names(one.engine.measures.requests),
    ),
    Metric(
        "amoxi_model_tokens_total",
        "counter",
        "Tokens by kind: input, output, cached (of the input), written (to the provider's cache).",
        ("model", "kind"),
        lambda one: _by_names(one.engine.measures.tokens),
    ),
    Metric(
        "amoxi_model_cost_dollars_total",
        "counter",
        "US dollars that models have cost, where their price is known.",
        ("model",),
        lambda one: [((model,), cost / _NANO) for model, cost in one.engine.measures.cost.items()],
    ),
    Metric(
        "amoxi_tool_calls_total",
        "counter",
        "Calls of tools that came to a result, by outcome: done, failed, declined, stopped, unknown.",
        ("tool", "outcome"),
        lambda one: _by_names(one.store.calls),
    ),
    Metric(
        "amoxi_steps_executed_total",
        "counter",
        "Steps of tools that were executed.",
        (),
        lambda one: _one(one.engine.measures.steps["executed"]),
    ),
    Metric(
        "amoxi_steps_replayed_total",
        "counter",
        "Steps of tools that were answered from their record.",
        (),
        lambda one: _one(one.engine.measures.steps["replayed"]),
    ),
    Metric(
        "amoxi_leases_lost_total",
        "counter",
        "How often a process lost the lease under which it executes runs.",
        (),
        lambda one: _one(one.engine.measures.leases_lost),
    ),
    Metric(
        "amoxi_admission_refusals_total",
        "counter",
        "What was refused with 429, by reason: busy, too_many_runs, too_many_requests, daily_budget_used.",
        ("reason",),
        lambda one: _by_name(one.engine.gate.refused),
    ),
    Metric(
        "amoxi_conversations_active",
        "gauge",
        "Conversations in which something is executed, followed or waited for.",
        (),
        lambda one: _one(one.engine.active_conversations),
    ),
    Metric(
        "amoxi_event_streams",
        "gauge",
        "Event streams that are open, whatever door they go through.",
        (),
        lambda one: _one(one.engine.readers),
    ),
    Metric(
        "amoxi_conversations_in_memory",
        "gauge",
        "Conversations whose messages are kept in memory for the next one.",
        (),
        lambda one: _one(len(one.engine.transcripts)),
    ),
    Metric(
        "amoxi_conversations_in_memory_bytes",
        "gauge",
        "About how much these take.",
        (),
        lambda one: _one(one.engine.transcripts.size),
    ),
    Metric("amoxi_events_total", "counter", "Events that were committed, by type.", ("type",), _events),
    Metric(
        "amoxi_events_dropped_total",
        "counter",
        "Events that were committed and could not be told to the readers of a process: always 0.",
        (),
        lambda one: _one(one.store.dropped_events),
    ),
    Metric(
        "amoxi_store_queue_length",
        "gauge",
        "Changes that were given to the store and are not durable yet.",
        (),
        lambda one: _one(one.store.waiting),
    ),
    Metric(
        "amoxi_store_commit_duration_seconds",
        "histogram",
        "From the begin of a transaction to the answer of its commit.",
        (),
        lambda one: [((), _spread(one.store.commit_seconds))],
    ),
    Metric(
        "amoxi_store_commit_changes",
        "histogram",
        "How many changes shared a transaction.",
        (),
        lambda one: [((), _spread(one.store.batch_size))],
    ),
    Metric(
        "amoxi_http_responses_total",
        "counter",
        "Answers over HTTP, by status.",
        ("status",),
        lambda one: _by_name(one.responses),
    ),
    Metric(
        "amoxi_processes",
        "gauge",
        "Processes that these numbers are of.",
        (),
        lambda one: _one(1),
    ),
)
GAUGES = frozenset(metric.name for metric in METRICS if metric.kind == "gauge")
