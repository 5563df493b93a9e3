"""Tools that ask and wait, in real processes: no place is held, kills do no harm, and one answer counts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from amoxi_py.testing import call, reply

pytestmark = pytest.mark.crash

MOVER = '''
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def move(order_id: str, ctx: ToolContext) -> str:
    """Move an order."""
    note("begins", ctx)
    await ctx.step("label", note, "label", ctx)
    street = await ctx.ask("Which street?")
    note("knows", ctx, street=street)
    await gate("moved")
    await ctx.step("moved", note, "moved", ctx)
    paid = await ctx.wait_for("paid", timeout=60)
    await ctx.sleep(2.1)
    return f"{order_id} is in {street}, paid {paid}"


@tool(read_only=True)
def phone(ctx: SyncToolContext) -> str:
    """Ask, from a thread."""
    return "It is " + ctx.ask("Who?")


@tool(read_only=True)
async def slow(ctx: ToolContext) -> str:
    """Work until the gate opens."""
    note("slow", ctx)
    await gate("slow")
    return "slow is done"


@agent(tools=[move, phone, slow], on_busy="queue")
class Mover:
    """You move things."""
'''

SCRIPT = {
    "move A-1": [call("move", order_id="A-1"), "It is moved."],
    "both": [reply(call("slow"), call("phone")), "Both are done."],
    "*": ["Hello."],
}


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_waiting_run_holds_no_place_and_goes_on_after_kills_with_each_effect_once(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any, reader: Any
) -> None:
    model = strict_model(SCRIPT)
    folder = field_app(MOVER)
    env = {**model_env(model), "AI_RUNS_CONCURRENCY": "1", "AI_RUNS_LEASE_MS": "500"}
    server = start(folder, env=env)
    api = client(server)
    run = api.submit("mover", "move A-1")
    [asked] = api.until_status(run["id"], "waiting")["waiting_for"]
    assert (asked["kind"], asked["question"], asked["schema"]) == ("question", "Which street?", None)
    # the one place of this server is free for others
    assert api.submit("mover", "hello", wait=10)["status"] == "completed"
    server.kill9()
    server = start(folder, env=env, port=server.port)
    api, person = client(server), reader(server, run)
    assert api.run(run["id"])["waiting_for"] == [asked]
    assert api.answer(run["id"], asked["call_id"], "Elm St")["answer"] == "Elm St"
    until(lambda: folder.ledger("knows"))
    server.kill9()  # in the middle of the tool, after its answer
    folder.open_gate("moved")
    server = start(folder, env=env, port=server.port)
    api = client(server)
    [waiting] = api.until_status(run["id"], "waiting")["waiting_for"]
    assert (waiting["kind"], waiting["name"]) == ("signal", "paid")
    api.signal(run["id"], "paid", 7)
    ended = api.until_status(run["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 2), "one kill hit a run that was executed"
    told = person.wait_end()
    one_story(told)
    assert [event.type for event in told].count("question.asked") == 1
    [done] = [event for event in told if event.type == "tool.completed"]
    assert done.data["result"] == "A-1 is in Elm St, paid 7"
    assert len(folder.ledger("label")) == len(folder.ledger("moved")) == 1
    assert {line["call"] for line in folder.ledger("begins")} == {asked["call_id"]}
    assert len(model.requests) == 3, "no reply was asked for again"


@pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)
def test_an_answer_at_another_server_reaches_a_run_that_is_executed_and_one_of_two_counts(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(MOVER)
    env = model_env(strict_model(SCRIPT))
    first, second = start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    here, there = client(first), client(second)
    run = here.submit("mover", "both")
    until(lambda: folder.ledger("slow"))
    [asked] = until(lambda: [one for one in there.run(run["id"])["waiting_for"] if one["kind"] == "question"])
    path = f"/runs/{run['id']}/answers/{asked['call_id']}"
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda one: one[0].post_path(path, {"answer": one[1]}), ((here, "Bo"), (there, "Cy"))))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    [counted] = [answer.json()["answer"] for answer in answers if answer.status_code == 200]
    begun = time.monotonic()

    def result() -> Any:
        calls = here.messages("mover", run["conversation_id"])[-1]["calls"]
        return next(one["result"] for one in calls if one["tool"] == "phone")

    assert until(result) == f"It is {counted}", "while the other call of the reply still runs"
    assert time.monotonic() - begun < 60
    assert here.run(run["id"])["status"] == "running"
    folder.open_gate("slow")
    assert here.until_status(run["id"])["status"] == "completed"
