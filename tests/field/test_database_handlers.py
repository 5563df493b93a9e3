"""Handlers of events with two servers on a database: none is lost while many commit at once, and after a kill."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

RUNS = 30
WORKING = '''
import os
from amoxi_py import RunEvent, ToolContext, agent, on, tool
from .ledger import note


@tool(idempotent=True)
async def work(n: int, ctx: ToolContext) -> int:
    """Work."""
    return n


@agent(tools=[work])
class Worker:
    """You work."""


@on("tool.completed", "run.completed")
async def count(event: RunEvent) -> None:
    note("heard", run=event.run_id, type=event.type, id=event.id, server=os.environ["SERVER_OF_TEST"])
'''


def test_each_event_is_handled_while_many_commit_at_once_and_the_one_that_handles_is_killed(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    postgres_url: str,
    last_words: Any,
    until: Any,
) -> None:
    def play(request: ModelRequest) -> Any:
        said = last_words(request)[1]
        return [call("work", n=n) for n in range(4)] if said < 2 else "Done."

    folder = field_app(WORKING)
    env = {**model_env(strict_model(play)), **database_env(postgres_url)}
    servers = {name: start(folder, env={**env, "SERVER_OF_TEST": name}) for name in ("one", "two", "three")}
    apis = {name: client(server) for name, server in servers.items()}
    first = apis["one"].submit("worker", "first", wait=20)
    until(lambda: folder.ledger("heard", run=first["id"], type="run.completed"))
    (handling,) = {line["server"] for line in folder.ledger("heard")}
    left = [name for name in servers if name != handling]
    with ThreadPoolExecutor(12) as pool:
        runs = list(pool.map(lambda n: apis[left[n % 2]].submit("worker", f"run {n}")["id"], range(RUNS)))
        until(lambda: len(folder.ledger("heard")) > 30)
        servers[handling].kill9()
        runs += pool.map(lambda n: apis[left[n % 2]].submit("worker", f"more {n}")["id"], range(RUNS))
    reading = apis[left[0]]
    wanted = set()
    for run_id in [first["id"], *runs]:
        assert reading.until_status(run_id, timeout=30)["status"] == "completed"
        for event in reading.events(run_id):
            if event.type in ("tool.completed", "run.completed"):
                wanted.add((run_id, event.type, event.id))
    assert len(wanted) == (2 * RUNS + 1) * 9

    def heard() -> set[tuple[str, str, int]]:
        return {(line["run"], line["type"], line["id"]) for line in folder.ledger("heard")}

    until(lambda: heard() >= wanted, 30, "each event is heard of")
    assert heard() == wanted
    by_others = {line["server"] for line in folder.ledger("heard")} - {handling}
    assert len(by_others) == 1, "one other took it over"
    doubled = len(folder.ledger("heard")) - len(wanted)
    assert doubled <= 16, "only what was on its way is told again"


def test_an_event_whose_commit_takes_longer_than_that_of_a_later_one_is_handled_too(
    field_app: Any, start: Any, client: Any, database_env: Any, postgres_url: str, until: Any
) -> None:
    folder = field_app(WORKING)
    env = {**database_env(postgres_url), "SERVER_OF_TEST": "one", "AI_MODEL": "offline"}
    api = client(start(folder, env=env))
    first = api.submit("worker", "first", wait=20)
    until(lambda: folder.ledger("heard", run=first["id"]))
    with psycopg.connect(postgres_url) as slow:
        slow.execute("UPDATE amoxi.conversation SET last_seq = last_seq + 1")
        slow.execute(
            "INSERT INTO amoxi.event (conversation, run, seq, turn, n, type, data) "
            "SELECT conversation, run, seq + 1, turn, n, type, data FROM amoxi.event ORDER BY seq DESC LIMIT 1"
        )
        later = api.submit("worker", "later", wait=20)
        assert later["status"] == "completed"
        with suppress(AssertionError):  # it may wait for what is committed first, and it may not pass that over
            until(lambda: folder.ledger("heard", run=later["id"]), 1)
    until(lambda: folder.ledger("heard", run=later["id"]))
    until(lambda: len(folder.ledger("heard", run=first["id"])) == 2, 60, "what was committed late is heard")
