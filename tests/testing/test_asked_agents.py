"""`run_agent` of an agent that asks others: their models, their approvals, and what they did."""

from __future__ import annotations

import pytest

from amoxi_py import agent, tool
from amoxi_py.testing import Asked, ScriptedModel, call, crash, reply, run_agent


@tool(read_only=True)
def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order} is here"


@tool(needs_approval=True)
def cancel_order(order: str) -> str:
    """Cancel an order."""
    return f"{order} is cancelled"


@agent(tools=[look_up])
class Archive:
    """You know all orders."""


@agent(tools=[cancel_order], agents=[Archive])
class Desk:
    """You work on orders."""


@agent(agents=[Desk])
class Front:
    """You talk to people."""


FRONT = [call("ask_desk", message="Cancel A-1"), "It is cancelled."]
DESK = [reply(call("ask_archive", message="Is A-1 there?"), call("cancel_order", order="A-1")), "Cancelled."]
ARCHIVE = [call("look_up", order="A-1"), "Yes."]
MODELS = {"front": ScriptedModel(FRONT), "desk": ScriptedModel(DESK), "archive": ScriptedModel(ARCHIVE)}


def cancel() -> None:
    result = run_agent(Front, "Cancel A-1", model=MODELS, decide={"cancel_order": "approve"})
    assert result.output == "It is cancelled."
    assert result.child("desk").call("cancel_order").status in ("done", "unknown")


def test_each_agent_has_its_own_model_and_what_it_did_is_told_as_a_run_below() -> None:
    asked: list[Asked] = []

    def decide(one: Asked) -> str:
        asked.append(one)
        return "approve"

    result = run_agent(Front, "Please cancel A-1", model=MODELS, decide={"cancel_order": decide})  # type: ignore[dict-item]  # the word it returns is one
    assert (result.status, result.output) == ("completed", "It is cancelled.")
    assert [one.tool for one in asked] == ["cancel_order"]
    assert [one.tool for one in result.calls] == ["ask_desk"]
    desk = result.child("desk")
    assert (desk.output, desk.call("cancel_order").result) == ("Cancelled.", "A-1 is cancelled")
    assert desk.child("archive").call("look_up").result == "A-1 is here"
    assert [message.text for message in desk.messages] == ["Cancel A-1", "", "Cancelled."]
    assert [len(one.requests) for one in (result, desk, desk.child("archive"))] == [2, 2, 2]
    assert desk.requests[0].instructions == "You work on orders."
    with pytest.raises(AssertionError, match="'archive' was asked 0 times, not once; asked: desk"):
        result.child("archive")


def test_an_agent_without_a_model_and_a_model_without_an_agent_are_told() -> None:
    with pytest.raises(LookupError, match="`model` has none for 'archive'"):
        run_agent(Front, "hi", model={"front": ScriptedModel(["Hi."]), "desk": ScriptedModel(["Hi."])})
    with pytest.raises(LookupError, match="`model` names 'nobody', which is no agent; the app has: archive, desk"):
        run_agent(Front, "hi", model={**MODELS, "nobody": "offline"})
    with pytest.raises(LookupError, match="'look_down', which is no tool of 'front'; its tools: ask_desk"):
        run_agent(Front, "hi", decide={"look_down": "approve"})


def test_a_script_that_ends_in_an_asked_agent_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="the scripted model refused"):
        run_agent(Front, "hi", model={**MODELS, "desk": ScriptedModel([])})


def test_runs_below_a_run_are_killed_at_every_step_too() -> None:
    report = crash.at_every_step(cancel, part=(2, 24))
    assert report.kills >= 1
    assert sum("the end, completed" in commit for commit in report.commits) == 3
