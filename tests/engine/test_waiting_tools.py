"""Tools that wait for an answer, a time or a signal: their code ends, and runs again when the wait is over."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, field_validator

from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, InvalidRequest, NotFound
from amoxi_py.models.script import call, reply
from amoxi_py.ports.changes import Change
from amoxi_py.ports.inputs import Answer
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
BOB = Principal(id="user:bob")
ledger: list[Any] = []
gates: dict[str, asyncio.Event] = {}


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    ledger.clear()
    gates.clear()


class Address(BaseModel):
    """Where to."""

    street: str
    number: int

    @field_validator("street")
    @classmethod
    def a_street_of_this_town(cls, street: str) -> str:
        if street == "Nowhere":
            raise ValueError("there is no such street")
        return street


@tool(idempotent=True)
async def ship(ctx: ToolContext) -> str:
    """Ship it."""
    ledger.append(("begins", ctx.call_id, ctx.attempt))
    label = await ctx.step("label", ledger.append, "label")
    try:
        address = await ctx.ask("Which address?", Address)
        sure = await ctx.ask("Sure?", Literal["yes", "no"])
    except Exception:
        ledger.append("swallowed")
        raise
    finally:
        ledger.append("cleaned up")
    return f"{label} {address.street} {address.number} {sure}"


@tool(read_only=True)
def phone(ctx: SyncToolContext) -> str:
    """Ask on the phone, from a thread."""
    try:
        name = ctx.ask("Who is it?")
    except BaseException:
        ledger.append("ended")
        return "a result that does not count"
    return f"It is {name}"


@tool(read_only=True, timeout=0.5)
async def rest(seconds: float, ctx: ToolContext) -> str:
    """Rest.

    Args:
        seconds: For how long
    """
    ledger.append("rests")
    await ctx.sleep(timedelta(seconds=seconds))
    return "rested"


@tool(idempotent=True)
async def pay(ctx: ToolContext, patience: float = 30) -> Any:
    """Wait for the payment.

    Args:
        patience: For how many seconds
    """
    try:
        return await ctx.wait_for("paid", timeout=patience)
    except TimeoutError as error:
        return f"gave up: {error}"


@tool(idempotent=True)
async def slow(ctx: ToolContext) -> str:
    """Work until the gate opens."""
    await gates.setdefault("slow", asyncio.Event()).wait()
    return "slow is done"


@tool
async def unsafe(ctx: ToolContext) -> str:
    """Do what must not be done twice."""
    return await ctx.ask("Really?")


@tool(read_only=True)
async def both(ctx: ToolContext) -> Any:
    """Ask two things at once."""
    return await asyncio.gather(ctx.ask("One?"), ctx.ask("Two?"))


@tool(read_only=True)
async def in_step(ctx: ToolContext) -> Any:
    """Ask in a step."""
    return await ctx.step("ask", ctx.ask, "In a step?")


@agent(tools=[ship, phone, rest, pay, slow, unsafe, both, in_step])
class Desk:
    """You work."""


def desk_of(*tools: Any) -> Any:
    """Return another version of the agent, with these tools."""

    @agent(tools=list(tools))
    class Desk:
        """You work."""

    return Desk


async def submit(engine: Engine) -> str:
    return (await engine.submit("desk", "Go", principal=ANN)).run.id


async def until(engine: Engine, run_id: str, label: str, times: int = 1) -> dict[str, Any]:
    """Return what the event of a run tells that comes as the `times`-th of its type."""
    async with asyncio.timeout(60):
        async for events in await engine.follow(ANN, run_id=run_id):
            for event in events:
                times -= event.type.label == label
                if not times:
                    return dict(event.data)
    raise AssertionError(f"no {label}")


async def until_waiting(engine: Engine, run_id: str, times: int = 1) -> Run:
    await until(engine, run_id, "run.waiting", times)
    return await engine.get_run(run_id, ANN)


async def result_of(engine: Engine, run_id: str, n: int = 0) -> Any:
    """Return the status and the result of a call of the run's first reply, once the run has ended."""
    run = await engine.wait(run_id, ANN, timeout=60)
    assert run.status == "completed", run
    calls = (await engine._store.run_messages(run_id, ANN))[1].calls
    return calls[n].status.value, calls[n].result


