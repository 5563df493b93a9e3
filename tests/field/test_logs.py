"""What happened to a run can be followed in the server's log: one line each, and no value of a call in any."""

from __future__ import annotations

import re
from typing import Any

import pytest

from amoxi_py.testing import call

pytestmark = pytest.mark.crash

APP = '''
from amoxi_py import ToolContext, ToolError, agent, tool
from .ledger import gate, note


@tool(retries=2, idempotent=True)
async def shaky(order: str, ctx: ToolContext) -> str:
    """Fail twice."""
    note("shaky", ctx)
    if ctx.attempt < 3:
        raise OSError("no line to the shop")
    return "done"


@tool
async def refusing(order: str) -> str:
    """Refuse."""
    raise ToolError(f"{order} is refused")


@tool
async def charge(order: str, ctx: ToolContext) -> str:
    """Charge."""
    note("charge", ctx)
    await gate("charge")
    return "charged"


@tool(needs_approval=True)
async def send(order: str) -> str:
    """Send."""
    return "sent"


@agent(tools=[shaky, refusing, charge, send], max_turns=3)
class Till:
    """You take money."""
'''
SECRET = "SECRET-4711"


def call_of(api: Any, run: dict[str, Any]) -> str:
    [call_id] = [each["call_id"] for m in api.messages("till", run["conversation_id"]) for each in m["calls"]]
    return str(call_id)


def test_the_story_of_a_run_is_in_the_log_with_its_run_call_tool_and_attempt(
    field_app: Any, start: Any, client: Any, until: Any, strict_model: Any, model_env: Any
) -> None:
    names = ("shaky", "refusing", "charge", "send")
    script: dict[str, Any] = {name: [call(name, order=SECRET), "Done."] for name in names}
    script["again"] = [call("shaky", order=SECRET)] * 9
    folder = field_app(APP)
    model = strict_model(script)
    server = start(folder, env=model_env(model))
    api = client(server)

    run = api.submit("till", "shaky", wait=20)
    place = f"run {run['id']}, call {call_of(api, run)}, tool 'shaky', attempt 1"
    assert [f"{place}, try {n} raised OSError" in server.log() for n in (1, 2, 3)] == [True, True, False]

    run = api.submit("till", "refusing", wait=20)
    assert f"{call_of(api, run)}, tool 'refusing', attempt 1, try 1 raised ToolError" in server.log()

    run = api.submit("till", "send")
    until(lambda: api.run(run["id"])["status"] == "waiting")
    api.decide(run["id"], call_of(api, run), "approve")
    until(lambda: api.run(run["id"])["status"] == "completed")
    assert f"run {run['id']}, call {call_of(api, run)}, tool 'send': approve by api:acme" in server.log()
    assert f"run {run['id']} goes on after turn 1, in attempt 1" in server.log()

    run = api.submit("till", "again", wait=20)
    assert run["error"]["code"] == "max_turns"
    assert f"run {run['id']} failed in attempt 1: max_turns" in server.log()

    run = api.submit("till", "charge")
    until(lambda: folder.ledger("charge"))
    logs = [server.log()]
    server.kill9()
    server = start(folder, env=model_env(model))
    api = client(server)
    until(lambda: api.run(run["id"])["status"] == "completed")
    assert f"run {run['id']} goes on after turn 1, in attempt 2" in server.log()
    unknown = rf"run {run['id']}, call \S+, tool 'charge', attempt 2, try \d: its outcome is unknown"
    assert re.search(unknown, server.log())
    logs.append(server.log())
    assert [SECRET in log for log in logs] == [False, False]
