"""The test kit for tools that ask and wait: answers and signals by the test, of a run and of a tool by hand."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import SyncToolContext, ToolContext, agent, tool
from amoxi_py.testing import AskedQuestion, ScriptedModel, call, crash, run_agent, tool_context


@tool(idempotent=True)
async def book(ctx: ToolContext) -> Any:
    """Book a room."""
    size = await ctx.ask("For how many?", int)
    name = await ctx.ask("In whose name?")
    await ctx.sleep(0.01)
    return [size, name, await ctx.wait_for("paid")]


@tool(read_only=True)
def patient(ctx: SyncToolContext) -> str:
    """Wait for somebody, for a day."""
    ctx.sleep(86_400)
    try:
        return ctx.ask("Anybody?", timeout=60)
    except TimeoutError:
        return "nobody"


@agent(tools=[book])
class Hotel:
    """You book rooms."""


def run(**options: Any) -> Any:
    return run_agent(Hotel, "Book", model=ScriptedModel([call("book"), "Booked."]), **options)


def test_a_run_is_given_its_answers_in_order_and_its_signals() -> None:
    found = run(answers={"book": [2, "Ann"]}, signals={"paid": [True]})
    assert found.call("book").result == [2, "Ann", True]
    asked = [event.data["question"] for event in found.events if event.type == "question.asked"]
    assert asked == ["For how many?", "In whose name?"]


def test_a_function_answers_by_what_is_asked() -> None:
    seen: list[AskedQuestion] = []

    async def answer(asked: AskedQuestion) -> Any:
        seen.append(asked)
        return 3 if asked.schema else "Bo"

    assert run(answers={"book": answer}, signals={"paid": [1]}).call("book").result == [3, "Bo", 1]
    assert [(one.tool, one.schema) for one in seen] == [("book", {"type": "integer"}), ("book", None)]


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "the tool 'book' asks 'For how many.', and the test has no answer left"),
        ({"book": [2]}, "asks 'In whose name.'"),
        ({"book": ["two"]}, "the answer 'two' to 'For how many.' is refused: .*is not of type 'integer'"),
    ],
)
def test_a_question_without_an_answer_that_fits_fails_the_test(answers: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        run(answers=answers)


@agent(tools=[patient, book], agents=[Hotel])
class Porter:
    """You wait for people."""


@pytest.mark.parametrize("answers", [[TimeoutError], lambda asked: TimeoutError()])
def test_a_run_passes_over_the_times_that_it_waits_for_also_where_nobody_answers(answers: Any) -> None:
    begun = time.monotonic()
    model = ScriptedModel([call("patient"), "Nobody."])
    found = run_agent(Porter, "Wait", model=model, answers={"patient": answers})
    assert (found.call("patient").result, found.run.status) == ("nobody", "completed")
    assert [event.type for event in found.events].count("question.closed") == 1
    assert found.run.updated_at - found.run.created_at > 86_400, "the day has passed by the clock of the run"
    assert time.monotonic() - begun < 20
    again = run_agent(Porter, "And?", model=ScriptedModel(["Still here."]), conversation=found)
    assert again.run.created_at >= found.run.updated_at, "the next run of a conversation is not before it"


def test_a_run_waits_for_what_its_children_wait_for_and_they_are_given_it_too() -> None:
    models = {
        "porter": ScriptedModel([[call("ask_hotel", message="Book"), call("patient")], "All done."]),
        "hotel": ScriptedModel([call("book"), "Booked."]),
    }
    found = run_agent(
        Porter,
        "Go",
        model=models,
        answers={"book": [2, "Ann"], "patient": [TimeoutError]},
        signals={"paid": [True]},
    )
    assert found.child("hotel").call("book").result == [2, "Ann", True]
    assert (found.call("patient").result, found.output) == ("nobody", "All done.")


def test_a_question_that_nobody_answers_and_a_signal_that_does_not_come_have_to_be_possible() -> None:
    with pytest.raises(
        AssertionError, match=r"nobody answers 'For how many.' of the tool 'book', which has no timeout"
    ):
        run(answers={"book": [TimeoutError]})
    with pytest.raises(ValueError, match="leave a signal out that does not come"):
        run(answers={"book": [2, "Ann"]}, signals={"paid": [TimeoutError]})


def test_an_answer_for_an_unknown_tool_is_a_mistake_of_the_test() -> None:
    with pytest.raises(LookupError, match="`answers` names 'buk', which is no tool of 'hotel'"):
        run(answers={"buk": ["x"]})


def test_a_tool_by_hand_has_all_it_waits_for_at_once_and_again() -> None:
    ctx = tool_context(answers=[2, "Ann"], signals={"paid": [1]})
    assert asyncio.run(book(ctx)) == [2, "Ann", 1]
    assert asyncio.run(book(ctx.again())) == [2, "Ann", 1], "recorded waits return what they returned"
    assert (ctx.questions, ctx.slept) == (["For how many?", "In whose name?"], [0.01])
    waits = tool_context(sync=True, answers=[TimeoutError])
    assert patient(waits) == "nobody"
    assert waits.slept == [86_400.0]


def test_a_signal_can_come_after_the_time_was_over() -> None:
    async def wait_twice(ctx: ToolContext) -> Any:
        try:
            return await ctx.wait_for("paid", timeout=60)
        except TimeoutError:
            return ["late", await ctx.wait_for("paid")]

    ctx = tool_context(signals={"paid": [TimeoutError, {"cents": 5}]})
    assert asyncio.run(wait_twice(ctx)) == ["late", {"cents": 5}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "the tool asks 'For how many.', and the test has no answer left"),
        ({"answers": ["x"]}, "the answer 'x' to 'For how many.' is refused"),
        ({"answers": [1, "x"]}, "waits for the signal 'paid', and the test has none left"),
    ],
)
def test_a_tool_by_hand_that_is_given_too_little_says_what(given: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        asyncio.run(book(tool_context(**given)))


@tool(idempotent=True)
async def deliver(ctx: ToolContext) -> str:
    """Ask, print a label once, wait for the payment, rest."""
    street = await ctx.ask("Which street?")
    await ctx.step("label", _print_label)
    paid = await ctx.wait_for("paid", timeout=60)
    await ctx.sleep(0.001)
    return f"{street}, {paid}"


def _print_label() -> None:
    if not Path("labels.log").exists():  # as by an idempotency key
        Path("labels.log").write_text("label\n", encoding="utf-8")


@agent(tools=[deliver])
class Courier:
    """You deliver."""


def deliver_once() -> None:
    """A run that asks, waits and rests."""
    model = ScriptedModel([call("deliver"), "Delivered."])
    result = run_agent(Courier, "Go", model=model, answers={"deliver": ["Elm St"]}, signals={"paid": [7]})
    assert result.call("deliver").result == "Elm St, 7"


def test_a_waiting_tool_that_is_killed_at_a_commit_is_asked_and_told_once() -> None:
    def once(killed: crash.Killed) -> None:
        with closing(sqlite3.connect(next(killed.folder.rglob("*.db")))) as store:
            asked, answered, sent, waits = (
                store.execute(f"SELECT count(*) FROM {what}").fetchone()[0]
                for what in ("event WHERE type = 16", "event WHERE type = 17", "event WHERE type = 18", "wait")
            )
        assert (asked, answered, sent, waits) == (1, 1, 1, 3)

    report = crash.at_every_step(deliver_once, ledgers={"labels.log": crash.exactly(1)}, check=once, part=(1, 2))
    assert {"answer", "signal (paid)"} < set(report.commits)
    assert {f"write (the wait {k} of call 1.0)" for k in (1, 2, 3)} < set(report.commits)