def one(engine: Engine, run: Run) -> str:
    (waiting,) = run.waiting_for
    assert waiting.call_id is not None
    return waiting.call_id


def test_a_tool_ends_at_a_question_and_runs_again_with_the_answer(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        run = await until_waiting(engine, run_id)
        (waiting,) = run.waiting_for
        assert (run.status, waiting.kind, waiting.tool, waiting.name) == (
            "waiting",
            "question",
            "ship",
            "Which address?",
        )
        assert waiting.schema is not None
        assert "street" in waiting.schema
        call_id = one(engine, run)
        for wrong in ("Main St", {"street": "Main St"}, {"street": "Main St", "number": "a"}):
            with pytest.raises(InvalidRequest) as refused:
                await engine.answers.answer(call_id, ANN, wrong)
            assert refused.value.errors
        with pytest.raises(NotFound):
            await engine.answers.answer(call_id, BOB, {"street": "Main St", "number": 1})
        # what the schema does not say, the type does: it is asked again
        await engine.answers.answer(call_id, ANN, {"street": "Nowhere", "number": 1})
        told = await until(engine, run_id, "question.asked", 2)
        assert told["question"].startswith("Which address?\n")
        assert "no such street" in told["question"]
        with pytest.raises(Conflict):
            await engine.answers.answer(call_id, ANN, {"street": "Main", "number": 1}, question="Which address?")
        run = await until_waiting(engine, run_id, 2)
        await engine.answers.answer(call_id, ANN, {"street": "Main", "number": 1}, question=told["question"])
        await until_waiting(engine, run_id, 3)
        view = await engine.answers.answer(call_id, ANN, "yes")
        assert view.call.wait is not None
        assert (view.call.wait.value, view.call.wait.by) == ('"yes"', "user:ann")
        assert await result_of(engine, run_id) == ("done", '"None Main 1 yes"')

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("ship")), "Shipped."], story)
    begins = [one for one in ledger if isinstance(one, tuple)]
    assert len({call_id for _, call_id, _ in begins}) == 1, "the call's id stays the same"
    assert [attempt for *_, attempt in begins] == [1, 2, 3, 4]
    assert ledger.count("label") == 1, "a recorded step does not run again"
    assert ledger.count("cleaned up") == 4
    assert "swallowed" not in ledger, "no `except Exception` sees the end of the code"


def test_a_sync_tool_waits_without_its_thread_and_cannot_turn_that_into_a_result(
    tmp_path: Path, with_engine: Any
) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        run = await until_waiting(engine, run_id)
        for empty in ("", " \n", 7):
            with pytest.raises(InvalidRequest):
                await engine.answers.answer(one(engine, run), ANN, empty)
        await engine.answers.answer(one(engine, run), ANN, "Bo")
        assert await result_of(engine, run_id) == ("done", '"It is Bo"')

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("phone")), "Fine."], story, tool_threads=1)
    assert ledger == ["ended"]


def test_a_sleep_ends_the_code_also_when_it_is_longer_than_the_tools_own_timeout(
    tmp_path: Path, with_engine: Any
) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        run = await until_waiting(engine, run_id)
        assert [(each.kind, each.tool) for each in run.waiting_for] == [("sleep", "rest")]
        assert run.waiting_for[0].expires_at is not None
        assert await result_of(engine, run_id) == ("done", '"rested"')

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("rest", seconds=0.7)), "Good."], story, poll=0.05)
    assert ledger == ["rests", "rests"]


