"""O23: tools that block, compute, exit, raise what nobody raises, or lose their context hurt their own call only."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.testing import call, pause

RAISING = '''
import asyncio
from amoxi_py import NotDone, SyncToolContext, ToolContext, agent, step, tool


class Mute(Exception):
    def __str__(self):
        raise ValueError("I say nothing")

    __repr__ = __str__


def kinds():
    return {
        "system_exit": SystemExit(0),
        "system_exit_text": SystemExit("bye"),
        "keyboard_interrupt": KeyboardInterrupt(),
        "generator_exit": GeneratorExit(),
        "cancelled_error": asyncio.CancelledError(),
        "stop_iteration": StopIteration(1),
        "stop_async_iteration": StopAsyncIteration(),
        "memory_error": MemoryError(),
        "recursion_error": RecursionError(),
        "base_exception": BaseException("bare"),
        "exception_group": ExceptionGroup("two", [ValueError(1), KeyError(2)]),
        "exit_group": BaseExceptionGroup("two", [SystemExit(3), ValueError(1)]),
        "mute": Mute(),
        "timeout_error": TimeoutError(),
    }


def throw(kind):
    raise kinds()[kind]


async def throw_async(kind):
    raise kinds()[kind]


@step(timeout=5)
async def throw_in_time(kind):
    raise kinds()[kind]


@tool
def plain(kind: str) -> None:
    """Raise in a thread."""
    throw(kind)


@tool
async def coroutine(kind: str) -> None:
    """Raise on the loop."""
    throw(kind)


@tool
def plain_step(kind: str, ctx: SyncToolContext) -> None:
    """Raise in a step of a thread."""
    ctx.step("s", throw, kind)


@tool
def plain_async_step(kind: str, ctx: SyncToolContext) -> None:
    """Raise in an async step of a thread."""
    ctx.step("s", throw_async, kind)


@tool
async def sync_step(kind: str, ctx: ToolContext) -> None:
    """Raise in a step."""
    await ctx.step("s", throw, kind)


@tool
async def async_step(kind: str, ctx: ToolContext) -> None:
    """Raise in an async step."""
    await ctx.step("s", throw_async, kind)


@tool
async def timed_step(kind: str, ctx: ToolContext) -> None:
    """Raise in a step with a timeout."""
    await ctx.step("s", throw_in_time, kind)


@tool(timeout=5)
async def timed(kind: str) -> None:
    """Raise in a tool with a timeout."""
    throw(kind)


@tool
async def gathered(kind: str) -> None:
    """Raise in one of several tasks."""
    await asyncio.gather(throw_async(kind), asyncio.sleep(0.01))


@tool
async def grouped(kind: str) -> None:
    """Raise in a task of a group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(throw_async(kind))


@tool
async def gathered_steps(kind: str, ctx: ToolContext) -> None:
    """Raise in one of several steps."""
    await asyncio.gather(ctx.step("a", throw_async, kind), ctx.step("b", asyncio.sleep, 0.01))


@tool
async def left_behind(kind: str) -> None:
    """Raise in a task that nobody waits for, and here."""
    task = asyncio.create_task(throw_async(kind))
    await asyncio.sleep(0.01)
    throw(kind)


@tool
async def own_loop(kind: str) -> None:
    """Raise in a loop of its own, in a thread of its own."""
    await asyncio.to_thread(lambda: asyncio.run(throw_async(kind)))


@agent(
    tools=[
        plain, coroutine, plain_step, plain_async_step, sync_step, async_step, timed_step, timed, gathered, grouped,
        gathered_steps, left_behind, own_loop,
    ]
)
class Thrower:
    """You raise."""


def ask_exit(ctx, kind):
    raise kinds()[kind]


@tool(needs_approval=ask_exit)
def ask_first(kind: str) -> str:
    """Ask first."""
    return "ran"


@agent(tools=[ask_first])
class Asker:
    """You ask."""


@agent
class Unborn:
    def instructions(self, ctx):
        raise SystemExit(5)
