"""The trivial load on AAA 0.6 (`pip install autonomous-agent-architecture`): 2 turns, 1 tool, its SQLite store.

    python bench/peer_aaa.py RUNS INFLIGHT

Prints one JSON object. Run by `runs.py` with the interpreter of an environment that has the package.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any

from aaa.algos import ToolLoop
from aaa.events import SQLiteEventStore
from aaa.llm import LLMHandler
from aaa.llm.fake import FakeLLMClient, text, tool_call
from aaa.runtime import Engine
from aaa.tools import ToolHandler, ToolRegistry, tool


@tool
async def lookup(order_id: str) -> str:
    """Look an order up."""
    return "x" * 40


def answer(request: Any) -> Any:
    asked = any(message.role == "tool" for message in request.messages)
    return text("Order A-1001 is shipped.") if asked else tool_call("lookup", "c1", order_id="A-1001")


REGISTRY = ToolRegistry([lookup])
LOOP = ToolLoop(REGISTRY)
TASK = {"task": "Where is order A-1001?"}


def attach(engine: Engine) -> None:
    LLMHandler(FakeLLMClient(answer)).attach(engine)
    ToolHandler(REGISTRY).attach(engine)
    engine.register(LOOP)


async def run_once(engine: Engine) -> float:
    begun = time.perf_counter()
    outcome = await engine.run(LOOP, TASK)
    assert outcome.kind.name.lower() == "success", outcome
    return time.perf_counter() - begun


async def measure(runs: int, inflight: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "log.db")
        async with Engine(store=SQLiteEventStore(path, synchronous="FULL")) as engine:
            attach(engine)
            latencies: list[float] = []

            async def client(count: int) -> None:
                latencies.extend([await run_once(engine) for _ in range(count)])

            await asyncio.gather(*(client(1) for _ in range(inflight)))
            latencies.clear()
            cpu, wall = time.process_time(), time.perf_counter()
            await asyncio.gather(*(client(runs // inflight) for _ in range(inflight)))
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size = os.path.getsize(path)
    count = len(latencies)
    latencies.sort()
    return {
        "runs_per_s": count / wall,
        "p50_ms": latencies[count // 2] * 1e3,
        "p95_ms": latencies[count * 95 // 100] * 1e3,
        "cpu_ms_per_run": cpu / count * 1e3,
        "bytes_per_run": size / (count + inflight),
    }


try:
    from uvloop import run
except ImportError:
    run = asyncio.run


if __name__ == "__main__":
    print(json.dumps(run(measure(int(sys.argv[1]), int(sys.argv[2])))))
