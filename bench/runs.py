"""Runs per second on the embedded store, side by side with a peer in the same call.

    python bench/runs.py [--runs 4000] [--inflight 20] [--loads trivial support] [--peer-python PYTHON]

Two loads, each with a scripted model that takes no time and `synchronous=FULL`:
trivial   2 turns, 1 tool
support   4 turns, 3 tools with a 1 KB result each, one step

Printed for each: runs/s, p50 and p95 in ms, CPU ms per run (user + system, of the whole process), stored bytes per run,
durable commits per run. The peer is AAA (`autonomous-agent-architecture` on PyPI), run by the interpreter of an
environment that has it (default: this one, when it is installed there), with the trivial load of its own tool loop.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from loads import Clients, percentiles, started_engine

from amoxi_py.app.process import tune_memory, tune_process
from amoxi_py.stores.sqlite.store import SqliteStore

PEER = Path(__file__).with_name("peer_aaa.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one load came to."""

    runs_per_s: float
    p50_ms: float
    p95_ms: float
    cpu_ms_per_run: float
    bytes_per_run: float
    commits_per_run: float | None = None


async def measure(load: str, runs: int, inflight: int) -> Figures:
    """Run one load on a new store in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder))
        async with started_engine(store, load) as engine:
            await Clients(engine, load).send(5, inflight)
            clients = Clients(engine, load)
            commits, cpu, wall = store.commits, time.process_time(), time.perf_counter()
            await clients.send(runs // inflight, inflight)
            wall, cpu, commits = (
                time.perf_counter() - wall,
                time.process_time() - cpu,
                store.commits - commits,
            )
        size = sum(file.stat().st_size for file in Path(folder).iterdir() if file.is_file())
    count = len(clients.latencies)
    p50, p95 = percentiles(clients.latencies)
    return Figures(
        runs_per_s=count / wall,
        p50_ms=p50,
        p95_ms=p95,
        cpu_ms_per_run=cpu / count * 1e3,
        bytes_per_run=size / (count + 5 * inflight),
        commits_per_run=commits / count,
    )


def run(measuring: Any) -> Figures:
    """Run on the event loop that the server runs on."""
    figures: Figures = uvloop.run(measuring)
    return figures


def measure_peer(python: str, runs: int, inflight: int) -> Figures | None:
    """Run the trivial load on the peer; None when there is no such interpreter, or it has the peer not."""
    try:
        subprocess.run([python, "-c", "import aaa.algos"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    done = subprocess.run([python, str(PEER), str(runs), str(inflight)], capture_output=True, text=True, check=True)
    return Figures(**json.loads(done.stdout))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--inflight", type=int, default=20)
    parser.add_argument("--peer-runs", type=int, default=200)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--loads", nargs="*", default=["trivial", "support"])
    options = parser.parse_args()
    tune_process()  # as the server does, and so the next one
    tune_memory()
    print(f"{'load':<22}{'runs/s':>9}{'p50 ms':>9}{'p95 ms':>9}{'CPU ms/run':>12}{'bytes/run':>11}{'commits/run':>13}")
    for load in options.loads:
        _print(f"amoxi {load}", run(measure(load, options.runs, options.inflight)))
        if load == "trivial":
            one = run(measure(load, max(options.runs // 10, 20), 1))
            _print("amoxi trivial, 1 at once", one)
    peer = measure_peer(options.peer_python, options.peer_runs, options.inflight)
    if peer is None:
        print("AAA is not installed for", options.peer_python)
    else:
        _print("AAA trivial", peer)


def _print(name: str, figures: Figures) -> None:
    commits = "-" if figures.commits_per_run is None else f"{figures.commits_per_run:.2f}"
    print(
        f"{name:<25}{figures.runs_per_s:>6.0f}{figures.p50_ms:>9.2f}{figures.p95_ms:>9.2f}"
        f"{figures.cpu_ms_per_run:>12.3f}{figures.bytes_per_run:>11.0f}{commits:>13}"
    )


if __name__ == "__main__":
    main()
