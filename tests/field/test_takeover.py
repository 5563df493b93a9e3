"""Several servers on one store: the dead are replaced in time, the living are left alone, the frozen do no harm."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from amoxi_py.testing import Gate, call, reply

pytestmark = pytest.mark.crash

# O05: a healthy long tool is taken for a dead worker.

LONG = '''
import asyncio, time
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from .ledger import note


@tool
async def brew(seconds: float, ctx: ToolContext) -> str:
    """Brew for some seconds."""
    note("brew", ctx)
    await asyncio.sleep(seconds)
    note("ended", ctx)
    return "brewed"


@tool
async def block(seconds: float, ctx: ToolContext) -> str:
    """Block the whole event loop, as no tool should."""
    note("brew", ctx)
    time.sleep(seconds)
    note("ended", ctx)
    return "brewed"


@tool
def compute(seconds: float, ctx: SyncToolContext) -> str:
    """Compute for some seconds."""
    note("brew", ctx)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))
    note("ended", ctx)
    return "brewed"


@agent(tools=[brew, block, compute])
class Brewer:
    """You brew."""
'''

SHORT_LEASE = {"AI_RUNS_LEASE_MS": "1000"}


@pytest.fixture
def busy_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes that compute on every core, when the test asks for it."""
    count = (os.cpu_count() or 1) if request.param else 0
    code = "import os, sys\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10000))"
    hogs = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    yield
    for hog in hogs:
        hog.kill()
        hog.wait()


@pytest.mark.parametrize(
    ("store_kind", "busy_machine"),
    [("file", False), ("file", True), ("postgres", True)],
    ids=["file-calm", "file-busy", "postgres-busy"],
    indirect=True,
)
def test_a_call_and_a_reply_that_outlast_the_lease_several_times_are_never_taken_over(
    field_app: Any,
    start: Any,
    client: Any,
    one_story: Any,
    strict_model: Any,
    model_env: Any,
    busy_machine: None,
) -> None:
    tools = {"one": "brew", "block": "block", "compute": "compute"}
    tools |= {f"many {n}": "brew" for n in range(10)}
    script: dict[str, Any] = {
        text: [call(name, seconds=2.5 if name == "block" else 5.0), "Brewed."] for text, name in tools.items()
    }
    slow = Gate()
    script["slow"] = [reply("It ", "will ", slow, "be ready.")]
    model = strict_model(script)
    folder = field_app(LONG)
    env = {**SHORT_LEASE, **model_env(model)}
    first, second = start(folder, env=env), start(folder, env=env)
    api, other = client(first), client(second)
    slow_run = api.submit("brewer", "slow")
    runs = [api.submit("brewer", text)["id"] for text in tools]
    for run_id in runs:
        run = other.until_status(run_id, timeout=60)
        assert (run["status"], run["attempt"]) == ("completed", 1)
    slow.open()
    runs.append(slow_run["id"])
    assert other.until_status(slow_run["id"])["output"] == "It will be ready."
    for run_id in runs:
        events = other.events(run_id, after=0)
        one_story(events)
        assert "run.resumed" not in [event.type for event in events]
    for what in ("brew", "ended"):
        lines = folder.ledger(what)
        assert len({line["call"] for line in lines}) == len(lines) == len(tools)
        assert {line["pid"] for line in lines} == {first.pid}
    assert Counter(request.messages[0].text for request in model.requests) == {
        "slow": 1,
        **dict.fromkeys(tools, 2),
    }
    assert "lease was lost" not in first.log() + second.log()


# X02: a worker comes back under the same name, its old jobs look alive.

HELD = '''
from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call
from .ledger import gate, note


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Wait for the gate."""
    note("hold", ctx)
    await gate("hold")
    note("ended", ctx)
    return "held"


@agent(tools=[hold], model=ScriptedModel([["Wait. ", call("hold")], "It is held."]))
class Holder:
    """You hold."""
'''


