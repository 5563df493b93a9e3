"""How long after a `kill -9` of its server a run has ended on another one, on PostgreSQL.

    python bench/takeover.py [--kills 100] [--at-once 10] [--lease-ms 2000] [--dsn postgresql://...]

Each server that is killed takes a message, executes its run, and is killed in the middle of the tool; this process is
the server that goes on: it runs the tool again and ends the run. The time is from the kill until the end is durable and
known here. It consists of what is left of the lease, of the time until somebody looks (at most 0.5 s), and of the run's
rest. Without `--dsn` a PostgreSQL is started for the time of the measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import secrets
import statistics
import time
from multiprocessing.connection import Connection
from typing import Any

from database import database
from loads import ANA, started_engine
from stuck_server import serve_until_killed

from amoxi_py.engine.engine import Engine
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.stores.postgres.store import PostgresStore

LOAD = "stuck"
READY_S = 60.0


class Victim:
    """A server in a process of its own, to be killed while its run is in the tool."""

    def __init__(self, context: Any, url: str, schema: str, lease: float) -> None:
        ours, theirs = context.Pipe()
        self._told: Connection = ours
        self._process = context.Process(target=serve_until_killed, args=(url, schema, lease, theirs))
        self._process.start()
        theirs.close()

    def run_id(self) -> str:
        """Wait until its run is in the tool, and return the run's id."""
        if not self._told.poll(READY_S):
            raise TimeoutError("a server does not get to the tool")
        run_id: str = self._told.recv()
        return run_id

    def kill(self) -> None:
        """End it as a machine that loses its power."""
        self._process.kill()
        self._process.join()


async def take_over(engine: Engine, victim: Victim, lease: float) -> float:
    """Kill a server at some moment of its lease, and return the seconds until its run has ended here."""
    run_id = await asyncio.to_thread(victim.run_id)
    await asyncio.sleep(random.uniform(0, lease))
    begun = time.monotonic()
    await asyncio.to_thread(victim.kill)
    run = await engine.wait(run_id, ANA, timeout=10 * lease + 60)
    assert run.status == "completed", run
    return time.monotonic() - begun


async def measure(options: argparse.Namespace, url: str, schema: str) -> list[float]:
    """Kill as many servers as is asked, some at once."""
    lease = options.lease_ms / 1000
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stuck_server"])
    times: list[float] = []
    async with started_engine(PostgresStore(url, schema=schema), LOAD, settings=EngineSettings(lease=lease)) as engine:
        while len(times) < options.kills:
            count = min(options.at_once, options.kills - len(times))
            victims = [Victim(context, url, schema, lease) for _ in range(count)]
            times += await asyncio.gather(*(take_over(engine, victim, lease) for victim in victims))
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--lease-ms", type=int, default=2000)
    parser.add_argument("--dsn", help="of a database; a schema of its own is made in it and dropped")
    options = parser.parse_args()
    schema = f"bench_{secrets.token_hex(4)}"
    with database(options.dsn) as place:
        try:
            times = asyncio.run(measure(options, place.url, schema))
        finally:
            place.drop(schema)
    print(f"{len(times)} kills, lease-ms {options.lease_ms}")
    print(f"median {statistics.median(times):.2f} s, worst {max(times):.2f} s, best {min(times):.2f} s")


if __name__ == "__main__":
    main()
