"""A tool that is called directly is a durable run of its own, like any other; one that only reads needs none."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec.structs import replace

from amoxi_py import (
    Inject,
    PlannedCall,
    Refuse,
    RunContext,
    ToolContext,
    ToolError,
    agent,
    before_tool,
    provides,
    redact,
    tool,
)
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine.direct import started_reply
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator
from amoxi_py.errors import ArgumentsInvalid, Conflict, InvalidRequest, NotFound
from amoxi_py.ports.clock import SystemClock
from amoxi_py.ports.store import Submission
from amoxi_py.ports.views import CallView
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import Gate

DESKTOP = Principal(id="mcp:desktop", channel="mcp")
OTHER = Principal(id="mcp:other", channel="mcp")
ROOT = Principal(id="system:root")
MADE: list[tuple[str, str, int]] = []
REACHED: list[Gate] = []


@tool(idempotent=True)
async def refund(order: str, ctx: ToolContext, amount: int = 1) -> dict[str, Any]:
    """Refund an order."""
    ctx.progress("Refunding...")
    refund_id = await ctx.step("pay", lambda: f"R-{order}")
    MADE.append(("refund", ctx.call_id, ctx.attempt))
    return {"refund_id": refund_id, "amount": amount, "name": "Zoë"}


@tool
async def charge(order: str, ctx: ToolContext) -> str:
    """Charge an order."""
    MADE.append(("charge", ctx.call_id, ctx.attempt))
    return f"charged {order}"


@tool
async def fails(how: str) -> str:
    """Fail."""
    raise ToolError("The bank is closed.") if how == "told" else RuntimeError("secret")


@tool(idempotent=True)
async def hangs(ctx: ToolContext) -> str:
    """Wait for ever."""
    REACHED[0].open()
    await ctx.signal.wait()
    MADE.append(("told to stop", ctx.call_id, ctx.attempt))
    return "never"


@tool(idempotent=True)
async def deliver(ctx: ToolContext) -> str:
    """Deliver something."""
    return f"to {await ctx.ask('Where to?')}"


@tool(read_only=True)
async def look(order: str) -> dict[str, str]:
    """Look an order up."""
    MADE.append(("look", order, 0))
    return {"order": order, "name": "Zoë"}


@tool(read_only=True)
def look_in_thread(order: str) -> str:
    """Look an order up."""
    return f"{order} by {threading.current_thread().name}"


@tool(read_only=True, timeout=0.05)
async def looks_long() -> str:
    """Look for a long time."""
    await asyncio.sleep(3600)
    return "never"


@tool(read_only=True, retries=1)
async def looks_twice(how: str = "") -> str:
    """Look, and fail the first time."""
    MADE.append(("looks_twice", how, 0))
    if len(MADE) == 1 or how:
        raise ToolError(how) if how else RuntimeError("secret")
    return "seen"


@tool(read_only=True)
async def look_with_context(ctx: ToolContext) -> str:
    """Look with a context."""
    return ctx.call_id


@tool(needs_approval=True)
async def cancel_order() -> str:
    """Cancel an order."""
    return "cancelled"


@tool(needs_approval=lambda ctx: False)
async def may_need() -> str:
    """Do what may need an approval."""
    return "done"


@tool(expose=False)
async def inner() -> str:
    """Do what only agents do."""
    return "done"


@tool(allow=lambda principal: principal.id == "mcp:other")
async def for_other() -> str:
    """Do what one caller may do."""
    return "done"


@agent(tools=[refund, charge, fails, hangs, deliver, cancel_order, may_need, inner])
class Clerk:
    """You refund."""


@agent(agents=[Clerk])
class Boss:
    """You ask."""


READERS = [look, look_in_thread, looks_long, looks_twice, look_with_context]
Use = Callable[[Engine], Awaitable[Any]]


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()
    REACHED[:] = [Gate()]


@pytest.fixture
def use(tmp_path: Path, with_engine: Any) -> Callable[..., Any]:
    """Run a story on an engine with these tools, on the store of the test."""

    def run(story: Use, *more: Any, script: Any = (), declared: Any = (Clerk, Boss, for_other), **settings: Any) -> Any:
        store = SqliteStore(tmp_path, synchronous="OFF")
        return with_engine(store, [*declared, *READERS, *more], script, story, **settings)

    return run


async def call_tool(engine: Engine, name: str, **arguments: Any) -> tuple[Run, CallView]:
    submitted = await engine.submit_call(name, arguments, principal=DESKTOP)
    return await engine.wait_call(submitted.run.id, DESKTOP, timeout=30)


async def labels(engine: Engine, run: Run) -> list[str]:
    return [event.type.label async for events in await engine.follow(DESKTOP, run_id=run.id) for event in events]


def test_a_call_is_a_run_with_the_result_as_its_output(use: Any) -> None:
    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, "refund", order="A-1")
        assert (run.agent, run.status, run.attempt) == ("tool:refund", "completed", 1)
        assert run.output == '{"refund_id":"R-A-1","amount":1,"name":"Zoë"}', "the text that a model would be told"
        assert decode_json(run.result or "") == {"refund_id": "R-A-1", "amount": 1, "name": "Zoë"}
        assert (view.call.status, view.call.result, view.call.tries) == ("done", run.result, 1)
        assert [("refund", view.call.id, 1)] == MADE
        assert await engine.get_run(run.id, DESKTOP) == run
        assert (await engine.list_runs(DESKTOP)).items == (run,)
        page = await engine.read_conversation(run.conversation_id, DESKTOP)
        asked, replied = page.messages.items
        assert (asked.role, asked.text, replied.calls) == ("user", '{"order":"A-1"}', (view.call,))
        assert await labels(engine, run) == [
            "run.queued",
            "message.completed",
            "run.started",
            "message.completed",
            "tool.called",
            "tool.progress",
            "tool.completed",
            "run.completed",
        ]
        text, _ = await call_tool(engine, "charge", order="A-1")
        assert (text.output, text.result) == ("charged A-1", None)
        assert text.conversation_id != run.conversation_id

    use(story)


@pytest.mark.parametrize(
    ("how", "told"), [("told", "The bank is closed."), ("not", "The tool failed.")], ids=["told", "not told"]
)
def test_a_run_of_a_tool_that_failed_is_completed_and_its_call_says_so(use: Any, how: str, told: str) -> None:
    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, "fails", how=how)
        assert (run.status, run.output, run.result) == ("completed", told, None)
        assert (view.call.status, view.call.is_error) == ("failed", True)
        assert await engine.get_run(run.id, DESKTOP) == run

    use(story)


@pytest.mark.parametrize("tool", ["refund", "charge", "fails"])
def test_what_a_wait_gives_is_what_the_store_says(use: Any, tool: str) -> None:
    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, tool, **({"how": "told"} if tool == "fails" else {"order": "A-1"}))
        assert await engine.call_of(run.id, DESKTOP) == view
        assert await engine.wait_call(run.id, DESKTOP, timeout=0) == (run, view)

    use(story)


def test_a_run_of_a_tool_costs_two_commits(use: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    for verb in ("submit", "write", "pause", "load", "get_run", "get_call", "history"):
        plain = getattr(SqliteStore, verb)

        def counted(*args: Any, _plain: Any = plain, _verb: str = verb, **more: Any) -> Any:
            sent.append(_verb)
            return _plain(*args, **more)

        monkeypatch.setattr(SqliteStore, verb, counted)

    async def story(engine: Engine) -> None:
        await call_tool(engine, "charge", order="A-1")
        assert sent == ["submit", "write"]

    use(story)


def test_tools_are_listed_that_exist_for_a_caller_and_need_no_approval(use: Any) -> None:
    async def story(engine: Engine) -> None:
        names = [tool.name for tool in engine.tools(DESKTOP)]
        assert names == [
            name for name in engine.catalog.tools if name not in ("cancel_order", "may_need", "inner", "for_other")
        ]
        assert {tool.name for tool in engine.tools(OTHER)} - {*names} == {"for_other"}
        for hidden in ("cancel_order", "may_need", "inner", "for_other", "ask_clerk", "read_result", "none"):
            with pytest.raises(NotFound):
                await engine.submit_call(hidden, {}, principal=DESKTOP)
            with pytest.raises(NotFound):
                await engine.call_now(hidden, {}, principal=DESKTOP)

    use(story)


def test_runs_of_tools_are_no_agents(use: Any) -> None:
    async def story(engine: Engine) -> None:
        run, _ = await call_tool(engine, "charge", order="A-1")
        assert [one.name for one in engine.agents(DESKTOP)] == ["boss", "clerk"]
        assert set(engine.catalog.agents) == {"boss", "clerk"}
        with pytest.raises(NotFound):
            await engine.submit("tool:charge", '{"order":"A-1"}', principal=DESKTOP)
        assert (await engine.list_conversations(DESKTOP, "clerk")).items == ()
        chat = await engine.submit("clerk", "Hello", principal=DESKTOP)
        with pytest.raises(NotFound):
            await engine.call_of(chat.run.id, DESKTOP)
        with pytest.raises(NotFound):
            await engine.call_of(run.id, OTHER)
        with pytest.raises(NotFound):
            await engine.wait_call(run.id, OTHER, timeout=0)

    use(story, script=["Hello."])


def test_arguments_that_do_not_fit_start_nothing(use: Any) -> None:
    async def story(engine: Engine) -> None:
        for arguments in ({}, {"order": 1}, {"order": "A-1", "amount": "many"}, {"order": "A-1", "n": float}):
            with pytest.raises(ArgumentsInvalid):
                await engine.submit_call("refund", arguments, principal=DESKTOP)
        with pytest.raises(InvalidRequest, match="the limit is 100"):
            await engine.submit_call("refund", {"order": "A" * 200}, principal=DESKTOP)
        assert (await engine.list_runs(DESKTOP)).items == ()

    use(story, max_message=100)


def test_the_same_key_gives_the_same_run(use: Any) -> None:
    async def story(engine: Engine) -> None:
        first, again = [
            await engine.submit_call("refund", {"order": "A-1"}, principal=DESKTOP, idempotency_key="k") for _ in "12"
        ]
        assert (again.run.id, again.created) == (first.run.id, False)
        with pytest.raises(Conflict):
            await engine.submit_call("refund", {"order": "A-2"}, principal=DESKTOP, idempotency_key="k")
        other = await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP, idempotency_key="k")
        await engine.wait_call(first.run.id, DESKTOP, timeout=30)
        await engine.wait_call(other.run.id, DESKTOP, timeout=30)
        assert [name for name, _, _ in MADE] == ["refund", "charge"]

    use(story)


def test_a_cancel_reaches_the_tool(use: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit_call("hangs", {}, principal=DESKTOP)
        await REACHED[0].wait()
        run = await engine.cancel(submitted.run.id, DESKTOP)
        assert (run.status, run.output) == ("cancelled", None)
        view = await engine.call_of(run.id, DESKTOP)
        assert (view.call.status, view.call.is_error) == ("stopped", True)
        assert await engine.wait_call(run.id, DESKTOP, timeout=30) == (run, view)

    use(story)


def test_a_retry_calls_the_tool_again_with_a_new_call(use: Any) -> None:
    async def story(engine: Engine) -> None:
        old, first = await call_tool(engine, "charge", order="A-1")
        new = await engine.retry(old.id, DESKTOP)
        run, second = await engine.wait_call(new.id, DESKTOP, timeout=30)
        assert (run.agent, run.conversation_id, run.output) == (old.agent, old.conversation_id, old.output)
        assert second.call.id != first.call.id
        assert [("charge", first.call.id, 1), ("charge", second.call.id, 1)] == MADE

    use(story)


def test_an_operator_lists_and_shows_runs_of_tools(tmp_path: Path, with_engine: Any) -> None:
    store = SqliteStore(tmp_path, synchronous="OFF")

    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, "charge", order="A-1")
        operator = Operator(engine, store, ROOT)
        assert await operator.get_run(run.id) == run
        assert (await operator.messages(run.id))[1].calls == (view.call,)
        again = await operator.retry(run.id)
        assert (await engine.wait(again.id, DESKTOP, timeout=30)).status is RunStatus.COMPLETED

    with_engine(store, [Clerk], [], story)


class Later(SystemClock):
    """The time, some seconds ahead; no process of a test is too slow for a lease then."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead

    def running(self) -> float:
        return super().running() + self.ahead


