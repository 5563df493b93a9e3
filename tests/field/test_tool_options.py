"""Options of tools and agents hold in a real server, also across a crash: retries, timeout, turns, calls at once."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing import call, reply

SHOP = '''
import asyncio, time
from amoxi_py import Done, NotDone, SyncToolContext, ToolContext, ToolError, Unknown, agent, step, tool
from .ledger import gate, gate_sync, note


@tool(idempotent=True, retries=2)
async def flaky(fails: int, ctx: ToolContext) -> str:
    """Fail some times."""
    note("flaky", ctx)
    if ctx.attempt <= fails:
        raise ConnectionError("the secret of the database")
    return f"done at try {ctx.attempt}"


@tool(idempotent=True, retries=2)
def flaky_thread(fails: int, ctx: SyncToolContext) -> str:
    """Fail some times, in a thread."""
    note("flaky_thread", ctx)
    if ctx.attempt <= fails:
        raise ConnectionError("the secret of the database")
    return f"done at try {ctx.attempt}"


@tool(idempotent=True, retries=2)
async def told(ctx: ToolContext) -> str:
    """Tell the model why not."""
    note("told", ctx)
    raise ToolError("The card was refused.")


@tool
async def unsafe(ctx: ToolContext) -> str:
    """Fail; nobody may try that twice."""
    note("unsafe", ctx)
    raise ConnectionError("no")


FAILURES = []


def write(name, ctx, fails):
    note(name, ctx)
    FAILURES.append(name)
    if FAILURES.count(name) <= fails:
        raise ConnectionError(name)
    return name


@tool(idempotent=True, retries=2)
async def steps(ctx: ToolContext) -> list[str]:
    """Fail in the second of three steps, twice."""
    note("steps", ctx)
    return [
        await ctx.step("one", write, "step one", ctx, 0),
        await ctx.step("two", write, "step two", ctx, 2),
        await ctx.step("three", write, "step three", ctx, 0),
    ]


@tool(idempotent=True, retries=2)
async def crashing(ctx: ToolContext) -> str:
    """Fail always; the second try is where the power is cut."""
    note("crashing", ctx)
    if ctx.attempt == 2:
        await gate("power")
    raise ConnectionError("no")


@tool(idempotent=True, timeout=0.3)
async def slow(ctx: ToolContext) -> str:
    """Take too long."""
    note("slow", ctx)
    try:
        await gate("never")
    finally:
        note("slow stopped", ctx, signal=ctx.signal.cancelled)


@tool(idempotent=True, timeout=0.3, retries=1)
async def slow_once(ctx: ToolContext) -> str:
    """Take too long, once."""
    note("slow_once", ctx)
    value = await ctx.step("one", write, "slow step", ctx, 0)
    if ctx.attempt == 1:
        await gate("never")
    return f"{value} at try {ctx.attempt}"


@tool(read_only=True, timeout=0.3)
def slow_thread(ctx: SyncToolContext) -> str:
    """Take too long in a thread, and do not listen."""
    note("slow_thread", ctx)
    gate_sync("thread")
    ctx.progress("too late")
    try:
        ctx.step("late", note, "slow_thread step", ctx)
    finally:
        note("slow_thread ends", ctx)
    return "too late"


@tool(timeout=0.3)
async def slow_unsafe(ctx: ToolContext) -> str:
    """Take too long; nobody may do that twice."""
    note("slow_unsafe", ctx)
    await gate("never")


@tool(timeout=0.3)
def slow_unsafe_thread(ctx: SyncToolContext) -> str:
    """Take too long; nobody may do that twice."""
    note("slow_unsafe_thread", ctx)
    gate_sync("thread")


def look(answer: str, ctx: ToolContext):
    note("look", ctx, answer=answer)
    return {"done": Done("it was done"), "not done": NotDone(), "unknown": Unknown("the bank is closed")}[answer]


@tool(timeout=0.3, reconcile=look)
async def slow_reconciled(answer: str, ctx: ToolContext) -> str:
    """Take too long, once; whether it was done can be looked up."""
    note("slow_reconciled", ctx, answer=answer)
    if ctx.attempt == 1:
        await gate("never")
    return "done the second time"


@tool(timeout=5, idempotent=True)
async def in_time(ctx: ToolContext) -> str:
    """Be quick."""
    return "in time"


@tool(idempotent=True)
async def together(n: int, ctx: ToolContext) -> int:
    """Wait for a gate."""
    note("begin", ctx, n=n, at=time.monotonic())
    await gate("together")
    await asyncio.sleep(0.02)
    note("end", ctx, n=n, at=time.monotonic())
    return n


@tool(needs_approval=True, idempotent=True)
async def together_asked(n: int, ctx: ToolContext) -> int:
    """Wait for a gate, after a person said yes."""
    note("begin", ctx, n=n, at=time.monotonic())
    await gate("together")
    await asyncio.sleep(0.02)
    note("end", ctx, n=n, at=time.monotonic())
    return n


TOOLS = [
    flaky, flaky_thread, told, unsafe, steps, crashing, slow, slow_once, slow_thread, slow_unsafe, slow_unsafe_thread,
    slow_reconciled, in_time, together, together_asked,
]


@agent(tools=TOOLS)
class Shop:
    """You run a shop."""


@agent(tools=TOOLS, max_turns=3)
class ShortShop:
    """You run a shop, briefly."""
'''


@pytest.fixture
def script(last_words: Any) -> Any:
    """A model that calls the tool that the person names, once, with a number or a text after it."""

    def answer(request: ModelRequest) -> Any:
        text, said = last_words(request)
        if said:
            return "That is all."
        tool, _, rest = text.partition(" ")
        if tool in ("flaky", "flaky_thread"):
            return call(tool, fails=int(rest))
        if tool == "slow_reconciled":
            return call(tool, answer=rest)
        if tool == "together":
            return reply(*(call("together", n=n) for n in range(5)))
        if tool == "asked":
            return reply(*(call("together_asked", n=n) for n in range(4)))
        return call(tool) if tool != "later" else "Later."

    return answer


@pytest.fixture
def ask(results_in: Any, requests_about: Any) -> Any:
    """Ask the shop for a tool and give the ended run with what the model was told of its call."""

    def do(api: Any, model: Any, text: str) -> tuple[dict[str, Any], str]:
        run = api.submit("shop", text, wait=20)
        assert (run["status"], run["output"]) == ("completed", "That is all."), run
        [result] = results_in(requests_about(model, text)[-1])
        return run, result.content

    return do


def most_at_once(lines: list[dict[str, Any]]) -> int:
    """How many calls ran at once, by the ledger's lines of their begins and ends."""
    running = most = 0
    for line in sorted(lines, key=lambda line: float(line["at"])):
        running += 1 if line["what"] == "begin" else -1
        most = max(most, running)
    return most


