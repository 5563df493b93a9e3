"""O31, O32: two versions of an app on one database, as during every deploy: no run is lost, and none is given up."""

from __future__ import annotations

import time
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)]

AT_ONCE_S = 30.0  # a hand-over waits for no lease (60 s there); the slack is for a busy machine

OLD = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(needs_approval=True)
async def cancel_order(order_id: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancel", ctx)
    return f"{order_id} is cancelled"


@tool(idempotent=True)
async def refund(order_id: str, ctx: ToolContext) -> str:
    """Refund an order, slowly."""
    note("refund", ctx)
    await gate("refund")
    note("refunded", ctx)
    return f"{order_id} is refunded"


@tool
async def charge(order_id: str, ctx: ToolContext) -> str:
    """Charge; nobody may do that twice."""
    note("charge", ctx)
    await gate("charge")
    return f"{order_id} is charged"


@agent(tools=[cancel_order, refund, charge], on_busy="queue")
class Shop:
    """You run a shop."""
'''

NEW = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(needs_approval=True)
async def exchange(order_id: str, ctx: ToolContext) -> str:
    """Exchange an order."""
    note("exchange", ctx)
    return f"{order_id} is exchanged"


@tool(idempotent=True)
async def restock(order_id: str, ctx: ToolContext) -> str:
    """Put an order back, slowly."""
    note("restock", ctx)
    await gate("restock")
    return f"{order_id} is put back"


@agent
class Helper:
    """You help."""


'''


def newer(source: str) -> str:
    """The next version: two tools and an agent more, a tool with one more argument, other instructions."""
    source = source.replace("tools=[", "tools=[exchange, restock, ").replace("You run a shop.", "You run a new shop.")
    source = source.replace(
        "refund(order_id: str, ctx: ToolContext)", 'refund(order_id: str, ctx: ToolContext, why: str = "")'
    )
    head, at, agent = source.partition("@agent")
    return head + NEW.partition("\n\n\n")[2] + at + agent


@pytest.fixture
def answer(last_words: Any) -> Any:
    """A model that calls the tool that a person names first."""

    def script(request: ModelRequest) -> Any:
        text, said = last_words(request)
        tool, _, rest = text.partition(" ")
        if said or tool == "hello":
            return f"Done: {text}"
        return call(tool, order_id="A-1001", **({"why": "broken"} if rest == "why" else {}))

    return script


def test_runs_of_the_old_version_go_on_in_the_new_one_at_once_when_the_old_one_is_stopped(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    one_story: Any,
    strict_model: Any,
    model_env: Any,
    answer: Any,
    requests_about: Any,
) -> None:
    model = strict_model(answer)
    env = {**model_env(model), "AI_RUNS_LEASE_MS": "60000", "SERVER_STOP_GRACE_S": "0.5"}
    before, after = field_app(OLD), field_app(newer(OLD))
    old = start(before, env=env)
    here = client(old)
    names = ("cancel_order 1", "cancel_order 2", "cancel_order 3", "refund", "charge")
    runs = {text: here.submit("shop", text) for text in names}
    wanted = {text: here.until_status(runs[text]["id"], "waiting")["waiting_for"][0] for text in names[:3]}
    behind = here.submit("shop", "hello", conversation_id=runs["cancel_order 1"]["conversation_id"])
    until(lambda: before.ledger("refund") and before.ledger("charge"))
    new = start(after, env=env)
    there = client(new)
    told = {text: reader(new, run) for text, run in runs.items()}
    for text in names:
        told[text].wait_for("tool.called")
    # through the door of either version while both are there
    assert there.decide(runs["cancel_order 1"]["id"], wanted["cancel_order 1"]["call_id"], "approve").status_code == 200
    assert here.decide(runs["cancel_order 2"]["id"], wanted["cancel_order 2"]["call_id"], "decline").status_code == 200
    assert there.until_status(runs["cancel_order 1"]["id"])["output"] == "Done: cancel_order 1"
    assert here.until_status(runs["cancel_order 2"]["id"])["output"] == "Done: cancel_order 2"
    assert there.until_status(behind["id"])["output"] == "Done: hello"
    old.process.terminate()
    asked = time.monotonic()
    until(lambda: after.ledger("refund"))
    assert time.monotonic() - asked < 0.5 + AT_ONCE_S
    assert old.wait_exit(60) == 0
    assert there.run(runs["cancel_order 3"]["id"])["waiting_for"] == [wanted["cancel_order 3"]]
    assert there.decide(runs["cancel_order 3"]["id"], wanted["cancel_order 3"]["call_id"], "approve").status_code == 200
    after.open_gate("refund")
    for text in names:
        ended = there.until_status(runs[text]["id"])
        assert (ended["status"], ended["output"], ended["attempt"]) == ("completed", f"Done: {text}", 1)
        one_story(told[text].wait_end())
    assert len({line["call"] for folder in (before, after) for line in folder.ledger("refund")}) == 1
    assert (len(before.ledger("refunded")), len(after.ledger("refunded"))) == (0, 1)
    assert (len(before.ledger("charge")), len(after.ledger("charge"))) == (1, 0)
    [charged] = [event.data for event in told["charge"].events if event.type == "tool.completed"]
    assert "outcome is unknown" in charged["result"]
    assert len(before.ledger("cancel")) + len(after.ledger("cancel")) == 2
    first, second = requests_about(model, "refund")
    assert (first.instructions, second.instructions) == ("You run a shop.", "You run a new shop.")
    assert "Traceback" not in old.log() + new.log()


def test_an_old_server_leaves_to_the_new_ones_what_only_they_can_do(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    lease_s: float,
    strict_model: Any,
    model_env: Any,
    answer: Any,
) -> None:
    env = model_env(strict_model(answer))
    before, after = field_app(OLD), field_app(newer(OLD))
    old = start(before, env=env)
    new, door = start(after, env=env), start(after, env={**env, "AI_RUNS_WORKER": "false"})
    there, here = client(door), client(old)
    texts = ("exchange 1", "exchange 2", "restock", "refund why")
    runs = {text: client(new).submit("shop", text) for text in texts}
    asked = {text: there.until_status(runs[text]["id"], "waiting")["waiting_for"][0] for text in texts[:2]}
    until(lambda: after.ledger("restock") and after.ledger("refund"))
    new.kill9()
    for text, api in zip(texts[:2], (here, there), strict=True):
        assert api.decide(runs[text]["id"], asked[text]["call_id"], "approve").status_code == 200
    runs["hello"] = there.submit("helper", "hello")
    plain = there.submit("shop", "hello", wait=20)
    assert plain["output"] == "Done: hello", "the old server works on"
    for run in runs.values():
        old.wait_log(f"run {run['id']} is left to a server of another version", lease_s + 60)
    assert [
        there.run(run["id"])["status"]
        for run in runs.values()
        if there.run(run["id"])["status"] in ("failed", "completed")
    ] == []
    after.open_gate("restock")
    after.open_gate("refund")
    start(after, env=env)
    for text, run in runs.items():
        ended = there.until_status(run["id"], timeout=60)
        assert (ended["status"], ended["output"]) == ("completed", f"Done: {text}")
        events = there.events(run["id"])
        one_story(events)
        results = [event.data for event in events if event.type == "tool.completed"]
        assert [one["is_error"] for one in results] == ([] if text == "hello" else [False])
    assert not before.ledger()
    for what, count in (("exchange", 2), ("restock", 1), ("refund", 1)):
        assert len({line["call"] for line in after.ledger(what)}) == count