@pytest.mark.parametrize(
    ("store_kind", "locks"), [("file", "known"), ("file", "unknown"), ("postgres", "none")], indirect=["store_kind"]
)
def test_a_server_that_is_killed_and_comes_back_under_its_name_takes_its_runs_up_within_the_lease(
    field_app: Any, start: Any, client: Any, until: Any, one_story: Any, lease_s: float, locks: str
) -> None:
    folder = field_app(HELD)
    name = {"HOSTNAME": "web-1"}
    server = start(folder, env=name)
    run = client(server).submit("holder", "hold")
    until(lambda: folder.ledger("hold"))
    server.kill9()
    killed = time.monotonic()
    if locks == "unknown":  # as on a machine that knows nothing of the other's processes: then the lease decides
        for file in (folder / "data" / "ai" / "workers").iterdir():
            file.unlink()
    server = start(folder, env=name, port=server.port)
    ready = time.monotonic()
    until(lambda: folder.ledger("hold", pid=server.pid))
    assert time.monotonic() < max(killed + lease_s, ready) + 1 + 1  # a second for a busy machine
    folder.open_gate("hold")
    api = client(server)
    assert api.until_status(run["id"])["attempt"] == 2
    one_story(api.events(run["id"], after=0))
    assert len(folder.ledger("hold")) == 2


# X04: two recovery scans, the one that lost the claim runs the work anyway.


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_each_of_100_interrupted_runs_is_continued_by_one_of_5_servers_that_start_together(
    field_app: Any, start: Any, client: Any, until: Any, one_story: Any
) -> None:
    folder = field_app(HELD)
    server = start(folder)
    api = client(server)
    runs = [api.submit("holder", "hold")["id"] for _ in range(100)]
    until(lambda: len(folder.ledger("hold")) == 100)
    server.kill9()
    servers = [start(folder, wait_ready=False) for _ in range(5)]
    for one in servers:
        one.wait_ready(60)
    until(lambda: len(folder.ledger("hold", attempt=2)) >= 100)
    folder.open_gate("hold")
    apis = [client(one) for one in servers]
    for n, run_id in enumerate(runs):
        run = apis[n % 5].until_status(run_id)
        assert (run["status"], run["attempt"]) == ("completed", 2)
    for run_id in runs[::10]:
        events = apis[0].events(run_id, after=0)
        one_story(events)
        assert [event.type for event in events].count("run.resumed") == 1
    again = folder.ledger("hold", attempt=2)
    assert len({line["run"] for line in again}) == len(again) == 100
    assert len(folder.ledger("hold")) == 200
    assert len(folder.ledger("ended")) == 100


# A worker that was frozen past its lease.

FROZEN = '''
from amoxi_py import NotDone, ToolContext, agent, tool
from .ledger import gate, note


@tool(idempotent=True)
async def two_steps(ctx: ToolContext) -> str:
    """Two steps with a wait between them."""
    await ctx.step("one", put, "one", ctx)
    await gate("go")
    try:
        await ctx.step("two", put, "two", ctx)
    except Exception as error:
        note("tool saw", ctx, error=type(error).__name__)
        raise
    await ctx.step("three", put, "three", ctx)
    return "both"


async def put(what: str, ctx: ToolContext) -> None:
    note(what, ctx)


@tool(idempotent=True)
async def in_a_step(ctx: ToolContext) -> str:
    """Frozen in the middle of a step."""
    await ctx.step("inner", inner, ctx)
    await ctx.step("next", put, "next", ctx)
    return "inner"


async def inner(ctx: ToolContext) -> None:
    note("inner", ctx)
    await gate("go")


@tool
async def charge(ctx: ToolContext) -> str:
    """Charge; nobody may do that twice."""
    note("charge", ctx)
    await gate("go")
    return "charged"


@tool(read_only=True)
async def short(ctx: ToolContext) -> str:
    """End at the gate."""
    note("short", ctx)
    await gate("go")
    return "short"


@tool(idempotent=True)
async def after_it(ctx: ToolContext) -> str:
    """Started when there is a free place."""
    note("after", ctx)
    return "after"


@agent(tools=[two_steps, in_a_step, charge, short, after_it])
class Freezer:
    """You freeze."""
'''


def freeze_between_commits(server: Any, until: Any) -> None:
    """Freeze a server that is not in the middle of a commit: it would hold the store's file until it goes on."""

    def frozen() -> bool:
        server.freeze()
        with (server.folder / "data" / "ai" / "amoxi.lock").open("rb") as lock:
            try:
                until(lambda: try_lock(lock.fileno()), 0.5)
            except AssertionError:
                server.resume()
                return False
        return True

    until(frozen)


