"""Runs per second on PostgreSQL with 1, 2 and 4 servers, side by side with a peer on the same PostgreSQL.

    python bench/postgres.py [--servers 1 2 4] [--inflight 20] [--loads trivial support] [--seconds 6] [--delays 0 3]
        [--peer-python PYTHON] [--dsn postgresql://...]

Each server is a process that takes requests and executes runs, as the servers of an app do; the clients are shared out
to them, so that `--inflight` runs are in flight in all. The peer is AAA (`autonomous-agent-architecture` and `asyncpg`
on PyPI, in an environment of its own), in as many processes, with the trivial load of its own tool loop.

Printed for each: runs/s, p50 and p95 in ms, CPU ms per run of the servers and of the database's processes, stored bytes
per run, the servers' durable commits per run, and the transactions that the database counts per run, reads included.
`--delays` are milliseconds that each commit takes longer. Without `--dsn` a PostgreSQL is started for the time of the
measurement, with `fsync` and `synchronous_commit`.
"""

from __future__ import annotations

import argparse
import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from database import Database, database
from loads import percentiles

HERE = Path(__file__).parent
PEER = "AAA"
MOST_IN_FLIGHT_OF_PEER = 100
RUNS_PER_S = 50  # a row goes on for long enough that each client sends several messages also on a slow machine
COLUMNS = ("runs/s", "p50 ms", "p95 ms", "CPU ms", "DB CPU ms", "bytes", "commits", "transactions")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table: what runs, on how many servers, how many in flight, and how slow a commit is."""

    name: str
    program: Sequence[str]
    servers: int
    inflight: int
    delay_ms: float
    seconds: float


class Servers:
    """The processes of one row."""

    def __init__(self, case: Case, url: str, schema: str) -> None:
        share, more = divmod(case.inflight, case.servers)
        self._processes = [
            subprocess.Popen(
                [word.format(url=url, schema=schema, inflight=share + (n < more)) for word in case.program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(case.servers)
        ]
        for process in self._processes:
            self._line(process)

    def measure(self, seconds: float) -> list[dict[str, Any]]:
        """Let all go on at once for a time, and return what each tells."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        return [json.loads(self._line(process)) for process in self._processes]

    def stop(self) -> None:
        """End them all."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait(60)

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"a server ended early with {process.wait()!r}")
        return line


def measure(case: Case, place: Database) -> list[float]:
    """Run one row in a schema of its own: a part of the time to get into the steady state, then what is counted."""
    schema = f"bench_{secrets.token_hex(4)}"
    place.delay_commits(case.delay_ms)
    place.make(schema)
    try:
        servers = Servers(case, place.url, schema)
        servers.measure(case.seconds / 3)
        size = place.size(schema)
        cpu, transactions = place.cpu(), place.transactions()
        told = servers.measure(case.seconds)
        cpu, transactions = place.cpu() - cpu, place.transactions() - transactions
        size = place.size(schema) - size
        servers.stop()
    finally:
        place.drop(schema)
    latencies = [latency for one in told for latency in one["latencies"]]
    count = len(latencies)
    p50, p95 = percentiles(latencies)
    own = sum(one["cpu_s"] for one in told)
    commits = sum(one.get("commits", float("nan")) for one in told)
    rate = count / case.seconds
    return [rate, p50, p95, own / count * 1e3, cpu / count * 1e3, size / count, commits / count, transactions / count]


def cases(options: argparse.Namespace, *, with_peer: bool) -> list[Case]:
    """Return the rows in their order."""
    programs: dict[str, tuple[str, ...]] = {
        f"amoxi {load}": (sys.executable, str(HERE / "one_server.py"), "{url}", "{schema}", load, "{inflight}")
        for load in options.loads
    }
    if with_peer:
        path = str(HERE / "peer_aaa_postgres.py")
        programs[f"{PEER} trivial"] = (options.peer_python, path, "{url}", "{schema}", "{inflight}")
    return [
        Case(
            name=name,
            program=program,
            servers=servers,
            inflight=inflight,
            delay_ms=delay,
            seconds=max(options.peer_seconds if name.startswith(PEER) else options.seconds, inflight / RUNS_PER_S),
        )
        for delay in options.delays
        for inflight in options.inflight
        for servers in options.servers
        for name, program in programs.items()
        if inflight <= MOST_IN_FLIGHT_OF_PEER or not name.startswith(PEER)
    ]


def has_peer(python: str) -> bool:
    """Whether an interpreter has the peer."""
    try:
        subprocess.run([python, "-c", "import aaa.events.postgres, asyncpg"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="*", default=[1, 2, 4])
    parser.add_argument("--inflight", type=int, nargs="*", default=[20])
    parser.add_argument("--loads", nargs="*", default=["trivial", "support"])
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--delays", type=float, nargs="*", default=[0.0], metavar="MS")
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--peer-seconds", type=float, default=20.0)
    parser.add_argument("--dsn", help="of a database; schemas of its own are made in it and dropped")
    options = parser.parse_args()
    with_peer = has_peer(options.peer_python)
    if not with_peer:
        print(PEER, "is not installed for", options.peer_python)
    print(f"{'':<16}{'servers':>8}{'in flight':>10}{'delay ms':>9}" + "".join(f"{name:>13}" for name in COLUMNS))
    with database(options.dsn) as place:
        for case in cases(options, with_peer=with_peer):
            figures = measure(case, place)
            where = f"{case.name:<16}{case.servers:>8}{case.inflight:>10}{case.delay_ms:>9g}"
            formats = (".0f", ".1f", ".1f", ".3f", ".3f", ".0f", ".2f", ".2f")
            print(where + "".join(f"{n:>13{form}}" for n, form in zip(figures, formats, strict=True)), flush=True)


if __name__ == "__main__":
    main()
