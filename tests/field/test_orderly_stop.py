"""An orderly stop loses nothing that a hard kill would have kept, and nothing holds it up."""

# O32; its MCP part is in tests/mcp/test_mcp_processes.py

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytestmark = pytest.mark.crash

GRACE_S = 1.5
STOPPED_WITHIN_S = GRACE_S + 25  # the slack is for a busy machine
ENV = {"SERVER_STOP_GRACE_S": str(GRACE_S), "AI_RUNS_LEASE_MS": "60000"}
AT_ONCE_S = 30.0  # a hand-over waits for no lease (60 s here); the slack is for a busy machine

APP = '''
import asyncio
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.testing import Gate, ScriptedModel, call, reply
from .ledger import gate, gate_sync, note


@tool
async def short(ctx: ToolContext) -> str:
    """End soon."""
    note("short", ctx)
    await gate("short")
    note("short ended", ctx)
    return "short"


@tool(idempotent=True)
async def long(ctx: ToolContext) -> str:
    """End when the gate is opened."""
    note("long", ctx)
    await ctx.step("one", put, ctx)
    try:
        await gate("long")
    except Exception:
        note("caught", ctx)
    return "long"


async def put(ctx: ToolContext) -> None:
    note("step", ctx)


@tool
async def long_unsafe(ctx: ToolContext) -> str:
    """End when the gate is opened; nobody may do that twice."""
    note("unsafe", ctx)
    await gate("long")
    note("unsafe ended", ctx)
    return "unsafe"


@tool(idempotent=True)
def in_thread(ctx: SyncToolContext) -> str:
    """Compute in a thread until the gate is opened."""
    note("thread", ctx)
    gate_sync("long")
    return "thread"


@tool
def in_thread_unsafe(ctx: SyncToolContext) -> str:
    """Compute in a thread; nobody may do that twice."""
    note("thread unsafe", ctx)
    gate_sync("long")
    return "thread unsafe"


@tool(idempotent=True)
async def stubborn(ctx: ToolContext) -> str:
    """Take no notice of being told to stop."""
    note("stubborn", ctx)
    while True:
        try:
            await gate("long")
            return "stubborn"
        except BaseException:
            note("told", ctx)


@tool(needs_approval=True)
async def ask(ctx: ToolContext) -> str:
    """Ask first."""
    note("approved", ctx)
    return "asked"


class FromFile:
    """Waits for a gate in the middle of an answer."""

    async def wait(self):
        note("answering")
        await gate("answer")


NAMES = ("short", "long", "long_unsafe", "in_thread", "in_thread_unsafe", "stubborn", "ask")
SCRIPT = {name: [call(name), f"{name} done"] for name in NAMES} | {"model": [reply("It ", FromFile(), "is said.")]}


@agent(
    tools=[short, long, long_unsafe, in_thread, in_thread_unsafe, stubborn, ask],
    model=ScriptedModel(SCRIPT),
    on_busy="queue",
)
class Stopper:
    """You stop."""
'''