async def interrupted(
    engine: Engine, store: SqliteStore, clock: Later, name: str, *, started: bool = True
) -> tuple[Run, CallView]:
    """A call that was started by a process that died, taken up by this one."""
    run_id, arguments = new_id("run"), '{"order":"A-1"}'
    worker = await store.enroll(new_id("worker"), 30.0)
    reply = started_reply(engine.catalog.tools[name], run_id, arguments, engine.now())
    await store.submit(
        Submission(
            run_id=run_id,
            message_id=new_id("msg"),
            conversation_id=new_id("conv"),
            new_conversation=True,
            agent=f"tool:{name}",
            principal=DESKTOP,
            text=arguments,
            claim_by=worker,
            reply=reply if started else None,
        )
    )
    clock.ahead += 60
    return await engine.wait_call(run_id, DESKTOP, timeout=30)


@pytest.mark.parametrize(("name", "status"), [("refund", "done"), ("charge", "unknown")])
def test_an_interrupted_call_is_taken_up_as_its_effect_says(
    tmp_path: Path, with_engine: Any, name: str, status: str
) -> None:
    clock = Later()
    store = SqliteStore(tmp_path, clock=clock, synchronous="OFF")

    async def story(engine: Engine) -> None:
        run, view = await interrupted(engine, store, clock, name)
        assert (run.status, run.attempt, view.call.status) == ("completed", 2, status)
        assert ([("refund", view.call.id, 2)] if status == "done" else []) == MADE
        assert status == "done" or "outcome is unknown" in (run.output or "")
        begun, view = await interrupted(engine, store, clock, name, started=False)
        assert (begun.status, view.call.status, view.call.tries) == ("completed", "done", 1), "nothing had run"

    with_engine(store, [Clerk], [], story, poll=0.02, lease=3600.0)


