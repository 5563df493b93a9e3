"""Chaos: runs go through servers that are killed, frozen, cut off and restarted; then every promise is looked at.

python tests/chaos/run.py --minutes 2               1,000 runs on a PostgreSQL of its own
python tests/chaos/run.py --minutes 60 --runs 30000
python tests/chaos/run.py --store file              without the faults of a database
python tests/chaos/run.py --seed 7                  the same faults in the same order
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / name) for name in ("processes", "databases"))]

from customers import Market  # noqa: E402 - its place is known only now
from storm import TOKEN, Storm  # noqa: E402
from verdict import lines_of_logs, problems_of, read_ledger  # noqa: E402

from postgres_server import own_postgres  # noqa: E402

RECOVERY_S = 60.0
_SHOWN = 20


def make_app(folder: Path) -> None:
    """Put the app's files into a folder."""
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "__init__.py").touch()
    shutil.copy(HERE / "chaos_shop.py", folder / "app")
    (folder / "application.json").write_text("{}", "utf-8")


async def chaos(folder: Path, *, runs: int, seconds: float, seed: int, database: Any, every_s: float) -> list[str]:
    """Let it rage over an app in `folder`; print what was done, and return every promise that was broken."""
    storm = Storm(folder, database, seed)
    market = Market(storm.url, TOKEN, seed)
    broken: list[str] = []
    try:
        await storm.begin()
        raging = asyncio.create_task(storm.rage(seconds, every_s))
        living = await market.open(runs, seconds)
        await raging
        calm = time.monotonic()
        done, late = await asyncio.wait(living, timeout=RECOVERY_S)
        recovered = time.monotonic() - calm
        broken += [f"a customer: {task.exception()!r}" for task in done if task.exception() is not None]
        if late:
            broken.append(f"{len(late)} of {runs} customers do not come to an end within {RECOVERY_S:g} s of calm")
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        try:
            await asyncio.wait_for(market.read_logs(), RECOVERY_S + runs)
        except TimeoutError:
            broken.append("the logs of the runs cannot be read")
    finally:
        await market.close()
        await storm.end()
    booked = None if database is None else _asker(folder, database)("SELECT call, value FROM public.booking")
    broken += problems_of(market.customers, folder, _asker(folder, database), storm.logs(), booked)
    _print(storm, market, folder, seed, recovered)
    return broken


def _asker(folder: Path, database: Any) -> Any:
    if database is not None:
        server, url = database
        name = url.rpartition("/")[2]
        return lambda statement: server.ask(statement.replace("@", "amoxi."), database=name)

    def ask(statement: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(folder / "data" / "ai" / "amoxi.db") as db:
            return db.execute(statement.replace("@", "")).fetchall()

    return ask


def _print(storm: Storm, market: Market, folder: Path, seed: int, recovered: float) -> None:
    customers = market.customers
    took = sorted(customer.took_s for customer in customers)
    statuses = {status: sum(one.status == status for one in customers) for status in {one.status for one in customers}}
    resumed = sum(event.type == "run.resumed" for one in customers for event in one.log)
    unknown = sum("outcome is unknown" in json.dumps(event.data) for one in customers for event in one.log)
    connections = sum(customer.connections for customer in customers)
    print(f"seed {seed}: {len(customers)} runs, {statuses}; {sum(storm.faults.values())} faults:")
    for kind, count in sorted(storm.faults.items()):
        print(f"  {count:5} {kind}")
    print(
        f"  runs taken up again {resumed} times; outcomes that stayed unknown: {unknown}; connections of readers: "
        f"{connections}; lines of the ledger: {len(read_ledger(folder))}"
    )
    slowest = max(customers, key=lambda one: one.took_s)
    before = sum(one.conversation_id == slowest.conversation_id and one.number < slowest.number for one in customers)
    pairs = zip(slowest.told, slowest.told[1:], strict=False)
    gap, first, then = max(((b.at - a.at, a, b) for a, b in pairs), key=lambda one: one[0])
    again = sum(event.type == "run.resumed" for event in slowest.log)
    print(
        f"  the longest was {slowest.kind!r}, taken up again {again} times, behind {before} of its conversation; "
        f"its longest pause was {gap:.1f} s, from {first.type} {first.id} to {then.type} {then.id}"
    )
    print(
        f"  a run took {took[len(took) // 2]:.2f} s (median), {took[-1]:.1f} s (longest); "
        f"all had ended {recovered:.1f} s after the last fault"
    )


def run_chaos(*, runs: int, seconds: float, seed: int, store: str, every_s: float, verbose: bool = False) -> list[str]:
    """Make all that is needed, let it rage, and remove it all when no promise was broken."""
    folder = Path(tempfile.mkdtemp(prefix="amoxi-chaos-"))
    make_app(folder)
    with ExitStack() as stack:
        database = None
        if store == "postgres":
            server = stack.enter_context(own_postgres(max_connections=200))
            url = server.fresh_database()
            server.ask("CREATE TABLE booking (call text, value text)", database=url.rpartition("/")[2])
            database = (server, url)
        broken = asyncio.run(chaos(folder, runs=runs, seconds=seconds, seed=seed, database=database, every_s=every_s))
        if broken and database is not None:
            (folder / "postgres.log").write_text(database[0].log(), "utf-8")
        if verbose:
            _print_logs(folder)
    if broken:
        print(f"{len(broken)} promises were broken; everything is in {folder}")
    else:
        shutil.rmtree(folder)
    return broken


def _print_logs(folder: Path) -> None:
    logs = {path.name: path.read_text("utf-8", "replace") for path in folder.glob(".server-*.log")}
    for line, count in lines_of_logs(logs).most_common(60):
        print(f"  {count:5} {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--runs", type=int, help="default: 500 in a minute")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--store", choices=["postgres", "file"], default="postgres")
    parser.add_argument("--every", type=float, default=0.5, help="seconds from fault to fault, on the average")
    parser.add_argument("--verbose", action="store_true", help="print what the servers printed, counted")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its servers end with it
    broken = run_chaos(
        runs=given.runs or round(500 * given.minutes),
        seconds=60 * given.minutes,
        seed=secrets.randbelow(10**6) if given.seed is None else given.seed,
        store=given.store,
        every_s=given.every,
        verbose=given.verbose,
    )
    for problem in broken[:_SHOWN]:
        print(f"- {problem}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
