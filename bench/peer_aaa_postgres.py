"""One of several processes of AAA 0.6 on a PostgreSQL, with the trivial load; started by `postgres.py`.

    python bench/peer_aaa_postgres.py URL SCHEMA INFLIGHT

Takes requests of its own clients, and executes runs of all, as its bus hands them out. Speaks as `one_server.py` does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from aaa.events import DistributedBus
from aaa.events.postgres import PostgresEventStore
from aaa.runtime import Engine
from peer_aaa import attach, run, run_once

SETTLED_S = 1.0


async def send_until(engine: Engine, deadline: float, latencies: list[float]) -> None:
    while time.perf_counter() < deadline:
        latency = await run_once(engine)
        if time.perf_counter() < deadline:
            latencies.append(latency)


async def serve(url: str, schema: str, inflight: int) -> None:
    store = await PostgresEventStore.create(f"{url}?search_path={schema}")
    async with Engine(store=store, bus=DistributedBus(store.bus_backend())) as engine:
        attach(engine)
        await asyncio.sleep(SETTLED_S)  # its partitions get their owners
        await asyncio.gather(*(run_once(engine) for _ in range(inflight)))
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            latencies: list[float] = []
            cpu, deadline = time.process_time(), time.perf_counter() + float(line)
            await asyncio.gather(*(send_until(engine, deadline, latencies) for _ in range(inflight)))
            print(json.dumps({"latencies": latencies, "cpu_s": time.process_time() - cpu}), flush=True)


if __name__ == "__main__":
    run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
