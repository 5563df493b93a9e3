"""O25: streams and waiting clients cost no connection of the database, however many there are and however they go."""

from __future__ import annotations

import asyncio
import re
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call, pause
from postgres_server import own_postgres

WORKING = '''
import asyncio
from amoxi_py import ToolContext, agent, tool


@tool(read_only=True)
async def work(n: int, ctx: ToolContext) -> int:
    """Work in small pieces."""
    for number in range(3):
        ctx.progress(f"{n}.{number}")
        await asyncio.sleep(0.01)
        await ctx.transaction(f"look {number}", look)
    return n


async def look(connection) -> None:
    await connection.execute("SELECT pg_sleep(0.01)")


@agent(tools=[work])
class Worker:
    """You work."""
'''
COUNT = "SELECT application_name, count(*) FROM pg_stat_activity WHERE application_name LIKE 'server-%' GROUP BY 1"
MOST_CONNECTIONS = 20
BUDGETS = {"server-1": 5, "server-2": 8}
STREAMS, RUNS = 200, 20
NORMAL_S = 3.0  # 200 streams and two servers share the two cores of a small machine


class Sampler:
    """Counts the connections of each server, by the name in its address, until it is left.

    Attributes:
        most: The most that were seen of each.
    """

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.most: dict[str, int] = {}
        self.samples = 0
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        while not self._stop.wait(0.01):
            for name, count in self._connection.execute(COUNT).fetchall():
                self.most[name] = max(self.most.get(name, 0), count)
            self.samples += 1


@contextmanager
def sampling(dsn: str) -> Iterator[Sampler]:
    sampler = Sampler(dsn)
    try:
        yield sampler
    finally:
        sampler.end()


class Stream:
    """A stream of events over a bare socket, which its client closes in the proper way, or never again."""

    def __init__(self, url: str, path: str, token: str) -> None:
        self._url = urlsplit(url)
        self._path = path
        self._token = token
        self._writer: asyncio.StreamWriter | None = None
        self.text = ""

    async def open(self) -> None:
        port = self._url.port
        assert port is not None
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
        head = f"GET {self._path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._token}\r\n\r\n"
        self._writer.write(head.encode())
        status = await self._reader.readline()
        assert status.split()[1] == b"200", status

    async def read_to(self, word: str) -> None:
        while word not in self.text:
            data = await self._reader.read(65536)
            assert data, f"the stream ended before {word!r}"
            self.text += data.decode()

    def freeze(self) -> None:
        """Read no more, as a machine that was unplugged: the server hears nothing of it."""
        assert self._writer is not None
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport has it

    def abort(self) -> None:
        """Close it at once."""
        if self._writer is not None:
            self._writer.transport.abort()


def test_two_hundred_streams_and_twenty_runs_on_two_servers_stay_in_the_budget_of_connections(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, database_env: Any, last_words: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        said = last_words(request)[1]
        words = [part for n in range(5) for part in (f"word{n} ", pause(0.01))]
        return [*words, call("work", n=said)] if said < 2 else "Done."

    with own_postgres(max_connections=MOST_CONNECTIONS) as database:
        folder = field_app(WORKING)
        url = database.fresh_database()
        model = model_env(strict_model(play))
        servers = [
            start(folder, env={**model, **database_env(f"{url}?application_name={name}", connections=most)})
            for name, most in BUDGETS.items()
        ]
        apis = [client(server) for server in servers]
        first = [api.submit("worker", "hello", wait=20) for api in apis]
        assert [run["status"] for run in first] == ["completed"] * 2
        with sampling(database.dsn()) as sampler:
            asyncio.run(_follow_and_run(servers, apis, first))
        assert sampler.samples > 20
        assert sampler.most.keys() == BUDGETS.keys()
        for name, most in sampler.most.items():
            assert most <= BUDGETS[name], "no more than the settings say, so there is nothing to give back either"
        for server in servers:
            assert "Traceback" not in server.log()
            assert "too many" not in server.log()


async def _follow_and_run(servers: list[Any], apis: list[Any], first: list[Any]) -> None:
    """Open streams on conversations of both servers, let half of them die, and run more in these conversations."""
    token = apis[0].http.headers["authorization"].removeprefix("Bearer ")
    paths = [f"/agents/worker/conversations/{run['conversation_id']}/events" for run in first]
    streams = [Stream(servers[n % 2].url, paths[n // 2 % 2], token) for n in range(STREAMS)]
    took: list[float] = []

    def run(n: int) -> dict[str, Any]:
        begun = time.monotonic()
        more = {"conversation_id": first[n]["conversation_id"]} if n < 2 else {}
        ended: dict[str, Any] = apis[n % 2].submit("worker", f"run {n}", wait=30, **more)
        took.append(time.monotonic() - begun)
        return ended

    try:
        await asyncio.gather(*(stream.open() for stream in streams))
        for stream in streams[: STREAMS // 4]:
            stream.freeze()
        for stream in streams[STREAMS // 4 : STREAMS // 2]:
            stream.abort()
        ended = await asyncio.gather(*(asyncio.to_thread(run, n) for n in range(RUNS)))
        assert [one["status"] for one in ended] == ["completed"] * RUNS
        assert statistics.median(took) < NORMAL_S, took
        for conversation in (0, 1):
            log = await asyncio.to_thread(apis[0].events, ended[conversation]["id"])
            its = [stream for n, stream in enumerate(streams) if n >= STREAMS // 2 and n // 2 % 2 == conversation]
            await asyncio.wait_for(asyncio.gather(*(stream.read_to(f"id: {log[-1].id}\n") for stream in its)), 20)
            told = {
                tuple(re.findall(r"^id: (\d+)\nevent: (?!message\.delta)", stream.text, re.MULTILINE)) for stream in its
            }
            assert len(told) == 1, "whichever server a client asked, it got each event, and got it once"
            assert {str(event.id) for event in log} <= set(*told)
    finally:
        for stream in streams:
            stream.abort()
        await asyncio.sleep(0)