def test_a_signal_that_came_before_is_kept_and_one_that_comes_later_wakes_the_run(
    tmp_path: Path, with_engine: Any
) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        await until(engine, run_id, "tool.called")
        await engine.answers.signal(run_id, ANN, "other", 1)
        await engine.answers.signal(run_id, ANN, "paid", {"sum": 1}, idempotency_key="one")
        await engine.answers.signal(run_id, ANN, "paid", {"sum": 1}, idempotency_key="one")
        await engine.answers.signal(run_id, ANN, "paid", {"sum": 2})
        gates["slow"].set()
        await until(engine, run_id, "run.completed")
        calls = [each for message in await engine._store.run_messages(run_id, ANN) for each in message.calls]
        results = {each.tool: each.result for each in calls[1:]}
        assert [each.result for each in calls[1:4]] == ['{"sum":1}', '{"sum":2}', '{"sum":3}'], results

    async def also_later(engine: Engine) -> None:
        task = asyncio.create_task(story(engine))
        while not (runs := (await engine.list_runs(ANN)).items):
            assert not task.done(), task.result()
        runs = (await until_waiting(engine, runs[0].id),)
        assert [(each.kind, each.name) for each in runs[0].waiting_for] == [("signal", "paid")]
        with pytest.raises(NotFound):
            await engine.answers.signal(runs[0].id, BOB, "paid")
        with pytest.raises(InvalidRequest):
            await engine.answers.signal(runs[0].id, ANN, "no name")
        await engine.answers.signal(runs[0].id, ANN, "paid", {"sum": 3})
        await task
        with pytest.raises(Conflict):
            await engine.answers.signal(runs[0].id, ANN, "paid")

    script = [reply(call("slow")), reply(call("pay")), reply(call("pay")), reply(call("pay")), "Paid."]
    with_engine(SqliteStore(tmp_path), [Desk], script, also_later)


def test_a_wait_that_nothing_comes_for_ends_with_a_timeout_error(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        assert await result_of(engine, run_id) == ("done", "\"gave up: the signal 'paid' has not come in time\"")

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("pay", patience=0.2)), "No."], story, poll=0.05)


def test_other_calls_go_on_while_one_waits_and_it_goes_on_while_they_run(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        asked = await until(engine, run_id, "question.asked")  # in the place of the one that waits for a signal
        while "ended" not in ledger:
            await engine.get_run(run_id, ANN)
        for _ in range(5):  # as many ways to the store as an execution makes that looks again
            await engine.get_run(run_id, ANN)
        await engine.answers.answer(asked["call_id"], ANN, "Bo")
        assert (await until(engine, run_id, "tool.completed"))["result"] == "It is Bo"
        await engine.answers.signal(run_id, ANN, "paid", 7)
        assert (await until(engine, run_id, "tool.completed", 2))["result"] == 7
        run = await engine.get_run(run_id, ANN)
        assert run.status == "running", "the slow call still runs"
        gates["slow"].set()
        assert await result_of(engine, run_id) == ("done", '"slow is done"')

    script = [reply(call("slow"), call("pay"), call("phone")), "All done."]
    with_engine(SqliteStore(tmp_path), [Desk], script, story, parallel_calls=2)


def test_a_sleep_is_over_in_time_while_another_call_runs(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        assert (await until(engine, run_id, "tool.completed"))["result"] == "rested", "the slow call still runs"
        gates["slow"].set()
        assert await result_of(engine, run_id) == ("done", '"slow is done"')

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("slow"), call("rest", seconds=0.1)), "Done."], story)
    assert ledger == ["rests", "rests"]


@pytest.mark.parametrize(
    ("tool_name", "logged"),
    [
        ("unsafe", "declared `read_only=True` or `idempotent=True`"),
        ("both", "one after the other"),
        ("in_step", "cannot be used in a step"),
    ],
)
def test_a_wait_where_none_can_be_is_an_error_that_says_so(
    tool_name: str, logged: str, tmp_path: Path, with_engine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        status, _ = await result_of(engine, run_id)
        assert status == "failed"

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call(tool_name)), "No."], story)
    assert logged in caplog.text


def test_a_waiting_run_that_is_cancelled_ends_and_takes_no_answer(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        run = await until_waiting(engine, run_id)
        cancelled = await engine.cancel(run_id, ANN)
        assert (cancelled.status, cancelled.waiting_for) == ("cancelled", ())
        with pytest.raises(Conflict):
            await engine.answers.answer(one(engine, run), ANN, "Bo")

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("phone"))], story)


