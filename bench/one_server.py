"""One server of several on a PostgreSQL: takes requests of its own clients and executes runs; started by `postgres.py`.

    python bench/one_server.py URL SCHEMA LOAD INFLIGHT

Prints `ready`, then measures for as many seconds as each line that it reads says, and prints a JSON object for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop
from loads import Clients, started_engine

from amoxi_py.app.process import tune_memory, tune_process
from amoxi_py.stores.postgres.store import PostgresStore


async def serve(url: str, schema: str, load: str, inflight: int) -> None:
    """Measure as often as is asked."""
    store = PostgresStore(url, schema=schema)
    async with started_engine(store, load) as engine:
        await Clients(engine, load).send(3, inflight)
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            clients = Clients(engine, load)
            commits, cpu = store.commits, time.process_time()
            await clients.send_until(time.perf_counter() + float(line), inflight)
            told = {
                "latencies": clients.latencies,
                "cpu_s": time.process_time() - cpu,
                "commits": store.commits - commits,
            }
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    tune_process()
    tune_memory()
    uvloop.run(serve(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