'''


def raise_as_told(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "Done."
    place, kind = last.text.split()  # type: ignore[union-attr]
    return call(place, kind=kind)


PLACES = [
    "plain", "coroutine", "plain_step", "plain_async_step", "sync_step", "async_step", "timed_step", "timed",
    "gathered", "grouped", "gathered_steps", "left_behind", "own_loop",
]  # fmt: skip
KINDS = [
    "system_exit", "system_exit_text", "keyboard_interrupt", "generator_exit", "cancelled_error", "stop_iteration",
    "stop_async_iteration", "memory_error", "recursion_error", "base_exception", "exception_group", "exit_group",
    "mute", "timeout_error",
]  # fmt: skip
# a group goes on when one of its tasks has cancelled itself: asyncio's own rule, and no error
RAISED = [(place, kind) for place in PLACES for kind in KINDS if (place, kind) != ("grouped", "cancelled_error")]


def test_whatever_a_tool_raises_is_one_error_for_the_model_and_the_server_stays_up(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(raise_as_told)
    server = start(field_app(RAISING), env=model_env(model))
    api = client(server)
    runs = {case: api.submit("thrower", " ".join(case))["id"] for case in RAISED}
    for case, run_id in runs.items():
        assert api.until_status(run_id)["status"] == "completed", case
        [result] = [event.data for event in api.events(run_id) if event.type == "tool.completed"]
        assert result["is_error"] is True, case
        assert result["result"] == "The tool failed.", case
    told = [message for request in model.requests for message in request.messages if isinstance(message, ToolResult)]
    assert [result.content for result in told] == ["The tool failed."] * len(RAISED)
    assert server.process.poll() is None


def test_an_exit_in_a_rule_of_the_app_ends_its_run_at_most_and_never_the_server(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    server = start(field_app(RAISING), env=model_env(strict_model(raise_as_told)))
    api = client(server)
    unborn = api.submit("unborn", "hello", wait=10)
    assert (unborn["status"], unborn["error"]["code"]) == ("failed", "instructions_failed")
    for kind in KINDS:
        run = api.until_status(api.submit("asker", f"ask_first {kind}")["id"], "waiting", "completed", "failed")
        assert run["status"] == "waiting", (kind, "a person is asked when the rule cannot say")
    assert server.process.poll() is None


BLOCKING = '''
import asyncio, time
from amoxi_py import SyncToolContext, ToolContext, agent, tool
from .ledger import gate_sync, note


def compute(seconds):
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number = (number * 31 + 7) % 1000003
    return number


def leave(ctx):
    """What a thread may still try when its run was cancelled."""
    ctx.progress("too late")
    try:
        ctx.step("late", note, "late step")
    except BaseException as error:
        note("left", ctx, error=type(error).__name__)
        raise
    note("went on", ctx)


@tool
def plain_sleep(seconds: float, ctx: SyncToolContext) -> str:
    """Sleep in a thread."""
    note("begin", ctx)
    time.sleep(seconds)
    note("end", ctx)
    return "slept"


@tool
def plain_compute(seconds: float, ctx: SyncToolContext) -> str:
    """Compute in a thread."""
    note("begin", ctx)
    compute(seconds)
    note("end", ctx)
    return "computed"


@tool
async def async_sleep(seconds: float, ctx: ToolContext) -> str:
    """Sleep on the event loop."""
    note("begin", ctx)
    time.sleep(seconds)
    note("end", ctx)
    return "slept"


@tool
async def async_compute(seconds: float, ctx: ToolContext) -> str:
    """Compute on the event loop."""
    note("begin", ctx)
    compute(seconds)
    note("end", ctx)
    return "computed"


@tool
def plain_sleep_on(seconds: float, ctx: SyncToolContext) -> str:
    """Sleep in a thread, whatever happens to the run."""
    ctx.progress("sleeping")
    note("begin", ctx)
    gate_sync("on")
    leave(ctx)
    return "slept"


@tool
def plain_compute_on(seconds: float, ctx: SyncToolContext) -> str:
    """Compute in a thread, whatever happens to the run."""
    ctx.progress("computing")
    note("begin", ctx)
    compute(seconds)
    gate_sync("on")
    leave(ctx)
    return "computed"


@agent(tools=[plain_sleep, plain_compute, async_sleep, async_compute, plain_sleep_on, plain_compute_on])
class Blocker:
    """You block."""


@agent
class Talker:
    """You talk."""