def test_a_failing_tool_is_tried_as_often_as_its_retries_say_with_one_call_id(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, script: Any, ask: Any
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    for tool in ("flaky", "flaky_thread"):
        for fails, tries, expected in ((0, 1, "done at try 1"), (2, 3, "done at try 3"), (3, 3, "The tool failed.")):
            run, told = ask(api, model, f"{tool} {fails}")
            lines = folder.ledger(tool, run=run["id"])
            assert [line["attempt"] for line in lines] == list(range(1, tries + 1))
            assert len({line["call"] for line in lines}) == 1
            assert told == expected
            types = [event.type for event in api.events(run["id"])]
            assert types.count("tool.called") == types.count("tool.completed") == 1
    run, told = ask(api, model, "told")
    assert (len(folder.ledger("told", run=run["id"])), told) == (1, "The card was refused.")
    run, told = ask(api, model, "unsafe")
    assert (len(folder.ledger("unsafe", run=run["id"])), told) == (1, "The tool failed.")
    assert not any("secret" in body.decode() for body in model.bodies)


def test_a_try_after_a_failed_step_runs_that_step_again_and_no_other(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, script: Any, ask: Any
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    _, told = ask(client(server), model, "steps")
    assert told == '["step one","step two","step three"]'
    assert [line["what"] for line in folder.ledger()] == [
        *("steps", "step one", "step two"),
        *("steps", "step two"),
        *("steps", "step two", "step three"),
    ]


@pytest.mark.crash
def test_a_crash_is_no_failed_try_and_failed_tries_are_not_forgotten_by_it(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    script: Any,
    until: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    run = client(server).submit("shop", "crashing")
    until(lambda: len(folder.ledger("crashing")) == 2)
    server.kill9()
    folder.open_gate("power")
    server = start(folder, env=model_env(model))
    assert client(server).until_status(run["id"])["output"] == "That is all."
    assert len(folder.ledger("crashing")) == 4, "one failed, one interrupted, two more failed"
    assert len({line["call"] for line in folder.ledger("crashing")}) == 1
    assert results_in(requests_about(model, "crashing")[-1])[0].content == "The tool failed."


def test_a_tool_that_takes_too_long_is_stopped_and_told_so_or_tried_again(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, script: Any, ask: Any, until: Any
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    _, told = ask(api, model, "slow")
    assert "longer than 0.3 s" in told
    until(lambda: [line["signal"] for line in folder.ledger("slow stopped")] == [True])
    assert len(folder.ledger("slow")) == 1
    _, told = ask(api, model, "slow_once")
    assert told == "slow step at try 2"
    assert (len(folder.ledger("slow_once")), len(folder.ledger("slow step"))) == (2, 1)
    assert ask(api, model, "in_time")[1] == "in time"

    run, told = ask(api, model, "slow_thread")
    assert "longer than 0.3 s" in told
    assert not folder.ledger("slow_thread ends"), "its thread cannot be ended, but nobody waits for it"
    before = api.events(run["id"])
    folder.open_gate("thread")
    until(lambda: folder.ledger("slow_thread ends"))
    assert not folder.ledger("slow_thread step"), "a step that comes too late does not run"
    assert api.submit("shop", "later", conversation_id=run["conversation_id"], wait=20)["output"] == "Later."
    assert api.events(run["id"]) == before


def test_an_unsafe_tool_that_takes_too_long_is_unknown_or_looked_up_and_never_run_blindly_again(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, script: Any, ask: Any
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    for tool in ("slow_unsafe", "slow_unsafe_thread"):
        run, told = ask(api, model, tool)
        assert "outcome is unknown" in told
        assert len(folder.ledger(tool)) == 1
        [status] = [
            one["status"] for message in api.messages("shop", run["conversation_id"]) for one in message["calls"]
        ]
        assert status == "unknown"
    for answer, tries, expected in (
        ("done", 1, "it was done"),
        ("not done", 2, "done the second time"),
        ("unknown", 1, "the bank is closed"),
    ):
        _, told = ask(api, model, f"slow_reconciled {answer}")
        assert expected in told
        assert ("outcome is unknown" in told) == (answer == "unknown")
        assert len(folder.ledger("look", answer=answer)) == 1
        lines = folder.ledger("slow_reconciled", answer=answer)
        assert len(lines) == tries
        assert len({line["call"] for line in lines}) == 1
    folder.open_gate("thread")


def test_a_run_ends_at_its_most_turns_with_every_call_settled_and_the_conversation_goes_on(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, last_words: Any, one_story: Any
) -> None:
    def script(request: ModelRequest) -> Any:
        text, said = last_words(request)
        if text == "three turns":
            return call("in_time") if said < 2 else "The third."
        return call("in_time") if text == "for ever" else "Yes."

    model = strict_model(script)
    server = start(field_app(SHOP), env=model_env(model))
    api = client(server)
    run = api.submit("short-shop", "for ever", wait=20)
    assert (run["status"], run["error"]["code"]) == ("failed", "max_turns")
    assert len(model.requests) == run["usage"]["requests"] == 3
    events = api.events(run["id"])
    one_story(events, "run.failed")
    statuses = [one["status"] for m in api.messages("short-shop", run["conversation_id"]) for one in m["calls"]]
    assert statuses == ["done"] * 3
    later = api.submit("short-shop", "and now", conversation_id=run["conversation_id"], wait=20)
    assert (later["status"], later["output"]) == ("completed", "Yes.")
    three = api.submit("short-shop", "three turns", conversation_id=run["conversation_id"], wait=20)
    assert (three["status"], three["output"]) == ("completed", "The third.")
    twenty = api.submit("shop", "for ever", wait=20)
    assert (twenty["error"]["code"], twenty["usage"]["requests"]) == ("max_turns", 20)


@pytest.mark.crash
def test_no_more_calls_of_one_reply_run_at_once_than_the_setting_says_also_after_a_crash_and_approvals(
    field_app: Any,
    start: Any,
    client: Any,
    strict_model: Any,
    model_env: Any,
    script: Any,
    until: Any,
    requests_about: Any,
    results_in: Any,
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    env = {**model_env(model), "AI_RUNS_PARALLEL_CALLS": "2"}
    server = start(folder, env=env)
    api = client(server)
    run, asked = api.submit("shop", "together"), api.submit("shop", "asked")
    for waiting in api.until_status(asked["id"], "waiting")["waiting_for"]:
        assert api.decide(asked["id"], waiting["call_id"], "approve").status_code == 200
    until(lambda: len(folder.ledger("begin")) == 4)
    for one in (run, asked):
        messages = api.messages("shop", one["conversation_id"])
        statuses = [call["status"] for message in messages for call in message["calls"]]
        assert statuses.count("started") == 2
        assert set(statuses) == {"started", "open"}
    server.kill9()
    server = start(folder, env=env)
    api = client(server)
    until(lambda: len(folder.ledger("begin")) == 8)
    folder.open_gate("together")
    for one, text, count in ((run, "together", 5), (asked, "asked", 4)):
        assert api.until_status(one["id"])["output"] == "That is all."
        lines = folder.ledger(run=one["id"])
        begun = [line for line in lines if line["what"] == "begin"]
        ended = [line for line in lines if line["what"] == "end"]
        assert sorted(line["n"] for line in ended) == list(range(count))
        assert sorted(line["n"] for line in begun) == sorted([0, 1, *range(count)])
        assert most_at_once([line for line in lines if line["pid"] == ended[0]["pid"]]) == 2
        told = results_in(requests_about(model, text)[-1])
        assert [result.content for result in told] == [str(n) for n in range(count)]


def test_with_room_for_one_call_at_a_time_the_calls_of_a_reply_run_in_their_order(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, script: Any
) -> None:
    model = strict_model(script)
    folder = field_app(SHOP)
    server = start(folder, env={**model_env(model), "AI_RUNS_PARALLEL_CALLS": "1"})
    folder.open_gate("together")
    assert client(server).submit("shop", "together", wait=20)["status"] == "completed"
    assert [(line["what"], line["n"]) for line in folder.ledger()] == [
        (what, n) for n in range(5) for what in ("begin", "end")
    ]
