"""`/metrics`: the numbers of all processes on this machine and of the store, as Prometheus reads them.

The app's own metrics, made with `prometheus_client`, are told with them.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from amoxi_py.app.numbers import METRICS, Numbers, Process, Sample, added_up, numbers_of
from amoxi_py.app.numbers_folder import Found, NumbersFolder, folder_of_environment
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.operator_store import Backlog

log = logging.getLogger("amoxi_py.app")

_WRITE_EVERY_S = 1.0
_STORE_PATIENCE_S = 5.0

SHARED_GAUGES = {
    "amoxi_store_up": "Whether the store answers: 1 or 0.",
    "amoxi_store_runs_queued": "Runs in the store that wait for a worker, up to 10,000.",
    "amoxi_store_runs_running": "Runs in the store that a worker has, up to 10,000.",
    "amoxi_store_oldest_waiting_run_seconds": "For how long the oldest run has waited that a worker may take up now.",
    "amoxi_store_approvals_waiting": "Calls of tools that wait for a decision, up to 10,000.",
    "amoxi_admission_limit_runs": "How many runs may be queued or running at once (ai.runs.max-in-flight); 0 for any.",
}
"""What is the same for all processes: the store is asked at each scrape."""


class Metrics:
    """Tells the numbers of one process, and of those beside it, from `start` to `stop`.

    Args:
        process: Returns what is read here.
        backlog: Asks the store what is open.
    """

    def __init__(self, process: Callable[[], Process], backlog: Callable[[], Awaitable[Backlog]]) -> None:
        self._process = process
        self._backlog = backlog
        self._folder: NumbersFolder | None = None
        self._writing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to leave the numbers where the other processes of this machine find them."""
        place = folder_of_environment()
        if place is None:
            return
        try:
            self._folder = NumbersFolder(place)
        except OSError as error:
            log.warning("the metrics are those of this process alone: %s", error)
            return
        self._writing = asyncio.get_running_loop().create_task(self._write_for_ever(self._folder))

    async def stop(self) -> None:
        """Leave what has been counted."""
        folder, self._folder = self._folder, None
        writing, self._writing = self._writing, None
        if folder is None or writing is None:
            return
        writing.cancel()
        await asyncio.wait({writing})
        await asyncio.to_thread(folder.close, numbers_of(self._process()), time.monotonic())

    async def page(self, accept: str) -> tuple[bytes, str]:
        """Return the page and its media type, in the form that a scraper accepts."""
        process = self._process()
        shared = {**await self._store_numbers(), "amoxi_admission_limit_runs": process.engine.gate.limits.in_flight}
        return await asyncio.to_thread(self._written, accept, numbers_of(process), time.monotonic(), shared)

    async def _store_numbers(self) -> dict[str, float]:
        try:
            backlog = await asyncio.wait_for(self._backlog(), _STORE_PATIENCE_S)
        except (StoreUnavailable, TimeoutError):
            return {"amoxi_store_up": 0}
        return {
            "amoxi_store_up": 1,
            "amoxi_store_runs_queued": backlog.queued,
            "amoxi_store_runs_running": backlog.running,
            "amoxi_store_oldest_waiting_run_seconds": backlog.oldest,
            "amoxi_store_approvals_waiting": backlog.approvals,
        }

    def _written(self, accept: str, own: Numbers, at: float, shared: dict[str, float]) -> tuple[bytes, str]:
        encode, media_type = choose_encoder(accept)
        parts, folder = [own], self._folder
        if folder is None:
            apps = encode(REGISTRY)
        else:
            with suppress(OSError):  # what was told once must not be taken back when this process is killed
                folder.write(own, at)
            found = folder.others()
            parts += found.numbers
            apps = _of_the_app(folder, found, encode)
        ours = CollectorRegistry(auto_describe=False)
        ours.register(_Families(added_up(parts), shared))
        return _together(encode(ours), apps), media_type

    async def _write_for_ever(self, folder: NumbersFolder) -> None:
        while True:
            with suppress(OSError):  # the disk is full, or somebody has removed the folder: others see what was before
                await asyncio.to_thread(folder.write, numbers_of(self._process()), time.monotonic())
            await asyncio.sleep(_WRITE_EVERY_S)


def _of_the_app(folder: NumbersFolder, found: Found, encode: Callable[[CollectorRegistry], bytes]) -> bytes:
    """Return the app's own metrics of all processes; none when a file of theirs is made or removed meanwhile."""
    place = str(folder.path)
    try:
        for process in found.dead - found.living:
            mark_process_dead(process, place)  # type: ignore[no-untyped-call]  # of a library
        registry = CollectorRegistry()
        MultiProcessCollector(registry, place)  # type: ignore[no-untyped-call]  # the same
        return encode(registry)
    except (OSError, ValueError, RuntimeError, struct.error) as error:  # as the library meets such files
        log.warning("the app's own metrics are left out this time: %s", error)
        return encode(CollectorRegistry())


class _Families(Collector):
    def __init__(self, numbers: Numbers, shared: dict[str, float]) -> None:
        self._numbers = numbers
        self._shared = shared

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            samples = self._numbers.get(metric.name, [])
            if metric.kind == "histogram":
                yield _histogram(metric.name, metric.text, metric.labels, samples)
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            made = family(metric.name, metric.text, labels=metric.labels)
            for labels, value in samples:
                made.add_metric(labels, value)
            yield made
        for name, value in self._shared.items():
            yield GaugeMetricFamily(name, SHARED_GAUGES[name], value=value)


def _histogram(name: str, text: str, labels: Iterable[str], samples: Iterable[Sample]) -> HistogramMetricFamily:
    made = HistogramMetricFamily(name, text, labels=list(labels))
    for values, (bounds, counts, total) in samples:
        below = accumulate(counts)
        buckets = [(str(bound), count) for bound, count in zip([*map(float, bounds), "+Inf"], below, strict=True)]
        made.add_metric(values, buckets=buckets, sum_value=total)
    return made


def _together(one: bytes, other: bytes) -> bytes:
    """Return two pages as one; OpenMetrics ends each with a mark of its own."""
    return one.removesuffix(b"# EOF\n") + other
