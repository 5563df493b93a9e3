"""Agents that ask agents, on servers that die: child runs go on where they stopped, and their effects happen once."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.crash

ASKING = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call, reply
from .ledger import gate, note


@tool(idempotent=True)
async def charge(who: str, ctx: ToolContext) -> str:
    """Charge somebody once."""
    ctx.progress(f"charging {who}")

    async def once() -> str:
        note("charged", ctx, who=who)
        return who

    await ctx.step("charge", once)
    note("holding", ctx, who=who)
    try:
        await gate(who)
    finally:
        note("left", ctx, who=who, told=ctx.signal.cancelled)
    return f"charged {who}"


@tool(needs_approval=True)
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay."""
    note("paid", ctx, amount=amount)
    return f"paid {amount}"


def says(who):
    def play(request):
        note("asked", who=who, replies=sum(type(one).__name__ == "AssistantMessage" for one in request.messages))
        text = next(one.text for one in reversed(request.messages) if type(one).__name__ == "UserMessage")
        if type(request.messages[-1]).__name__ == "ToolResult":
            return f"{who} is done."
        return SCRIPT[text]
    return ScriptedModel(play)


SCRIPT = {
    "hello": reply(call("ask_desk", message="Charge"), call("ask_desk", message="Pay")),
    "both": reply(call("charge", who="front"), call("ask_desk", message="Charge")),
    "Charge": call("charge", who="desk"),
    "Pay": call("pay", amount=7),
}


@agent(tools=[charge, pay], model=says("desk"), expose=False)
class Desk:
    """You do the work."""


@agent(tools=[charge], agents=[Desk], model=says("front"))
class Front:
    """You talk to people."""
'''
BOTH_STORES = pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)


def answers(folder: Any, who: str) -> list[int]:
    """How far each request of a model was."""
    return sorted(line["replies"] for line in folder.ledger("asked", who=who))


@BOTH_STORES
def test_after_a_kill_a_run_and_those_below_it_go_on_and_their_approvals_are_decided_at_the_root(
    field_app: Any, start: Any, client: Any, reader: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(ASKING)
    first = start(folder)
    api = client(first)
    run = api.submit("front", "hello")
    until(lambda: folder.ledger("holding"))
    until(lambda: sorted(one["kind"] for one in api.run(run["id"])["waiting_for"]) == ["approval", "child", "child"])
    first.kill9()

    second = start(folder)
    api = client(second)
    follower = reader(second, run)
    until(lambda: len(folder.ledger("holding")) == 2, what="the tool of the child is taken up again")
    waiting = {one["kind"]: one for one in api.run(run["id"])["waiting_for"]}
    (approval,) = api.get_path("/approvals").json()["items"]
    assert approval["call_id"] == waiting["approval"]["call_id"]
    assert (approval["run_id"], approval["agent"], approval["tool"]) == (run["id"], "front", "pay")
    place = f"/runs/{run['id']}/approvals/{approval['call_id']}"
    assert api.post_path(f"/agents/desk{place}", {"decision": "approve"}).status_code == 404
    assert client(second, "globex").post_path(place, {"decision": "approve"}).status_code == 404
    decided = api.post_path(f"/agents/front{place}", {"decision": "approve"})
    assert (decided.status_code, decided.json()["run_id"]) == (200, run["id"])
    until(lambda: folder.ledger("paid"))
    folder.open_gate("desk")
    ended = api.until_status(run["id"])
    assert (ended["status"], ended["output"]) == ("completed", "front is done.")
    told = follower.wait_end()
    one_story(told)
    assert [event.data["text"] for event in told if event.type == "tool.progress"] == ["charging desk"] * 2
    assert len(folder.ledger("charged")) == len(folder.ledger("paid")) == 1
    assert answers(folder, "front") == [0, 1]
    assert answers(folder, "desk") == [0, 0, 1, 1]
    assert ended["usage"]["requests"] == 6
    assert [item["id"] for item in api.get_path("/runs").json()["items"]] == [run["id"]]


@BOTH_STORES
@pytest.mark.parametrize("dies", ["parent", "child"])
def test_the_server_of_the_parent_or_of_the_child_dies_and_the_other_one_goes_on(
    field_app: Any, start: Any, client: Any, until: Any, dies: str
) -> None:
    folder = field_app(ASKING)
    narrow = start(folder, env={"AI_RUNS_CONCURRENCY": "1"})
    run = client(narrow).submit("front", "both")
    until(lambda: folder.ledger("holding", who="front"))
    wide = start(folder)
    until(lambda: folder.ledger("holding", who="desk"))
    assert folder.ledger("holding", who="front")[0]["pid"] != folder.ledger("holding", who="desk")[0]["pid"]
    if dies == "parent":
        narrow.kill9()
        api, taken_up = client(wide), "front"
    else:
        wide.kill9()
        api, taken_up = client(narrow), "desk"
        folder.open_gate("front")  # its only place is taken until the parent waits
    until(lambda: len(folder.ledger("holding", who=taken_up)) == 2)
    folder.open_gate("front")
    folder.open_gate("desk")
    ended = api.until_status(run["id"])
    assert (ended["status"], ended["output"]) == ("completed", "front is done.")
    assert sorted(line["who"] for line in folder.ledger("charged")) == ["desk", "front"]
    assert (answers(folder, "front"), answers(folder, "desk")) == ([0, 1], [0, 1])


@BOTH_STORES
def test_to_cancel_a_run_at_any_server_ends_the_code_of_those_below_it_on_another_one(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(ASKING)
    executing = start(folder)
    serving = start(folder, env={"AI_RUNS_WORKER": "false"})
    api = client(serving)
    run = api.submit("front", "hello")
    until(lambda: folder.ledger("holding"))
    until(lambda: api.run(run["id"])["status"] == "waiting")
    assert api.cancel(run["id"])["status"] == "cancelled"
    (left,) = until(lambda: folder.ledger("left"))
    assert (left["who"], left["told"], left["pid"]) == ("desk", True, executing.pid)
    assert api.get_path("/approvals").json()["items"] == []
    (asking, paying) = api.messages("front", run["conversation_id"])[1]["calls"]
    assert (asking["status"], paying["status"]) == ("stopped", "stopped")
    assert folder.ledger("paid") == []