def test_a_waiting_run_goes_on_after_a_restart_with_what_was_recorded(tmp_path: Path, with_engine: Any) -> None:
    async def before(engine: Engine) -> str:
        run_id = await submit(engine)
        await until_waiting(engine, run_id)
        return run_id

    run_id = with_engine(SqliteStore(tmp_path), [Desk], [reply(call("ship"))], before)

    async def after(engine: Engine) -> None:
        run = await engine.get_run(run_id, ANN)
        await engine.answers.answer(one(engine, run), ANN, {"street": "Main", "number": 2})
        run = await until_waiting(engine, run_id, 2)
        await engine.answers.answer(one(engine, run), ANN, "no")
        assert await result_of(engine, run_id) == ("done", '"None Main 2 no"')
        assert run.attempt == 1, "nothing crashed"

    with_engine(SqliteStore(tmp_path), [Desk], [reply(call("ship")), "Shipped."], after)
    assert ledger.count("label") == 1


def test_a_tool_that_was_changed_while_it_waited_tells_the_model(tmp_path: Path, with_engine: Any) -> None:
    async def before(engine: Engine) -> str:
        run_id = await submit(engine)
        await until_waiting(engine, run_id)
        return run_id

    run_id = with_engine(SqliteStore(tmp_path), [Desk], [reply(call("phone"))], before)

    @tool(read_only=True, name="phone")
    async def other(ctx: ToolContext) -> Any:
        """Wait for a call."""
        return await ctx.wait_for("rings")

    async def after(engine: Engine) -> None:
        run = await engine.get_run(run_id, ANN)
        await engine.answers.answer(one(engine, run), ANN, "Bo")
        status, result = await result_of(engine, run_id)
        assert status == "failed"
        assert "The tool was changed while it waited" in result

    with_engine(SqliteStore(tmp_path), [desk_of(other)], [reply(call("phone")), "So."], after)


class AnsweredAtOnce(SqliteStore):
    """Each question is answered in the moment in which it is stored, before anybody knows that it was."""

    def write(self, change: Change) -> asyncio.Future[float | None]:
        written = super().write(change)
        for new in change.waits:
            call_id = f"call_{change.lease.run_id[4:]}_{new.turn}_{new.n}"
            answer = Answer(call_id=call_id, k=new.wait.k, principal=ANN, value='"Bo"')
            written.add_done_callback(lambda _, answer=answer: asyncio.ensure_future(self.answer(answer)))
        return written


def test_an_answer_in_the_moment_of_the_question_is_not_missed(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        assert await result_of(engine, run_id) == ("done", '"It is Bo"')

    with_engine(AnsweredAtOnce(tmp_path), [Desk], [reply(call("phone")), "Fine."], story)


def test_an_answer_that_comes_while_the_code_still_ends_is_not_missed(tmp_path: Path, with_engine: Any) -> None:
    @tool(read_only=True)
    async def lingers(ctx: ToolContext) -> str:
        """Ask, and take its time to end."""
        try:
            return "It is " + await ctx.ask("Who?")
        finally:
            await gates.setdefault("lingers", asyncio.Event()).wait()

    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        await until(engine, run_id, "question.answered")
        await engine.get_run(run_id, ANN)  # a way to the store and back, as the execution makes it that heard of it
        gates["lingers"].set()
        assert (await until(engine, run_id, "tool.completed"))["result"] == "It is Bo", "while the slow one runs"
        gates["slow"].set()
        assert await result_of(engine, run_id, 1) == ("done", '"It is Bo"')

    script = [reply(call("slow"), call("lingers")), "Fine."]
    with_engine(AnsweredAtOnce(tmp_path), [desk_of(slow, lingers)], script, story)


def test_a_failed_try_is_tried_anew_with_what_was_answered(tmp_path: Path, with_engine: Any) -> None:
    @tool(read_only=True, retries=1)
    async def flaky(ctx: ToolContext) -> str:
        """Ask, and fail once."""
        name = await ctx.ask("Who?")
        ledger.append(name)
        if len(ledger) == 1:
            raise ConnectionError("away")
        return name

    async def story(engine: Engine) -> None:
        run_id = await submit(engine)
        await engine.answers.answer(one(engine, await until_waiting(engine, run_id)), ANN, "Bo")
        assert await result_of(engine, run_id) == ("done", '"Bo"')

    with_engine(SqliteStore(tmp_path), [desk_of(flaky)], [reply(call("flaky")), "Fine."], story)
    assert ledger == ["Bo", "Bo"], "nobody is asked twice"
