"""Crashes of one run without a new checkpoint between them end it as failed; nothing else counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

pytestmark = pytest.mark.crash

POISON = '''
import os, signal
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def poison(ctx: ToolContext) -> str:
    """End the process each time."""
    note("poison", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tool
async def poison_unsafe(ctx: ToolContext) -> str:
    """End the process."""
    note("poison", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotent=True)
async def stairs(ctx: ToolContext) -> str:
    """End the process once in each of three steps."""
    for n in range(3):
        await ctx.step(f"stair {n}", climb, n, ctx)
    return "up"


async def climb(n: int, ctx: ToolContext) -> None:
    note("stair", ctx, n=n)
    if ctx.attempt == n + 1:
        os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Wait for the gate."""
    note("hold", ctx)
    await gate("hold")
    return "held"


@tool(needs_approval=True)
async def ask(ctx: ToolContext) -> str:
    """Ask first."""
    return "asked"


NAMES = ("poison", "poison_unsafe", "stairs", "hold", "ask")
SCRIPT = {name: [call(name), f"{name} done"] for name in NAMES}


@agent(tools=[poison, poison_unsafe, stairs, hold, ask], model=ScriptedModel(SCRIPT))
class Lab:
    """You try things."""
'''


def test_a_run_that_crashes_its_server_each_time_fails_after_max_attempts(
    field_app: Any, start: Any, client: Any, one_story: Any
) -> None:
    folder = field_app(POISON)
    server = start(folder, env={"AI_RUNS_MAX_ATTEMPTS": "3"}, args=["--workers", "2"])
    api = client(server)
    run = api.until_status(api.submit("lab", "poison")["id"], timeout=60, patient=True)
    assert (run["status"], run["error"]["code"]) == ("failed", "max_attempts")
    assert len(folder.ledger("poison")) == 3
    events = api.events(run["id"], after=0)
    one_story(events, end="run.failed")
    unsafe = api.submit("lab", "poison_unsafe")
    assert api.until_status(unsafe["id"], patient=True)["status"] == "completed"
    assert len(folder.ledger("poison")) == 4


def test_crashes_with_a_new_checkpoint_between_them_do_not_end_a_run(field_app: Any, start: Any, client: Any) -> None:
    folder = field_app(POISON)
    server = start(folder, env={"AI_RUNS_MAX_ATTEMPTS": "2"}, args=["--workers", "2"])
    api = client(server)
    run = api.until_status(api.submit("lab", "stairs")["id"], timeout=60, patient=True)
    assert (run["status"], run["attempt"]) == ("completed", 4)
    assert [line["n"] for line in folder.ledger("stair")] == [0, 0, 1, 1, 2, 2]


def test_orderly_stops_and_waiting_do_not_count_as_crashes(field_app: Any, start: Any, client: Any, until: Any) -> None:
    folder = field_app(POISON)
    env = {"AI_RUNS_MAX_ATTEMPTS": "1", "SERVER_STOP_GRACE_S": "0"}
    server = start(folder, env=env)
    api = client(server)
    held, asking = api.submit("lab", "hold")["id"], api.submit("lab", "ask")["id"]
    api.until_status(asking, "waiting")
    for _ in range(2):
        until(partial(folder.ledger, "hold", pid=server.pid))
        assert server.stop() == 0
        server = start(folder, env=env)
    api = client(server)
    until(lambda: folder.ledger("hold", pid=server.pid))
    folder.open_gate("hold")
    run = api.until_status(held)
    assert (run["status"], run["attempt"]) == ("completed", 1)
    [waiting] = api.run(asking)["waiting_for"]
    assert api.decide(asking, waiting["call_id"], "approve").status_code == 200
    run = api.until_status(asking)
    assert (run["status"], run["attempt"]) == ("completed", 1)
