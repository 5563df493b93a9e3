"""O26, X06 and more: two server processes on one data folder are one service, whichever of them is asked."""

from __future__ import annotations

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, UserMessage
from amoxi_py.testing import Gate, call, pause

WORKING = '''
import asyncio, random
from amoxi_py import ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def hold(name: str, ctx: ToolContext) -> str:
    """Hold until the gate is open, or somebody stops it."""
    note("held", ctx, name=name)
    try:
        await gate(name)
    except asyncio.CancelledError:
        note("stopped", ctx, name=name, told=ctx.signal.cancelled)
        raise
    return f"held {name}"


@tool(needs_approval=True)
async def cancel_order(order: str, ctx: ToolContext) -> str:
    """Cancel an order."""
    note("cancelled", ctx, order=order)
    return f"cancelled {order}"


@tool(read_only=True)
async def work(n: int, ctx: ToolContext) -> int:
    """Work in small pieces."""
    for number in range(3):
        ctx.progress(f"{n}.{number}")
        await asyncio.sleep(random.random() * 0.02)
    return n


@agent(tools=[hold, cancel_order, work])
class Worker:
    """You work."""
'''


def last_message(request: ModelRequest) -> tuple[str, int]:
    """What the person said last, and how many replies there are to it."""
    place = max(n for n, message in enumerate(request.messages) if isinstance(message, UserMessage))
    said = sum(isinstance(message, AssistantMessage) for message in request.messages[place:])
    return request.messages[place].text, said  # type: ignore[union-attr]


def without_deltas(events: list[Any]) -> list[Any]:
    return [event for event in events if event.type != "message.delta"]


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_follow_approve_cancel_wait_and_erase_work_on_a_server_that_executes_nothing(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    talking = Gate()

    def play(request: ModelRequest) -> Any:
        text, said = last_message(request)
        if text == "order":
            return [call("cancel_order", order="A-1"), call("cancel_order", order="A-2")] if said == 0 else "Done."
        if text.startswith("hold"):
            return call("hold", name=text) if said == 0 else "Done."
        return [*(part for n in range(20) for part in (f"word{n} ", pause(0.02))), talking, "never"]

    folder = field_app(WORKING)
    env = model_env(strict_model(play))
    executing, serving = start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})
    here, there = client(serving), client(executing)

    order = here.submit("worker", "order")
    follower = reader(serving, order)
    follower.wait_for("run.waiting")
    waiting = here.run(order["id"])["waiting_for"]
    assert [item["arguments"]["order"] for item in waiting] == ["A-1", "A-2"]
    first, second = (item["call_id"] for item in waiting)
    assert here.decide(order["id"], first, "approve").status_code == 200
    assert here.decide(order["id"], second, "decline", reason="keep it").status_code == 200
    told = follower.wait_end()
    one_story(told)
    assert [line["order"] for line in folder.ledger("cancelled")] == ["A-1"]
    assert there.events(order["id"]) == without_deltas(told)
    assert here.decide(order["id"], first, "approve").status_code == 200
    assert here.decide(order["id"], first, "decline").status_code == 409

    held = here.submit("worker", "hold 1")
    follower = reader(serving, held)
    until(lambda: folder.ledger("held", name="hold 1"))
    assert here.cancel(held["id"])["status"] == "cancelled"
    until(lambda: folder.ledger("stopped", name="hold 1"), 60, "the tool on the other server hears of the cancel")
    assert [line["told"] for line in folder.ledger("stopped")] == [True]
    one_story(follower.wait_end(), "run.cancelled")

    talk = here.submit("worker", "talk")
    follower = reader(serving, talk)
    follower.wait_for("message.delta")
    assert here.cancel(talk["id"])["status"] == "cancelled"
    told = follower.wait_end()
    one_story(told, "run.cancelled")
    assert there.messages("worker", talk["conversation_id"])[-1]["status"] == "stopped"
    talking.open()

    replaced = here.submit("worker", "hold 2")
    until(lambda: folder.ledger("held", name="hold 2"))
    follower = reader(serving, path=f"/agents/worker/conversations/{replaced['conversation_id']}/events")
    newer = here.submit("worker", "hold 3", conversation_id=replaced["conversation_id"])
    until(lambda: folder.ledger("stopped", name="hold 2"))
    until(lambda: folder.ledger("held", name="hold 3"))
    folder.open_gate("hold 3")
    assert here.run(replaced["id"])["status"] == "cancelled"
    follower.wait_for("run.completed", run_id=newer["id"])
    assert [event.type for event in follower.events].count("run.cancelled") == 1

    folder.open_gate("hold 4")
    waited = here.submit("worker", "hold 4", wait=20)
    assert (waited["status"], waited["output"]) == ("completed", "Done.")

    erased = here.submit("worker", "hold 5")
    until(lambda: folder.ledger("held", name="hold 5"))
    path = f"/agents/worker/conversations/{erased['conversation_id']}"
    assert here.http.delete(path).status_code == 204
    until(lambda: folder.ledger("stopped", name="hold 5"))
    assert there.get_path(path).status_code == there.get_path(f"/runs/{erased['id']}").status_code == 404


