"""X10: a pooler that lends connections for a transaction, closes idle ones and drops all of them harms no run."""

from __future__ import annotations

import time
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call, pause
from pgbouncer import PgBouncer, pgbouncer

WORKING = '''
import asyncio
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def hold(name: str, ctx: ToolContext) -> str:
    """Hold until the gate is open, or somebody stops it."""
    note("held", ctx, name=name)
    try:
        await gate(name)
    except asyncio.CancelledError:
        note("stopped", ctx, name=name)
        raise
    return f"held {name}"


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancelled", ctx, order=order)
    return f"cancelled {order}"


@tool(read_only=True)
async def work(count: int, ctx: ToolContext) -> int:
    """Work in small pieces."""
    for number in range(count):
        ctx.progress(str(number))
        await asyncio.sleep(0.05)
    return count


@agent(tools=[hold, cancel_order, work])
class Worker:
    """You work."""
'''
IDLE_S = 1
DEAF = "nothing is heard of other servers"
HEARD = "other servers are heard again"
FORGETS = "forgets prepared statements"


def play(last_words: Any) -> Any:
    def say(request: ModelRequest) -> Any:
        text, said = last_words(request)
        if said:
            return "Done."
        if text == "think":
            return ["Let me ", pause(2.5 * IDLE_S), "think."]
        tool, _, rest = text.partition(" ")
        name = {"hold": "name", "cancel_order": "order", "work": "count"}[tool]
        return call(tool, **{name: int(rest) if name == "count" else rest})

    return say


@pytest.mark.parametrize("direct", [False, True], ids=["pooler-alone", "listen-url"])
def test_runs_streams_decisions_and_cancels_work_over_two_servers_behind_a_pooler_that_drops_connections(
    postgres: Any,
    postgres_url: str,
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    last_words: Any,
    one_story: Any,
    until: Any,
    serve: Any,
    direct: bool,
) -> None:
    with pgbouncer(postgres, server_idle_timeout=IDLE_S, client_idle_timeout=2 * IDLE_S, default_pool_size=4) as pooler:
        folder = field_app(WORKING)
        env = {**model_env(strict_model(play(last_words))), **database_env(pooler.dsn(postgres_url))}
        if direct:
            env["AI_STORE_LISTEN_URL"] = postgres_url
        servers = [start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})]
        executing, serving = (client(server) for server in servers)

        thinking = reader(servers[1], serving.submit("worker", "think"))
        order = serving.submit("worker", "cancel_order A-1")
        follower = reader(servers[1], order)
        asked = follower.wait_for("approval.requested")
        assert serving.decide(order["id"], asked.data["call_id"], "approve").status_code == 200
        one_story(follower.wait_end())
        assert [line["order"] for line in folder.ledger("cancelled")] == ["A-1"]

        held = serving.submit("worker", "hold 1")
        follower = reader(servers[1], held)
        until(lambda: folder.ledger("held", name="1"))
        assert serving.cancel(held["id"])["status"] == "cancelled"
        until(lambda: folder.ledger("stopped", name="1"), 60, "the tool on the other server hears of the cancel")
        one_story(follower.wait_end(), "run.cancelled")
        one_story(thinking.wait_end())

        for what in ("RECONNECT", "KILL"):
            run = serving.submit("worker", "work 30")
            follower = reader(servers[1], run)
            follower.wait_for("tool.progress")
            drop(pooler, what, postgres_url)
            told = follower.wait_end()
            one_story(told)
            assert executing.events(run["id"]) == [event for event in told if event.type != "message.delta"]

        time_of_one = time.monotonic()
        assert serving.submit("worker", "work 1", wait=10)["status"] == "completed"
        assert time.monotonic() - time_of_one < 40
        for server in servers:
            if direct:
                until(lambda server=server: server.log().count(DEAF) == server.log().count(HEARD), 60, "it hears again")
            log = server.log()
            assert "Traceback" not in log
            assert direct or log.count(DEAF) == 1, log
            assert log.count(FORGETS) == 1, "said once"
        assert serving.run(order["id"])["attempt"] == 1

        doctor = serve(folder.path, command="doctor", env=env, wait_ready=False)
        doctor.wait_exit()
        assert ("LISTEN does not work over DATABASE_URL" in doctor.log()) == (not direct), doctor.log()
        assert ("what one server commits is heard by the others" in doctor.log()) == direct


def test_a_server_that_hears_only_itself_over_a_pooler_knows_that_it_hears_nobody(
    postgres: Any, postgres_url: str, field_app: Any, start: Any, client: Any, database_env: Any
) -> None:
    """Connections that are used again at once, as in a quiet pool, bring back what was rung over them."""
    with pgbouncer(postgres) as pooler:
        server = start(field_app(WORKING), env={**database_env(pooler.dsn(postgres_url)), "AI_MODEL": "offline"})
        server.wait_log(DEAF, 60)
        assert client(server).submit("worker", "hello", wait=10)["status"] == "completed"


def drop(pooler: PgBouncer, what: str, url: str) -> None:
    """Make the pooler open all connections to the database anew, or drop everybody's."""
    if what == "RECONNECT":
        pooler.admin("RECONNECT")
        return
    name = url.rpartition("/")[2]
    pooler.admin(f"KILL {name}")
    pooler.admin(f"RESUME {name}")
