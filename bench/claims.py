"""What a thousand workers ask of one database when they look for runs: a simulation on a real PostgreSQL.

    python bench/claims.py [--workers 1000] [--seconds 20] [--rate 20] [--stores 8] [--url postgresql://...]

Each simulated worker claims as the engine's does: every 0.5 s, and when its store says that a run may be due. A
thousand processes do not fit on one machine, so the workers are shared out to a few stores, each of which does one
claim at a time: no two share a transaction, as no two processes do. Runs come in at a steady rate from one more store
that executes none. A claimed run goes on to the end of the measurement, so what is measured is the queue alone.

Printed: claims per second, CPU of the database's processes per second and per claim, and how long runs were in the
queue. Without `--url` a PostgreSQL is started for the time of the measurement, with `fsync`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Collection

from database import Database, database

from amoxi_py.domain.event import EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission, WorkerKey
from amoxi_py.stores.postgres.store import FEWEST_CONNECTIONS, PostgresStore

POLL_S = 0.5
ARRIVE_S = 0.02
MOST_AT_ONCE = 100
PRINCIPALS = 200
LEASE_S = 3600.0


class Figures:
    """What is counted, and when runs came in."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.waited: list[float] = []
        self.arrived: dict[str, float] = {}


class Processes:
    """Some workers on one store, which they use one after another; it stands for as many processes."""

    def __init__(self, url: str, schema: str, figures: Figures) -> None:
        self.store = PostgresStore(url, schema=schema, connections=FEWEST_CONNECTIONS)
        self._figures = figures
        self._turn = asyncio.Lock()
        self._due = asyncio.Condition()
        self._keys: list[WorkerKey] = []
        self._bells = 0
        self._waking: set[asyncio.Task[None]] = set()

    async def open(self, count: int) -> None:
        """Connect, and enroll so many workers."""
        await self.store.open(lambda events: None, None, self)
        self._keys = [await self.store.enroll(new_id("worker"), LEASE_S) for _ in range(count)]

    async def work(self) -> None:
        """Look for runs until cancelled."""
        await asyncio.gather(*(self._look_for_ever(key) for key in self._keys))

    async def submit(self, rate: float) -> None:
        """Send messages until cancelled, as a web server that executes nothing."""
        begun, count = time.monotonic(), 0
        while True:
            await asyncio.sleep(ARRIVE_S)
            wanted = int((time.monotonic() - begun) * rate) - count
            count += wanted
            messages = [_submission(random.randrange(PRINCIPALS)) for _ in range(wanted)]
            self._figures.arrived.update({one.run_id: time.monotonic() for one in messages})
            await asyncio.gather(*map(self.store.submit, messages))

    def conversations(self) -> Collection[int]:
        """Nobody here follows anything."""
        return ()

    def news(self, types: Collection[EventType], due: bool) -> None:
        """Wake all workers that wait."""
        if due:
            self._bells += 1
            waking = asyncio.get_running_loop().create_task(self._wake())
            self._waking.add(waking)
            waking.add_done_callback(self._waking.discard)

    def missed(self, conversation: int) -> None:
        """Nobody here follows anything."""

    async def _wake(self) -> None:
        async with self._due:
            self._due.notify_all()

    async def _look_for_ever(self, key: WorkerKey) -> None:
        number = 0
        await asyncio.sleep(random.random() * POLL_S)
        while True:
            heard = self._bells
            async with self._turn:
                number += 1
                found = await self.store.claim(key, number, MOST_AT_ONCE)
            now = time.monotonic()
            self._figures.counts["claims"] += 1
            self._figures.counts["claims that got runs"] += bool(found)
            self._figures.waited += [now - self._figures.arrived.pop(rows.lease.run_id) for rows in found]
            async with self._due:
                try:
                    await asyncio.wait_for(self._due.wait_for(lambda heard=heard: self._bells != heard), POLL_S)
                except TimeoutError:
                    pass


def _submission(principal: int) -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent="assistant",
        principal=Principal(id=f"user:{principal}"),
        text="hello",
    )


async def simulate(options: argparse.Namespace, place: Database, schema: str) -> None:
    """Let all of it go on, and print."""
    figures = Figures()
    share, more = divmod(options.workers, options.stores)
    *groups, web = [Processes(place.url, schema, figures) for _ in range(options.stores + 1)]
    for n, group in enumerate(groups):
        await group.open(share + (n < more))
    await web.open(0)
    tasks = [asyncio.create_task(group.work()) for group in groups]
    tasks.append(asyncio.create_task(web.submit(options.rate)))
    await asyncio.sleep(1)
    figures.counts.clear()
    figures.waited.clear()
    cpu, own, begun = place.cpu(), time.process_time(), time.monotonic()
    ended, _ = await asyncio.wait(tasks, timeout=options.seconds, return_when=asyncio.FIRST_EXCEPTION)
    cpu, own, took = place.cpu() - cpu, time.process_time() - own, time.monotonic() - begun
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for group in (*groups, web):
        await group.store.close()
    for task in ended:
        await task
    _print(options, figures, took, cpu, own)


def _print(options: argparse.Namespace, figures: Figures, took: float, cpu: float, own: float) -> None:
    counts = figures.counts
    claims = max(counts["claims"], 1)
    print(f"{options.workers} workers, {options.rate:g} runs/s, {took:.1f} s")
    print(f"claims/s             {claims / took:9.0f}   {100 * counts['claims that got runs'] / claims:.1f} % got runs")
    print(f"database CPU         {cpu / took * 100:9.0f} % of a core, {cpu / claims * 1000:.3f} ms a claim")
    print(f"this process's CPU   {own / took * 100:9.0f} % of a core")
    waited = sorted(figures.waited)
    if waited:
        p50, p95 = statistics.median(waited) * 1000, waited[int(len(waited) * 0.95)] * 1000
        print(f"in the queue, ms     {p50:9.0f} p50, {p95:.0f} p95, {waited[-1] * 1000:.0f} at most")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=20.0, help="runs per second that come in")
    parser.add_argument("--stores", type=int, default=8, help="that the workers share")
    parser.add_argument("--url", help="of a database; a schema of its own is made in it and dropped")
    options = parser.parse_args()
    schema = f"bench_claims_{secrets.token_hex(4)}"
    with database(options.url) as place:
        asyncio.run(simulate(options, place, schema))
        place.drop(schema)


if __name__ == "__main__":
    main()