'''


def block_or_talk(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "Done."
    words = last.text.split()  # type: ignore[union-attr]
    if words[0] == "talk":
        return [part for number in range(40) for part in (f"word{number} ", pause(0.05))]
    if words[0] == "hi":
        return "Hi."
    return call(words[0], seconds=float(words[1]))


@contextmanager
def watched(api: Any, run_id: str) -> Iterator[list[float]]:
    """Ask the server for a run again and again; give how long each answer took."""
    took: list[float] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            before = time.monotonic()
            api.run(run_id)
            took.append(time.monotonic() - before)
            stop.wait(0.01)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield took
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("kind", ["plain_sleep", "plain_compute"])
def test_fifty_plain_tools_that_block_at_once_keep_nobody_else_waiting(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, kind: str
) -> None:
    folder = field_app(BLOCKING)
    server = start(folder, env=model_env(strict_model(block_or_talk)))
    api = client(server)
    quiet = api.submit("talker", "talk", wait=20)
    with watched(client(server), quiet["id"]) as alone:
        until(lambda: len(alone) > 50)
    runs = [api.submit("blocker", f"{kind} 4")["id"] for _ in range(50)]
    until(lambda: len(folder.ledger("begin")) == 50)
    arrived: list[float] = []
    with watched(client(server), quiet["id"]) as beside:
        talk = client(server).submit("talker", "talk")
        with api.follow(f"/runs/{talk['id']}/events") as events:
            arrived.extend(time.monotonic() for event in events if event.type == "message.delta")
        until(lambda: len(beside) > 20)
    for run_id in runs:
        assert api.until_status(run_id)["attempt"] == 1
    assert len(folder.ledger("begin")) == len(folder.ledger("end")) == 50
    # the bound of 200 ms, on top of what this machine takes anyway
    assert median(beside) - median(alone) < 0.2
    gaps = [later - earlier for earlier, later in pairwise(arrived)]
    assert median(gaps) < 0.05 + 0.2
    # and nothing waits until the tools are done, which takes 4 s
    assert max(beside) < 2.0
    assert max(gaps) < 2.0


def test_a_tool_that_blocks_the_event_loop_for_leases_is_not_executed_a_second_time(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(BLOCKING)
    env = {**model_env(strict_model(block_or_talk)), "AI_RUNS_LEASE_MS": "600"}
    first, second = start(folder, env=env), start(folder, env=env)
    api, other = client(first), client(second)
    for number, kind in enumerate(("async_sleep", "async_compute"), 1):
        run = api.submit("blocker", f"{kind} 3")
        until(lambda number=number: len(folder.ledger("begin")) == number)
        assert other.submit("talker", "hi", wait=10)["status"] == "completed"
        assert len(folder.ledger("end")) == number - 1, "the other server answered while the loop was blocked"
        ended = other.until_status(run["id"])
        assert (ended["status"], ended["attempt"]) == ("completed", 1)
        assert len(folder.ledger("begin")) == len(folder.ledger("end")) == number
        assert "run.resumed" not in [event.type for event in other.events(run["id"])]


def test_a_cancel_does_not_wait_for_a_blocking_thread_and_nothing_it_does_later_counts(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(BLOCKING)
    api = client(start(folder, env=model_env(strict_model(block_or_talk))))
    for number, kind in enumerate(("plain_sleep_on", "plain_compute_on"), 1):
        run = api.submit("blocker", f"{kind} 2")
        until(lambda run=run: folder.ledger("begin", run=run["id"]))
        assert api.cancel(run["id"])["status"] == "cancelled"
        assert not folder.ledger("end", run=run["id"])
        events, messages = api.events(run["id"]), api.messages("blocker", run["conversation_id"])
        folder.open_gate("on")
        until(lambda number=number: len(folder.ledger("left")) == number)
        again = api.submit("blocker", f"{kind} 0", conversation_id=run["conversation_id"], wait=20)
        folder.close_gate("on")
        assert again["status"] == "completed"
        assert api.events(run["id"]) == events
        assert api.messages("blocker", run["conversation_id"])[: len(messages)] == messages
        assert len(folder.ledger("late step")) == len(folder.ledger("went on")) == number, "only the run that goes on"
        assert [call["status"] for message in messages for call in message["calls"]] == ["unknown"]


def test_a_run_whose_tool_blocks_its_server_is_cancelled_within_a_second_by_another_server(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(BLOCKING)
    env = model_env(strict_model(block_or_talk))
    api, other = client(start(folder, env=env)), client(start(folder, env=env))
    for number, kind in enumerate(("async_sleep", "async_compute"), 1):
        run = api.submit("blocker", f"{kind} 3")
        until(lambda run=run: folder.ledger("begin", run=run["id"]))
        assert other.cancel(run["id"])["status"] == "cancelled"
        assert not folder.ledger("end", run=run["id"])
        events = other.events(run["id"])
        until(lambda number=number: len(folder.ledger("end")) == number)
        assert api.submit("talker", "hi", wait=20)["status"] == "completed", "the blocked server goes on with others"
        assert api.run(run["id"])["status"] == "cancelled"
        assert api.events(run["id"]) == events


TENANTS = '''
from contextvars import ContextVar
from fastapi import FastAPI
from amoxi_py import SyncToolContext, ToolContext, agent, configure, tool
from .ledger import gate, note

tenant = ContextVar("tenant", default="nobody")


class Tenant:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            tenant.set(dict(scope["headers"]).get(b"x-tenant", b"none").decode())
        await self.app(scope, receive, send)


@configure
def add_tenant(app: FastAPI) -> None:
    app.add_middleware(Tenant)


@tool(read_only=True)
def plain_tenant(ctx: SyncToolContext) -> dict[str, str]:
    """Who is it, in a thread."""
    return {"tool": tenant.get(), "step": ctx.step("step", tenant.get)}