def test_a_live_reader_and_a_later_one_have_the_same_list_in_200_trials_with_two_writers(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        if last_message(request)[1]:
            return "Done."
        return [*(call("work", n=n) for n in range(8)), call("cancel_order", order="A-1")]

    folder = field_app(WORKING)
    env = {**model_env(strict_model(play)), "AI_RUNS_PARALLEL_CALLS": "9"}
    servers = [start(folder, env=env), start(folder, env={**env, "AI_RUNS_WORKER": "false"})]
    apis = [client(server) for server in servers]
    chance = random.Random(6)
    seeds = [chance.random() for _ in range(200)]

    def trial(number: int) -> None:
        chance = random.Random(seeds[number])
        reading, later = apis if number % 2 else reversed(apis)
        run = apis[0].submit("worker", "work")
        decided_at, moment = chance.randrange(4, 34), 0
        live: list[Any] = []
        with reading.follow(f"/runs/{run['id']}/events") as events:
            for event in events:
                live.append(event)
                moment += 1
                if event.type == "approval.requested":
                    call_id = event.data["call_id"]
                if moment == decided_at or event.type == "run.waiting":
                    # the server that does not execute stores these between the events of the one that does
                    if number % 3 == 0:
                        apis[1].cancel(run["id"])
                    elif "approval.requested" in [one.type for one in live]:
                        apis[1].decide(run["id"], call_id, "approve" if number % 3 == 1 else "decline")
        end = "run.cancelled" if number % 3 == 0 else "run.completed"
        one_story(live, end)
        assert without_deltas(live) == later.events(run["id"])

    with ThreadPoolExecutor(10) as pool:
        for done in [pool.submit(trial, number) for number in range(200)]:
            done.result(60)
    approved = {line["run"] for line in folder.ledger("cancelled")}
    assert len(approved) == len(folder.ledger("cancelled")) <= 67


@pytest.mark.parametrize("count", [1, 2])
def test_64_conversations_at_once_with_a_long_reader_meet_no_lock_and_lose_no_event(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, one_story: Any, count: int
) -> None:
    def play(request: ModelRequest) -> Any:
        _, said = last_message(request)
        return [call("work", n=said), call("work", n=said + 10)] if said < 3 else "Done."

    folder = field_app(WORKING)
    env = model_env(strict_model(play))
    servers = [start(folder, env=env) for _ in range(count)]
    apis = [client(server) for server in servers]
    held = sqlite3.connect(f"file:{folder / 'data' / 'ai' / 'amoxi.db'}?mode=ro", uri=True, isolation_level=None)
    try:
        held.execute("BEGIN")
        assert held.execute("SELECT count(*) FROM run").fetchone() == (0,)

        def converse(number: int) -> tuple[str, list[Any]]:
            api = apis[number % count]
            run = api.submit("worker", f"conversation {number}")
            return run["id"], apis[(number + 1) % count].events(run["id"])

        with ThreadPoolExecutor(64) as pool:
            told = dict(pool.map(converse, range(64)))
        assert held.execute("SELECT count(*) FROM run").fetchone() == (0,), "it still reads what was there before"
    finally:
        held.close()
    for run_id, events in told.items():
        assert len(events) >= 20
        one_story(events)
        for api in apis:
            assert api.run(run_id)["status"] == "completed"
            assert api.events(run_id) == without_deltas(events)
    for server in servers:
        assert "locked" not in server.log()
        assert "Traceback" not in server.log()


def test_when_one_of_two_servers_stops_the_other_takes_its_runs_at_once_and_its_readers_too(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        text, said = last_message(request)
        return call("hold", name=text) if said == 0 else "Done."

    folder = field_app(WORKING, {"server": {"stop-grace-s": 0.5}})
    # no lease expires within this test: what is taken over was handed over
    env = {**model_env(strict_model(play)), "AI_RUNS_LEASE_MS": "120000"}
    leaving, staying = start(folder, env=env), start(folder, env=env)
    names = [f"run-{number}" for number in range(20)]
    runs = {name: client(leaving).submit("worker", name) for name in names}
    until(lambda: len(folder.ledger("held")) == 20)
    assert {line["pid"] for line in folder.ledger("held")} == {leaving.pid}
    moving = {name: reader(leaving, run) for name, run in runs.items()}
    for follower in moving.values():
        follower.wait_for("tool.called")
    leaving.process.terminate()
    for follower in moving.values():
        follower.moved(staying.url)
    assert leaving.wait_exit(60) == 0
    until(lambda: len(folder.ledger("held", pid=staying.pid)) == 20, 60, "the other server takes all of them up")
    api = client(staying)
    for name in names:
        folder.open_gate(name)
        ended = api.until_status(runs[name]["id"])
        assert (ended["status"], ended["attempt"]) == ("completed", 1), "a hand-over is no crash"
        one_story(moving[name].wait_end())
        calls = {line["call"] for line in folder.ledger("held", name=name)}
        assert len(calls) == 1, "taken up under the same call id"
    folder.open_gate("new")
    assert api.submit("worker", "new", wait=10)["status"] == "completed"