def test_a_call_whose_tool_is_gone_says_so(use: Any) -> None:
    async def leave(engine: Engine) -> str:
        return (await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP)).run.id

    run_id = use(leave, worker=False)

    async def look_at(engine: Engine) -> None:
        assert (await engine.call_of(run_id, DESKTOP)).call.status == "open"

    use(look_at, worker=False)

    async def story(engine: Engine) -> None:
        run, view = await engine.wait_call(run_id, DESKTOP, timeout=30)
        assert (run.status, view.call.status) == ("completed", "failed")
        assert run.output == "The tool 'charge' does not exist any more; nothing was done."
        assert await engine.get_run(run_id, DESKTOP) == run

    use(story, declared=())


@tool(name="charge", needs_approval=True, approver="role:boss")
async def charge_after_a_deploy(order: str) -> str:
    """Charge an order, when the boss agrees."""
    return f"charged {order}"


@pytest.mark.parametrize("decision", ["approve", "decline"])
def test_a_call_that_needs_an_approval_since_a_deploy_waits_for_it_and_ends_with_it(use: Any, decision: Any) -> None:
    async def leave(engine: Engine) -> str:
        return (await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP)).run.id

    run_id = use(leave, worker=False)

    async def story(engine: Engine) -> None:
        async for events in await engine.follow(DESKTOP, run_id=run_id):
            if any(event.type.label == "approval.requested" for event in events):
                break
        call_id = (await engine.call_of(run_id, DESKTOP)).call.id
        boss = Principal(id="user:1", channel="web", roles=frozenset({"boss"}))
        with pytest.raises(NotFound):
            await engine.call_of(run_id, boss)
        await engine.decide(call_id, boss, decision)
        run, view = await engine.wait_call(run_id, DESKTOP, timeout=30)
        done = ("charged A-1", "done") if decision == "approve" else ("The person declined this action.", "declined")
        assert (run.status, run.output, view.call.status) == ("completed", *done)
        assert await engine.get_run(run_id, DESKTOP) == run

    use(story, charge_after_a_deploy, declared=(), mcp_approvals="wait")