@tool(read_only=True)
async def async_tenant(ctx: ToolContext) -> dict[str, str]:
    """Who is it, on the loop."""
    return {"tool": tenant.get(), "step": await ctx.step("step", tenant.get)}


@tool(read_only=True)
async def hold(ctx: ToolContext) -> str:
    """Hold the conversation."""
    note("held", ctx)
    await gate("held")
    return "held"


@agent(tools=[plain_tenant, async_tenant, hold], on_busy="queue")
class Teller:
    """You tell who it is."""
'''


def tell(request: ModelRequest) -> Any:
    last = request.messages[-1]
    if isinstance(last, ToolResult):
        return "Done."
    if last.text == "hold":  # type: ignore[union-attr]
        return call("hold")
    return [call("plain_tenant"), call("async_tenant")]


def test_context_variables_of_middleware_are_seen_in_tools_and_never_anothers(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    folder = field_app(TENANTS)
    server = start(folder, env=model_env(strict_model(tell)))
    api = client(server)

    def seen(run_id: str) -> list[dict[str, str]]:
        api.until_status(run_id, "completed")
        return [event.data["result"] for event in api.events(run_id) if event.type == "tool.completed"]

    names = [f"tenant-{number}" for number in range(40)]
    callers = {name: client(server, **{"x-tenant": name}) for name in names}
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda name: callers[name].submit("teller", "who")["id"], names))
    for name, run_id in zip(names, runs, strict=True):
        assert seen(run_id) == [{"tool": name, "step": name}] * 2
    held = callers["tenant-0"].submit("teller", "hold")
    until(lambda: folder.ledger("held"))
    queued = callers["tenant-1"].submit("teller", "who", conversation_id=held["conversation_id"])
    folder.open_gate("held")
    # it is executed when nobody's request is there any more, so it may have no tenant, but not another's
    assert {name for result in seen(queued["id"]) for name in result.values()} <= {"nobody", "tenant-1"}


CARELESS = '''
import asyncio, os, random, socket, sys
from amoxi_py import agent, tool
from .ledger import note


@tool
def change_folder() -> str:
    """Go away."""
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    return os.getcwd()


@tool
def close_output() -> str:
    """Say nothing."""
    sys.stdout = sys.stderr = None
    return "quiet"


@tool
def hurry_sockets() -> str:
    """Wait for nothing."""
    socket.setdefaulttimeout(0.0001)
    return "hurried"


@tool
def same_numbers() -> str:
    """Begin chance anew."""
    random.seed(1)
    return "seeded"


@tool
def empty_environment() -> str:
    """Forget the environment."""
    os.environ.clear()
    return "emptied"


@tool
async def loop_in_loop() -> str:
    """Run a loop in the loop."""
    asyncio.run(asyncio.sleep(0))
    return "never"


@tool
def loop_in_thread() -> str:
    """Run a loop in a thread."""
    asyncio.run(asyncio.sleep(0))
    return "fine"


@tool
async def cancel_self() -> str:
    """Cancel the task that runs."""
    asyncio.current_task().cancel()
    await asyncio.sleep(1)
    return "never"


@agent(
    tools=[
        change_folder, close_output, hurry_sockets, same_numbers, empty_environment, loop_in_loop, loop_in_thread,
        cancel_self,
    ]
)
class Careless:
    """You are careless."""
'''
CARELESS_TOOLS = [
    "change_folder", "close_output", "hurry_sockets", "same_numbers", "empty_environment", "loop_in_loop",
    "loop_in_thread",
]  # fmt: skip


def test_a_tool_that_changes_what_the_whole_process_shares_leaves_the_server_working(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return "Done." if isinstance(last, ToolResult) else call(last.text)  # type: ignore[union-attr]

    folder = field_app(CARELESS)
    server = start(folder, env=model_env(strict_model(play)))
    api = client(server)
    seen: set[str] = set()
    for name in [*CARELESS_TOOLS, "same_numbers", "loop_in_thread"]:
        run = api.submit("careless", name, wait=10)
        assert run["status"] == "completed", (name, run)
        [result] = [event.data for event in api.events(run["id"]) if event.type == "tool.completed"]
        assert result["is_error"] is (name == "loop_in_loop"), (name, result)
        assert {run["id"], run["conversation_id"]}.isdisjoint(seen)
        seen |= {run["id"], run["conversation_id"]}
        assert [message["role"] for message in api.messages("careless", run["conversation_id"])] == [
            "user",
            "assistant",
            "assistant",
        ]
    assert api.submit("careless", "cancel_self", wait=10)["status"] == "failed"
    assert server.stop() == 0
    again = client(start(folder, env=model_env(strict_model(play))))
    assert len(again.get_path("/runs", params={"limit": "50"}).json()["items"]) == len(CARELESS_TOOLS) + 3