def try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_worker_frozen_past_its_lease_writes_nothing_starts_nothing_and_works_on(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    lease_s: float,
    strict_model: Any,
    model_env: Any,
    store_kind: str,
) -> None:
    answer = Gate()
    script = {
        "steps": [call("two_steps"), "Done."],
        "step": [call("in_a_step"), "Done."],
        "unsafe": [call("charge"), "I will look."],
        "queue": [[call("short"), call("after_it")], "Done."],
        "model": [reply("It is ", answer, "said.")],
        "later": ["Good morning."],
    }
    model = strict_model(script)
    folder = field_app(FROZEN)
    env = {**model_env(model), "AI_RUNS_PARALLEL_CALLS": "1"}
    first = start(folder, env=env)
    api = client(first)
    runs = {text: api.submit("freezer", text)["id"] for text in script if text != "later"}
    until(lambda: {line["what"] for line in folder.ledger()} == {"one", "inner", "charge", "short"})
    until(lambda: any(request.messages[0].text == "model" for request in model.requests))
    with api.follow(f"/runs/{runs['model']}/events") as events:
        assert next(event for event in events if event.type == "message.delta").data["text"] == "It is "
    second = start(folder, env=env)
    first.freeze() if store_kind == "postgres" else freeze_between_commits(first, until)
    frozen_at = time.monotonic()
    other = client(second)
    for run_id in runs.values():
        until(
            lambda run_id=run_id: other.run(run_id)["attempt"] == 2, lease_s + 21, "the frozen one's runs are taken up"
        )
    assert time.monotonic() - frozen_at < lease_s + 1 + 20  # the slack is for a busy machine
    answer.open()
    folder.open_gate("go")
    ended = {text: other.until_status(run_id) for text, run_id in runs.items()}
    stories = {text: other.events(run_id, after=0) for text, run_id in runs.items()}
    for text, run in ended.items():
        assert (run["status"], run["attempt"]) == ("completed", 2), text
        one_story(stories[text])
    asked = len(model.requests)
    [charged] = [event for event in stories["unsafe"] if event.type == "tool.completed"]
    assert "outcome is unknown" in charged.data["result"]

    first.resume()
    first.wait_log("lease was lost")
    second.kill9()
    again = api.submit("freezer", "later", wait=20)
    assert (again["status"], again["output"]) == ("completed", "Good morning."), "it works on"
    for text, run_id in runs.items():
        assert api.run(run_id) == ended[text]
        assert api.events(run_id, after=0) == stories[text]
    assert len(model.requests) == asked + 1
    mine = Counter(line["what"] for line in folder.ledger(pid=first.pid))
    theirs = Counter(line["what"] for line in folder.ledger(pid=second.pid))
    assert mine == {"one": 1, "inner": 1, "charge": 1, "short": 1}
    assert theirs == {"two": 1, "three": 1, "inner": 1, "next": 1, "short": 1, "after": 1}
    assert "Traceback" not in first.log()


@pytest.mark.parametrize("store_kind", ["file", "postgres"], indirect=True)
def test_a_worker_frozen_past_its_lease_that_nobody_replaced_takes_its_own_runs_up_again(
    field_app: Any,
    start: Any,
    client: Any,
    until: Any,
    one_story: Any,
    lease_s: float,
    strict_model: Any,
    model_env: Any,
) -> None:
    names = {"steps": "two_steps", "unsafe": "charge"}
    model = strict_model({text: [call(tool), "Done."] for text, tool in names.items()})
    folder = field_app(FROZEN)
    server = start(folder, env=model_env(model))
    api = client(server)
    runs = {text: api.submit("freezer", text)["id"] for text in names}
    until(lambda: {line["what"] for line in folder.ledger()} == {"one", "charge"})
    server.freeze()
    frozen_at = time.monotonic()
    until(lambda: time.monotonic() > frozen_at + lease_s + 0.5)
    server.resume()
    server.wait_log("lease was lost")
    folder.open_gate("go")
    for run_id in runs.values():
        assert api.until_status(run_id)["status"] == "completed"
        one_story(api.events(run_id, after=0))
    assert Counter(line["what"] for line in folder.ledger()) == {"one": 1, "two": 1, "three": 1, "charge": 1}
    [result] = [event.data for event in api.events(runs["unsafe"], after=0) if event.type == "tool.completed"]
    assert "outcome is unknown" in result["result"]