def begin(api: Any, folder: Any, until: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Submit a run of each name, and wait until all are in their middle."""
    runs = {name: api.submit("stopper", name) for name in names}
    kinds = {"long_unsafe": "unsafe", "in_thread": "thread", "in_thread_unsafe": "thread unsafe", "model": "answering"}
    for name in names:
        if name != "ask":
            until(lambda name=name: folder.ledger(kinds.get(name, name)))
    return runs


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGTERM] * 2, [signal.SIGINT], [signal.SIGINT] * 3])
def test_a_stop_ends_within_the_grace_and_its_runs_go_on_at_once_after_the_start(
    field_app: Any, start: Any, client: Any, reader: Any, until: Any, one_story: Any, signals: list[int]
) -> None:
    folder = field_app(APP)
    server = start(folder, env=ENV)
    api = client(server)
    runs = begin(api, folder, until, ("short", "long", "long_unsafe", "model"))
    readers = {name: [reader(server, run) for _ in range(2)] for name, run in runs.items()}
    for followers in readers.values():
        for follower in followers:
            follower.wait_for("run.started")
    queued = api.submit("stopper", "short", conversation_id=runs["long"]["conversation_id"])
    stopped_at = time.monotonic()
    for number in signals:
        server.process.send_signal(number)
    folder.open_gate("short")
    assert server.wait_exit(60) == 0
    assert time.monotonic() - stopped_at < STOPPED_WITHIN_S
    assert folder.ledger("short ended"), "what ends within the grace is waited for"
    assert "Traceback" not in server.log()

    again = start(folder, env=ENV, port=server.port)
    ready = time.monotonic()
    until(lambda: folder.ledger("long", pid=again.pid))
    readers["long"][0].wait_for("run.resumed", attempt=1)
    assert time.monotonic() - ready < AT_ONCE_S
    folder.open_gate("long")
    folder.open_gate("answer")
    api = client(again)
    for name, run in runs.items():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["attempt"]) == ("completed", 1), name
        for follower in readers[name]:
            one_story(follower.wait_end())
    assert api.until_status(queued["id"])["status"] == "completed"
    assert "run.resumed" not in readers["short"][0].types(), "it ended before the exit"
    [result] = [event.data for event in readers["long_unsafe"][0].events if event.type == "tool.completed"]
    assert "outcome is unknown" in result["result"]
    assert len(folder.ledger("unsafe")) == 1
    assert folder.ledger("unsafe ended") == []
    assert folder.ledger("caught") == [], "an orderly stop is no error of the tool"
    assert [line["attempt"] for line in folder.ledger("long")] == [1, 2]
    assert len(folder.ledger("step")) == 1


def test_code_that_takes_no_notice_of_the_stop_does_not_hold_it_up_and_its_runs_go_on_after_it(
    field_app: Any, start: Any, client: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(APP)
    server, other = start(folder, env=ENV), start(folder, env={**ENV, "AI_RUNS_WORKER": "false"})
    api = client(server)
    names = ("in_thread", "in_thread_unsafe", "stubborn", "long")
    runs = begin(api, folder, until, names)
    stopped_at = time.monotonic()
    server.process.terminate()
    assert server.wait_exit(60) == 0
    assert time.monotonic() - stopped_at < STOPPED_WITHIN_S
    assert "Traceback" not in server.log()
    for what in ("thread", "thread unsafe", "stubborn"):
        assert len(folder.ledger(what)) == 1
    again = start(folder, env=ENV)
    ready = time.monotonic()
    until(lambda: folder.ledger("thread", pid=again.pid) and folder.ledger("stubborn", pid=again.pid))
    assert time.monotonic() - ready < AT_ONCE_S
    folder.open_gate("long")
    for name in names:
        assert client(other).until_status(runs[name]["id"])["status"] == "completed", name
        one_story(client(again).events(runs[name]["id"], after=0))
    assert len(folder.ledger("thread unsafe")) == 1


def test_nobody_takes_a_run_up_while_its_code_still_runs_in_the_server_that_stops(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    server, other = start(folder, env=ENV), start(folder, env={**ENV, "AI_RUNS_CONCURRENCY": "50"})
    begin(client(server), folder, until, ("in_thread", "long"))
    assert {line["pid"] for line in folder.ledger("thread")} == {server.pid}
    server.process.terminate()

    def taken() -> bool:
        running = server.process.poll() is None
        if running and folder.ledger("thread", pid=other.pid) and server.process.poll() is None:
            raise AssertionError("two processes run it at once")
        return bool(folder.ledger("thread", pid=other.pid))

    until(taken, STOPPED_WITHIN_S + AT_ONCE_S)
    assert len(folder.ledger("thread")) == 2


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_messages_during_a_stop_are_refused_or_kept_for_later_and_never_begun(
    field_app: Any, start: Any, client: Any, until: Any
) -> None:
    folder = field_app(APP)
    folder.open_gate("short")
    server = start(folder, env=ENV)
    door = client(start(folder, env={**ENV, "AI_RUNS_WORKER": "false"}))
    api = client(server)
    runs = begin(api, folder, until, ("long",))
    with api.follow(f"/runs/{runs['long']['id']}/events") as events:
        next(events)
        server.process.terminate()
        assert "run.completed" not in [event.type for event in events]  # its end says that the stop has begun
    accepted = [door.submit("stopper", "short")["id"]]  # by a server that executes nothing
    answers: list[int] = []

    def closed() -> bool:
        try:
            answer = api.post_path("/agents/stopper/runs", {"message": "short"}, timeout=5)
        except httpx2.TransportError:
            return server.process.poll() is not None
        answers.append(answer.status_code)
        if answer.status_code == 202:
            accepted.append(answer.json()["id"])
        return False

    until(closed)
    assert server.wait_exit(60) == 0
    assert set(answers) <= {202, 503}
    assert folder.ledger("short") == []
    folder.open_gate("long")
    api = client(start(folder, env=ENV))
    for run_id in [*accepted, runs["long"]["id"]]:
        assert api.until_status(run_id)["status"] == "completed"
    assert {line["run"] for line in folder.ledger("short")} == set(accepted)


def hears_sigterm(server: Any) -> bool:
    """Whether the program itself hears signals; before that they are the interpreter's."""
    assert server.process.poll() is None, server.log()
    [caught] = [
        line for line in Path(f"/proc/{server.pid}/status").read_text().splitlines() if line.startswith("SigCgt")
    ]
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_signal_during_the_start_ends_it_and_the_next_start_is_whole(
    field_app: Any, start: Any, client: Any, until: Any, number: int, workers: str
) -> None:
    folder = field_app(APP)
    folder.open_gate("short")
    for later in (0.0, 0.3):
        server = start(folder, env=ENV, wait_ready=False, args=["--workers", workers], anew=True)
        until(lambda server=server: hears_sigterm(server))
        heard = time.monotonic()
        until(lambda heard=heard, later=later: time.monotonic() - heard >= later)
        server.process.send_signal(number)
        assert server.wait_exit(60) == 0
        assert "Traceback" not in server.log()
    server = start(folder, env=ENV, wait_ready=False, args=["--workers", workers], anew=True)
    until(lambda: hears_sigterm(server) and (folder / "data" / "ai" / "amoxi.db").exists(), 40)
    server.process.send_signal(number)
    assert server.wait_exit(60) == 0
    assert "Traceback" not in server.log()
    api = client(start(folder, env=ENV))
    assert api.submit("stopper", "short", wait=20)["status"] == "completed"


def test_a_run_that_waits_for_approval_waits_on_through_a_stop_that_it_does_not_hold_up(
    field_app: Any, start: Any, client: Any, reader: Any, one_story: Any
) -> None:
    folder = field_app(APP)
    server = start(folder, env={**ENV, "SERVER_STOP_GRACE_S": "60"})
    api = client(server)
    run = api.submit("stopper", "ask")
    follower = reader(server, run)
    waiting = api.until_status(run["id"], "waiting")
    follower.wait_for("run.waiting")
    stopped_at = time.monotonic()
    assert server.stop(60) == 0
    assert time.monotonic() - stopped_at < 40, "there is nothing to wait for"
    again = start(folder, env=ENV, port=server.port)
    api = client(again)
    assert api.run(run["id"])["waiting_for"] == waiting["waiting_for"]
    call_id = waiting["waiting_for"][0]["call_id"]
    assert api.decide(run["id"], call_id, "approve").status_code == 200
    ended = api.until_status(run["id"])
    assert (ended["status"], ended["output"], ended["attempt"]) == ("completed", "ask done", 1)
    assert len(folder.ledger("approved")) == 1
    one_story(follower.wait_end())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_without_a_web_hands_its_runs_over_at_once_when_it_stops(
    field_app: Any, start: Any, client: Any, until: Any, one_story: Any, number: int
) -> None:
    folder = field_app(APP)
    server = start(folder, env={**ENV, "AI_RUNS_WORKER": "false"})
    api = client(server)
    first = start(folder, env=ENV, command="worker", wait_ready=False, anew=True)
    runs = begin(api, folder, until, ("long", "long_unsafe", "model"))
    second = start(folder, env=ENV, command="worker", wait_ready=False)
    second.wait_log("the worker is ready")
    stopped_at = time.monotonic()
    first.process.send_signal(number)
    assert first.wait_exit(60) == 0
    assert time.monotonic() - stopped_at < STOPPED_WITHIN_S
    until(lambda: folder.ledger("long", pid=second.pid) and folder.ledger("answering", pid=second.pid), AT_ONCE_S)
    folder.open_gate("long")
    folder.open_gate("answer")
    for name, run in runs.items():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["attempt"]) == ("completed", 1), name
        one_story(api.events(run["id"], after=0))
    assert len(folder.ledger("unsafe")) == 1
