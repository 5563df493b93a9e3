"""X12, X13: several processes behind one port, forked after the app was loaded, are one service."""

from __future__ import annotations

from typing import Any

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

WORKERS, RUNS = 4, 40
WORKING = '''
import os
from fastapi import FastAPI
from amoxi_py import ToolContext, agent, configure, tool
from .ledger import gate, note


@tool(idempotent=True)
async def hold(name: str, ctx: ToolContext) -> str:
    """Hold until the gate is open."""
    note("held", ctx, name=name)
    await gate(name)
    return f"held {name}"


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancelled", ctx, order=order)
    return f"cancelled {order}"


@agent(tools=[hold, cancel_order])
class Worker:
    """You work."""


@configure
def say_which(app: FastAPI) -> None:
    @app.get("/pid")
    async def pid() -> int:
        return os.getpid()
'''


def test_runs_end_and_every_door_works_whichever_of_four_processes_behind_one_port_is_asked(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    database_env: Any,
    postgres_url: str,
    last_words: Any,
    until: Any,
    one_story: Any,
    at_once: Any,
) -> None:
    def play(request: ModelRequest) -> Any:
        text, said = last_words(request)
        tool, _, rest = text.partition(" ")
        return "Done." if said else call(tool, **{"name" if tool == "hold" else "order": rest})

    folder = field_app(WORKING)
    env = {
        **model_env(strict_model(play)),
        **database_env(postgres_url, connections=5),
        "AI_RUNS_CONCURRENCY": str(RUNS // WORKERS),
    }
    server = start(folder, env=env, args=["--workers", str(WORKERS)])
    server.wait_log(f"({WORKERS} processes)", 60)  # the first of them answers before the others have begun
    api = client(server, connection="close")  # each request may come to another process
    pids: set[int] = set()

    def ask_which() -> None:
        pids.add(api.get_path("/pid").json())

    runs = at_once(*(lambda n=n: api.submit("worker", f"hold all-{n}") for n in range(RUNS)))
    until(lambda: len(folder.ledger("held")) == RUNS, 20, "all are executed, at once")
    executing = {line["pid"] for line in folder.ledger("held")}
    assert len(executing) == WORKERS, "each process executes"
    assert server.pid not in executing, "their parent does not"
    for n in range(RUNS):
        folder.open_gate(f"all-{n}")
    for run in runs:
        assert api.until_status(run["id"])["status"] == "completed"

    def round_of_doors(number: int) -> None:
        order = api.submit("worker", f"cancel_order A-{number}")
        with api.follow(f"/runs/{order['id']}/events") as events:
            told = []
            for event in events:
                told.append(event)
                if event.type == "run.waiting":
                    break
        call_id = api.run(order["id"])["waiting_for"][0]["call_id"]
        assert api.decide(order["id"], call_id, "approve").status_code == 200
        one_story([*told, *api.events(order["id"], after=told[-1].id)])
        ask_which()
        held = api.submit("worker", f"hold never-{number}")
        until(lambda: folder.ledger("held", name=f"never-{number}"))
        assert api.cancel(held["id"])["status"] == "cancelled"
        one_story(api.events(held["id"]), "run.cancelled")

    at_once(*(lambda n=n: round_of_doors(n) for n in range(8)))
    assert sorted(line["order"] for line in folder.ledger("cancelled")) == [f"A-{n}" for n in range(8)]
    assert len({line["pid"] for line in folder.ledger("cancelled")}) > 1
    until(lambda: at_once(*[ask_which] * 8) and len(pids) > 1, 20, "several processes answer")
    assert pids <= executing
    assert "Traceback" not in server.log()
    assert server.stop() == 0
