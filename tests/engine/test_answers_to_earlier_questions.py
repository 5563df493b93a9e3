"""Each question of a call is answered for itself and closes when its time is over; what was told is told once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import ToolContext, agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.models.script import call
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")


@tool(idempotent=True)
async def interview(ctx: ToolContext) -> Any:
    """Ask the same thing twice, and wait for the word."""
    ctx.progress("one moment")
    first = await ctx.ask("Who?")
    ctx.progress(f"hello {first}")
    second = await ctx.ask("Who?")
    await ctx.wait_for("word")
    return [first, second]


@tool(idempotent=True)
async def hurry(ctx: ToolContext) -> str:
    """Ask for a moment, and wait for the word."""
    try:
        return await ctx.ask("Quick?", timeout=0.05)
    except TimeoutError:
        pass
    ctx.progress("too late")
    await ctx.wait_for("word")
    return "nobody"


@agent(tools=[interview, hurry])
class Desk:
    """You ask."""


@agent(agents=[Desk])
class Front:
    """You pass on."""


async def until(engine: Engine, run_id: str, kind: str, k: int | None = None) -> Run:
    """Return a run once it waits for nothing but this."""
    async with asyncio.timeout(60):
        while True:
            run = await engine.get_run(run_id, ANN)
            if run.status == "waiting" and [(one.kind, one.k) for one in run.waiting_for] == [(kind, k)]:
                return run
            await asyncio.sleep(0.005)


async def told(engine: Engine, run_id: str) -> list[Any]:
    """Return what the run's readers are told of its calls and itself, once it has ended."""
    found = []
    async for events in await engine.follow(ANN, run_id=run_id):
        found += [(event.type.label, event.data.get("text", event.data.get("k"))) for event in events]
    wanted = ("question.asked", "question.answered", "question.closed", "tool.progress")
    return [one for one in found if one[0] in wanted]


async def refused(engine: Engine, call_id: str, value: Any, **which: Any) -> str:
    with pytest.raises(Conflict) as error:
        await engine.answers.answer(call_id, ANN, value, **which)
    return error.value.code


def test_an_answer_is_to_its_own_question_whatever_the_call_waits_for_by_then(tmp_path: Path, with_engine: Any) -> None:
    async def story(engine: Engine) -> None:
        run_id = (await engine.submit("desk", "Go", principal=ANN)).run.id
        call_id = (await until(engine, run_id, "question", 1)).waiting_for[0].call_id or ""
        answer = engine.answers.answer
        first = await answer(call_id, ANN, "Ann", k=1)
        await until(engine, run_id, "question", 2)
        assert (await answer(call_id, ANN, "Ann", k=1)).call.wait == first.call.wait
        assert await refused(engine, call_id, "Bo", k=1) == "already_answered"
        assert await refused(engine, call_id, "Bo", k=3) == "question_changed"
        assert await refused(engine, call_id, "Bo", question="What?") == "question_changed"
        second = await answer(call_id, ANN, "Bo", question="Who?")  # of two with one text it is the later
        await until(engine, run_id, "signal")
        assert (await answer(call_id, ANN, "Ann", k=1)).call.wait == first.call.wait
        for which in ({}, {"k": 2}, {"question": "Who?"}):
            assert (await answer(call_id, ANN, "Bo", **which)).call.wait == second.call.wait
            assert await refused(engine, call_id, "Cy", **which) == "already_answered"
        await engine.answers.signal(run_id, ANN, "word")
        assert (await engine.wait(run_id, ANN, timeout=60)).output == "Done."
        assert (await answer(call_id, ANN, "Ann", k=1)).call.wait == first.call.wait
        assert await told(engine, run_id) == [
            ("tool.progress", "one moment"),
            ("question.asked", 1),
            ("question.answered", 1),
            ("tool.progress", "hello Ann"),
            ("question.asked", 2),
            ("question.answered", 2),
        ]

    script = [call("interview"), "Done."]
    with_engine(SqliteStore(tmp_path), [Desk], script, story)


@pytest.mark.parametrize("of", ["the run itself", "a run below it"])
def test_a_question_whose_time_is_over_is_told_to_be_closed_and_takes_no_answer(
    tmp_path: Path, with_engine: Any, of: str
) -> None:
    below = of == "a run below it"

    async def story(engine: Engine) -> None:
        run_id = (await engine.submit("front" if below else "desk", "Go", principal=ANN)).run.id
        async with asyncio.timeout(60):
            async for events in await engine.follow(ANN, run_id=run_id):
                closed = [event.data for event in events if event.type.label == "question.closed"]
                if closed:
                    break
        (told_closed,) = closed
        call_id = told_closed["call_id"]
        assert told_closed == {"run_id": run_id, "call_id": call_id, "k": 1}
        for which in ({}, {"k": 1}, {"question": "Quick?"}):
            assert await refused(engine, call_id, "yes", **which) == "question_closed"
        await engine.answers.signal(run_id, ANN, "word")  # a run below hears it too
        assert (await engine.wait(run_id, ANN, timeout=60)).output == "Done."
        events = await told(engine, run_id)
        assert events == [("question.asked", 1), ("question.closed", 1), ("tool.progress", "too late")]
        with pytest.raises(NotFound):
            await engine.answers.answer(call_id.replace("_1_0", "_1_1"), ANN, "yes")

    asking = [call("hurry"), "Done."]
    script = {"look": asking, "Go": [call("ask_desk", message="look"), "Done."]} if below else asking
    with_engine(SqliteStore(tmp_path), [Desk, Front], script, story)