def test_a_run_that_was_cancelled_before_it_began_has_a_stopped_call(use: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit_call("charge", {"order": "A-1"}, principal=DESKTOP)
        await engine.cancel(submitted.run.id, DESKTOP)
        run, view = await engine.wait_call(submitted.run.id, DESKTOP, timeout=0)
        assert (run.status, view.call.status, view.call.arguments) == ("cancelled", "stopped", '{"order":"A-1"}')

    use(story, worker=False)


def test_a_tool_asks_and_goes_on_with_the_answer(use: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit_call("deliver", {}, principal=DESKTOP)
        async for events in await engine.follow(DESKTOP, run_id=submitted.run.id):
            if any(event.type.label == "question.asked" for event in events):
                break
        run, view = await engine.wait_call(submitted.run.id, DESKTOP, timeout=0)
        assert (view.call.status, run.status.final) == (CallStatus.STARTED, False)
        await engine.answers.answer(view.call.id, DESKTOP, "Elm Street")
        run, view = await engine.wait_call(submitted.run.id, DESKTOP, timeout=30)
        assert (run.output, view.call.status) == ("to Elm Street", "done")

    use(story)


def test_a_hook_sees_direct_calls(use: Any) -> None:
    @before_tool(tools=["charge", "look"])
    async def check(ctx: RunContext, planned: PlannedCall) -> Mapping[str, Any] | Refuse | None:
        if planned.arguments["order"] == "A-2":
            return Refuse(f"{ctx.agent} must not do this.")
        return {"order": "A-9"} if planned.arguments["order"] == "A-1" else None

    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, "charge", order="A-1")
        assert (run.output, view.call.arguments) == ("charged A-9", '{"order":"A-9"}')
        refused, view = await call_tool(engine, "charge", order="A-2")
        assert (refused.output, view.call.status) == ("tool:charge must not do this.", "failed")
        assert await engine.get_run(refused.id, DESKTOP) == refused
        assert [name for name in ("look", "look_in_thread") if engine.needs_run(name)] == ["look"]
        assert (await call_tool(engine, "look", order="A-1"))[1].call.result == '{"order":"A-9","name":"Zo\\u00eb"}'

    use(story, check)


@redact
def hide_orders(text: str) -> str:
    return text.replace("A-1", "[order]").replace('"x"', "[x]")


@tool(read_only=True)
async def tells() -> str:
    """Tell an order."""
    return "it is A-1"


def test_what_is_redacted_is_nowhere_in_a_direct_call(use: Any, tmp_path: Path) -> None:
    async def story(engine: Engine) -> None:
        run, view = await call_tool(engine, "refund", order='A-1 "x"')
        assert decode_json(run.result or "")["refund_id"] == "R-[order] [x]"
        assert decode_json(view.call.arguments) == {"order": "[order] [x]"}
        assert await engine.call_of(run.id, DESKTOP) == view
        told, _ = await call_tool(engine, "tells")
        assert told.output == "it is [order]"
        assert (await engine.call_now("tells", {}, principal=DESKTOP)).result == '"it is [order]"'
        plain, _ = await call_tool(engine, "charge", order="x")
        page = await engine.read_conversation(plain.conversation_id, DESKTOP)
        assert page.messages.items[0].text == '{"order":"x"}', "JSON stays JSON"
        now = await engine.call_now("look", {"order": "A-1"}, principal=DESKTOP)
        assert decode_json(now.result or "") == {"order": "[order]", "name": "Zoë"}

    use(story, hide_orders, tells)
    assert all(b"A-1" not in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


def test_only_what_reads_without_a_context_needs_no_run(use: Any) -> None:
    async def story(engine: Engine) -> None:
        names = [tool.name for tool in engine.tools(DESKTOP)]
        without = [name for name in names if not engine.needs_run(name)]
        assert without == ["look", "look_in_thread", "looks_long", "looks_twice"]
        assert engine.needs_run("none")
        with pytest.raises(ValueError, match="needs a run"):
            await engine.call_now("charge", {"order": "A-1"}, principal=DESKTOP)

    use(story)


def test_a_call_at_once_has_the_result_of_a_run(use: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def story(engine: Engine) -> None:
        for name, arguments in (
            ("look", {"order": "A-1"}),
            ("look_in_thread", {"order": "A-1"}),
            ("looks_long", {}),
            ("looks_twice", {"how": "Ask the office."}),
        ):
            now = await engine.call_now(name, arguments, principal=DESKTOP)
            _, view = await call_tool(engine, name, **arguments)
            assert what_is_told(now) == what_is_told(view.call)
        assert (await engine.list_runs(DESKTOP)).items[0].agent == "tool:looks_twice"
        long = await engine.call_now("look", {"order": "A" * 3000}, principal=DESKTOP)
        assert decode_json(long.result or "").endswith("\n[cut: this result had 3030 bytes; the limit is 2000]")
        MADE.clear()
        now = await engine.call_now("looks_twice", {}, principal=DESKTOP)
        assert (now.status, now.result, now.tries, now.failures) == ("done", '"seen"', 2, 1)
        with pytest.raises(ArgumentsInvalid):
            await engine.call_now("look", {"order": 1}, principal=DESKTOP)

    with caplog.at_level(logging.ERROR):
        use(story, max_result=2000)
    assert any("looks_twice" in one.message and one.exc_info for one in caplog.records)


def what_is_told(call: ToolCall) -> ToolCall:
    return replace(call, id="")


class Session:
    """A database's."""


CLOSED: list[str] = []


@provides(scope="call")
def session(ctx: RunContext) -> Iterator[Session]:
    """Give a session."""
    try:
        yield Session()
    except RuntimeError:
        CLOSED.append(f"{ctx.principal.id} failed")
        raise
    CLOSED.append(f"{ctx.principal.id} done")


@tool(read_only=True)
async def look_with_session(session: Annotated[Session, Inject], good: bool) -> str:
    """Look with a session."""
    assert not CLOSED or good
    if not good:
        raise RuntimeError("secret")
    return type(session).__name__


def test_a_call_at_once_is_given_what_is_made_per_call(use: Any) -> None:
    async def story(engine: Engine) -> None:
        CLOSED.clear()
        bad = await engine.call_now("look_with_session", {"good": False}, principal=DESKTOP)
        good = await engine.call_now("look_with_session", {"good": True}, principal=DESKTOP)
        assert (bad.status, bad.result, good.result) == ("failed", '"The tool failed."', '"Session"')
        assert CLOSED == ["mcp:desktop failed", "mcp:desktop done"]

    use(story, session, look_with_session)


@pytest.mark.parametrize("worker", [True, False], ids=["with a worker", "without"])
def test_a_call_at_once_needs_no_worker_and_is_ended_by_who_asked(use: Any, worker: bool) -> None:
    begun, ended = asyncio.Event(), []

    @tool(read_only=True)
    async def looks_for_ever() -> str:
        """Look for ever."""
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)
        return "never"

    async def story(engine: Engine) -> None:
        asking = asyncio.create_task(engine.call_now("looks_for_ever", {}, principal=DESKTOP))
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert ended == [True]

    use(story, looks_for_ever, worker=worker)
