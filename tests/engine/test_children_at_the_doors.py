"""Child runs as others see them: the operator, handlers of events, a person who is asked, and a changed app."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from amoxi_py import Principal, RunEvent, ToolContext, agent, on, tool
from amoxi_py.domain.ids import child_run_id
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.operator import Operator
from amoxi_py.models.script import call
from amoxi_py.ports.operator_store import RunFilter
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann", name="Ann")
ROOT = Principal(id="system:root")
_BOUND = 20.0
told: list[RunEvent] = []
held: list[asyncio.Event] = []


class Sum(BaseModel):
    """What was counted."""

    total: int


@tool(needs_approval=True, approver="role:finance")
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(idempotent=True)
async def inquire(ctx: ToolContext) -> str:
    """Ask the person."""
    return f"to {await ctx.ask('Which address?')}"


@tool(idempotent=True)
async def hold(ctx: ToolContext) -> str:
    """Wait."""
    held[-1].set()
    await ctx.signal.wait()
    return "held"


@agent(tools=[pay, inquire, hold])
class Desk:
    """You do the work."""


@agent(result=Sum)
class Counter:
    """You count."""


@agent(agents=[Desk, Counter])
class Front:
    """You talk to people."""


@on("approval.requested", "run.completed", "tool.completed")
async def hear(event: RunEvent) -> None:
    told.append(event)


async def until(condition: Any) -> Any:
    async with asyncio.timeout(_BOUND):
        while not (found := condition() if not asyncio.iscoroutinefunction(condition) else await condition()):
            await asyncio.sleep(0.005)
    return found


async def waiting(engine: Engine, run_id: str, kind: str) -> Any:
    async def found() -> Any:
        run = await engine.get_run(run_id, ANN)
        return run.status == "waiting" and next((one for one in run.waiting_for if one.kind == kind), None)

    return await until(found)


def test_the_operator_decides_and_a_handler_hears_of_a_childs_approval_as_the_roots(
    tmp_path: Path, with_engine: Any
) -> None:
    store = SqliteStore(tmp_path)
    told.clear()

    async def story(engine: Engine) -> None:
        operator = Operator(engine, store, ROOT)
        submitted = await engine.submit("front", "hi", principal=ANN)
        asked = await waiting(engine, submitted.run.id, "approval")
        (listed,) = (await operator.list_approvals()).items
        assert (listed.call.id, listed.run_id, listed.agent) == (asked.call_id, submitted.run.id, "front")
        await operator.decide(asked.call_id, "approve", arguments={"amount": 2})
        run = await engine.wait(submitted.run.id, ANN, timeout=_BOUND)
        assert run.output == "Done."
        assert [one.id for one in (await operator.list_runs(RunFilter())).items] == [run.id]
        child_id = child_run_id((await operator.messages(run.id))[1].calls[0].id)
        assert (await operator.get_run(child_id)).root_id == run.id
        (paid,) = (await operator.messages(child_id))[1].calls
        assert paid.result == '"paid 2"'
        await until(lambda: any(event.type == "run.completed" for event in told))
        assert [(event.type, event.run_id, event.agent) for event in told] == [
            ("approval.requested", run.id, "front"),
            ("tool.completed", run.id, "front"),
            ("tool.completed", run.id, "front"),
            ("run.completed", run.id, "front"),
        ]
        assert told[0].data["call_id"] == asked.call_id

    script = {"hi": [call("ask_desk", message="Pay"), "Done."], "Pay": [call("pay", amount=1), "Paid."]}
    with_engine(store, [Front, hear], script, story)


def test_who_has_the_role_that_a_childs_tool_names_decides_and_the_owner_may_not(
    tmp_path: Path, with_engine: Any
) -> None:
    boss = Principal(id="user:boss", roles=frozenset({"finance"}))

    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        asked = await waiting(engine, submitted.run.id, "approval")
        with pytest.raises(Exception, match="for somebody else to decide"):
            await engine.decide(asked.call_id, ANN, "approve")
        # It waits for somebody else, so a second message does not replace it.
        second = await engine.submit("front", "and?", principal=ANN, conversation_id=submitted.run.conversation_id)
        assert second.run.status == "queued"
        (listed,) = (await engine.list_approvals(boss)).items
        await engine.decide(listed.call.id, boss, "decline")
        assert (await engine.wait(second.run.id, ANN, timeout=_BOUND)).output == "Nothing."
        assert (await engine.get_run(submitted.run.id, ANN)).output == "Done."

    script = {
        "hi": [call("ask_desk", message="Pay"), "Done."],
        "Pay": [call("pay", amount=1), "No."],
        "and?": ["Nothing."],
    }
    with_engine(SqliteStore(tmp_path), [Front], script, story)


def test_a_question_of_a_child_is_told_and_answered_at_the_root(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        asked = await waiting(engine, submitted.run.id, "question")
        assert (asked.tool, asked.name) == ("inquire", "Which address?")
        await engine.answers.answer(asked.call_id, ANN, "Sea Road 1", run_id=submitted.run.id, agent="front")
        run = await engine.wait(submitted.run.id, ANN, timeout=_BOUND)
        assert run.output == "Done."
        stream = await engine.follow(ANN, run_id=run.id)
        events = [event async for batch in stream for event in batch if event.data.get("call_id") == asked.call_id]
        assert [event.type.label for event in events] == ["question.asked", "question.answered", "tool.completed"]
        assert events[-1].data["result"] == "to Sea Road 1"

    script = {"hi": [call("ask_desk", message="Ask"), "Done."], "Ask": [call("inquire"), "Asked."]}
    with_engine(SqliteStore(tmp_path), [Front], script, story)


def test_an_agent_with_a_structured_result_answers_with_it(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit("front", "hi", principal=ANN)
        run = await engine.wait(submitted.run.id, ANN, timeout=_BOUND)
        (asked,) = (await engine.read_conversation(run.conversation_id, ANN)).messages.items[1].calls
        assert (run.output, asked.result) == ("Done.", '{"total":3}')

    script = {"hi": [call("ask_counter", message="Count"), "Done."], "Count": [call("final_result", total=3)]}
    with_engine(SqliteStore(tmp_path), [Front], script, story)


@pytest.mark.parametrize("gone", ["the tool that asks", "the agent that is asked"])
def test_a_changed_app_goes_on_with_what_was_asked_before_as_far_as_it_can(
    tmp_path: Path, with_engine: Any, gone: str
) -> None:
    script = {"hi": [call("ask_desk", message="Hold"), "Done."], "Hold": [call("hold"), "Held."]}

    async def before(engine: Engine) -> Any:
        held.append(asyncio.Event())
        submitted = await engine.submit("front", "hi", principal=ANN)
        await held[-1].wait()
        await waiting(engine, submitted.run.id, "child")
        return submitted.run

    run = with_engine(SqliteStore(tmp_path), [Front], script, before)

    @tool(idempotent=True, name="hold")
    async def hold_no_more() -> str:
        """Go on."""
        return "held"

    class Front2:
        """You talk to people."""

    Front2.__name__ = "Front"
    newer = agent(tools=[hold_no_more], expose=True)(Front2)

    class Desk2:
        """You do the work."""

    Desk2.__name__ = "Desk"
    things = [newer, agent(tools=[hold_no_more])(Desk2)] if gone == "the tool that asks" else [newer]

    async def after(engine: Engine) -> None:
        ended = await engine.wait(run.id, ANN, timeout=_BOUND)
        (asked,) = (await engine.read_conversation(run.conversation_id, ANN)).messages.items[1].calls
        assert ended.output == "Done."
        if gone == "the tool that asks":
            assert (asked.status, asked.result) == (CallStatus.DONE, '"Held."')
        else:
            assert asked.status is CallStatus.FAILED
            assert asked.result is not None
            assert "the agent 'desk' does not exist any more (agent_unknown)" in asked.result

    with_engine(SqliteStore(tmp_path), things, script, after)


def test_a_call_that_an_older_tool_would_take_asks_nobody_and_the_run_goes_on(tmp_path: Path, with_engine: Any) -> None:
    script = {"hi": [[call("ask_desk", question="a"), call("ask_desk", question="b")], "Done."]}

    @tool(read_only=True, name="ask_desk")
    async def ask_desk(question: str, ctx: ToolContext) -> str:
        """Wait."""
        held[-1].set()
        await ctx.signal.wait()
        return question

    class Front2:
        """You talk to people."""

    Front2.__name__ = "Front"

    async def before(engine: Engine) -> Any:
        held.append(asyncio.Event())
        submitted = await engine.submit("front", "hi", principal=ANN)
        await held[-1].wait()
        return submitted.run

    run = with_engine(SqliteStore(tmp_path), [agent(tools=[ask_desk])(Front2)], script, before, parallel_calls=1)

    async def after(engine: Engine) -> None:
        assert (await engine.wait(run.id, ANN, timeout=_BOUND)).output == "Done."
        calls = (await engine.read_conversation(run.conversation_id, ANN)).messages.items[1].calls
        assert [one.status for one in calls] == [CallStatus.FAILED] * 2
        assert all("does not take these arguments any more" in (one.result or "") for one in calls)

    with_engine(SqliteStore(tmp_path), [Front], script, after, parallel_calls=1)
