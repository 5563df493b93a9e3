"""The servers of the chaos, and what happens to them: each fault strikes one at a time what is not yet recovering."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from forks import Forks
from postgres_server import PostgresServer, outer_port
from processes import ServerProcess, clean_environment

LEASE_S = 2.0
TOKEN = "token-of-the-chaos-0123456789"
_LOCK_RUNNING = """
SELECT key FROM amoxi.conversation WHERE key IN (SELECT conversation FROM amoxi.run WHERE status = 'running')
ORDER BY key FOR NO KEY UPDATE SKIP LOCKED
"""


@dataclass(kw_only=True)
class Server:
    """One place for a server: a process of it ends, another one comes."""

    command: str
    port: int
    env: Mapping[str, str]
    busy: bool = False
    processes: list[ServerProcess] = field(default_factory=list)

    @property
    def process(self) -> ServerProcess:
        """The last one."""
        return self.processes[-1]


class Storm:
    """Four workers and a web server on one store, and what strikes them.

    Args:
        folder: The app's.
        database: The PostgreSQL that the store is in, and its database's address; None for the file store.
        seed: Of what happens when.

    Attributes:
        faults: How often each kind of fault was made.
    """

    def __init__(self, folder: Path, database: tuple[PostgresServer, str] | None, seed: int, workers: int = 4) -> None:
        self.faults: Counter[str] = Counter()
        self._folder = folder
        self._database = database
        self._random = random.Random(seed)  # so that it can be repeated
        self._forks = Forks(clean_environment(), folder)
        self._tasks: set[asyncio.Task[None]] = set()
        self._database_busy = False
        env = {
            "AI_API_CALLERS_CHAOS": TOKEN,
            "AI_RUNS_LEASE_MS": str(int(LEASE_S * 1000)),
            "AI_RUNS_MAX_ATTEMPTS": "100",
            "AI_RUNS_CONCURRENCY": "30",
            "SERVER_STOP_GRACE_S": "3",
            "LOG_FORMAT": "text",
        }
        if database is not None:
            env |= {"AI_STORE_TYPE": "postgres", "DATABASE_URL": database[1]}
        self._web = Server(command="start", port=outer_port(), env={**env, "AI_RUNS_WORKER": "false"})
        self._workers = [Server(command="worker", port=outer_port(), env=env) for _ in range(workers)]
        self.url = f"http://127.0.0.1:{self._web.port}"

    async def begin(self) -> None:
        """Start all servers at the same time, on an empty store."""
        await asyncio.gather(*(self._start(server) for server in self._servers))
        await asyncio.to_thread(self._web.process.wait_ready, 60)

    async def rage(self, seconds: float, every_s: float) -> None:
        """Let things happen, for so long and about so often; then let everything recover."""
        kinds, weights = zip(*self._kinds(), strict=True)
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self._random.expovariate(1 / every_s))
            strike = self._random.choices(kinds, weights)[0]
            task = asyncio.create_task(strike())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.gather(*self._tasks)
        for server in self._servers:
            if server.process.process.poll() is not None:
                await self._start(server)

    async def end(self) -> None:
        """Stop the servers, in an orderly way where they do so in time."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(asyncio.to_thread(_stop, server.process) for server in self._servers))
        self._forks.close()

    def logs(self) -> dict[str, str]:
        """Return what the servers have printed, by process."""
        return {
            f"{server.command} {process.pid}": process.log() for server in self._servers for process in server.processes
        }

    @property
    def _servers(self) -> list[Server]:
        return [self._web, *self._workers]

    def _kinds(self) -> list[tuple[Callable[[], Awaitable[None]], float]]:
        kinds = [
            (self._kill, 6.0),
            (self._freeze_briefly, 4.0),
            (self._freeze_long, 4.0),
            (self._stop_orderly, 1.5),
            (self._kill_web, 0.7),
            (self._freeze_web, 0.7),
        ]
        if self._database is not None:
            kinds += [
                (self._freeze_waiting, 4.0),
                (self._cut_some, 3.0),
                (self._cut_all, 1.0),
                (self._restart_fast, 0.5),
                (self._restart_immediate, 0.5),
                (self._freeze_database, 0.4),
            ]
        return kinds

    # -- what strikes a server

    async def _kill(self) -> None:
        await self._strike(self._workers, "kill -9 of a worker", self._killed)

    async def _kill_web(self) -> None:
        await self._strike([self._web], "kill -9 of the web server", self._killed)

    async def _stop_orderly(self) -> None:
        await self._strike(self._workers, "orderly stop of a worker", self._stopped)

    async def _freeze_briefly(self) -> None:
        await self._strike(self._workers, "freeze of a worker, shorter than its lease", self._frozen, 0.05, 0.5)

    async def _freeze_long(self) -> None:
        await self._strike(self._workers, "freeze of a worker, longer than its lease", self._frozen, 1.1, 3.0)

    async def _freeze_waiting(self) -> None:
        kind = "freeze of a worker whose writes wait for a lock, longer than its lease"
        await self._strike(self._workers, kind, self._frozen_waiting)

    async def _freeze_web(self) -> None:
        await self._strike([self._web], "freeze of the web server", self._frozen, 0.1, 1.5)

    async def _strike(
        self, servers: list[Server], kind: str, how: Callable[..., Awaitable[None]], *leases: float
    ) -> None:
        ready = [server for server in servers if not server.busy]
        if not ready:
            return
        server = self._random.choice(ready)
        server.busy = True
        self.faults[kind] += 1
        try:
            await how(server, *leases)
        finally:
            server.busy = False

    async def _killed(self, server: Server) -> None:
        await asyncio.to_thread(server.process.kill9)
        await asyncio.sleep(self._random.choice((0.0, 0.3, 1.5 * LEASE_S)))
        await self._start(server)

    async def _stopped(self, server: Server) -> None:
        await asyncio.to_thread(_stop, server.process)
        await self._start(server)

    async def _frozen(self, server: Server, shortest: float, longest: float) -> None:
        server.process.freeze()
        try:
            await asyncio.sleep(LEASE_S * self._random.uniform(shortest, longest))
        finally:
            server.process.resume()

    async def _frozen_waiting(self, server: Server) -> None:
        """Freeze it with writes that it has not sent yet: most of their runs are somebody else's when it goes on."""
        _, url = self._data
        with suppress(psycopg.OperationalError):  # it may be away now
            async with await psycopg.AsyncConnection.connect(url, connect_timeout=2) as connection:
                await connection.execute(_LOCK_RUNNING)
                await asyncio.sleep(0.2)
                server.process.freeze()
                await connection.rollback()
        server.process.freeze()  # also when the database is away
        try:
            await asyncio.sleep(LEASE_S * self._random.uniform(1.5, 3.0))
        finally:
            server.process.resume()

    async def _start(self, server: Server) -> None:
        command = [server.command, *(["--workers", "1"] if server.command == "start" else [])]
        process = await asyncio.to_thread(
            lambda: ServerProcess(self._folder, command, port=server.port, env=server.env, forks=self._forks)
        )
        server.processes.append(process)

    # -- what strikes the database

    async def _cut_some(self) -> None:
        await self._cut("pg_terminate_backend of some", self._random.randint(1, 4))

    async def _cut_all(self) -> None:
        await self._cut("pg_terminate_backend of all", 1000)

    async def _restart_fast(self) -> None:
        await self._on_database("fast restart of the database", lambda: self._restart("fast"))

    async def _restart_immediate(self) -> None:
        await self._on_database("immediate restart of the database", lambda: self._restart("immediate"))

    async def _freeze_database(self) -> None:
        await self._on_database("freeze of the database", self._freeze)

    async def _on_database(self, kind: str, strike: Callable[[], Awaitable[Any]]) -> None:
        if self._database_busy:
            return
        self._database_busy = True
        self.faults[kind] += 1
        try:
            await strike()
        finally:
            self._database_busy = False

    async def _cut(self, kind: str, most: int) -> None:
        server, _ = self._data
        statement = sql.SQL(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity "
            "WHERE application_name = 'amoxi' ORDER BY random() LIMIT {}) AS chosen"
        ).format(most)
        with suppress(psycopg.OperationalError):  # it may be away now
            if await asyncio.to_thread(server.ask, statement):
                self.faults[kind] += 1

    async def _restart(self, mode: Any) -> None:
        server, _ = self._data
        await asyncio.to_thread(server.stop, mode)
        await asyncio.sleep(self._random.choice((0.0, 0.5, 1.2 * LEASE_S)))
        await asyncio.to_thread(server.start)

    async def _freeze(self) -> None:
        server, _ = self._data
        server.freeze()
        try:
            await asyncio.sleep(LEASE_S * self._random.uniform(0.1, 1.3))
        finally:
            server.resume()

    @property
    def _data(self) -> tuple[PostgresServer, str]:
        assert self._database is not None
        return self._database


def _stop(process: ServerProcess) -> None:
    try:
        process.stop(15)
    except TimeoutError:
        process.kill9()
