"""`result=Model`: the run ends with a value of that form, or says that there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, RootModel, field_validator

from amoxi_py import agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import DeclarationError
from amoxi_py.models.anthropic import AnthropicModel
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.models.script import ScriptedCall, ScriptedReply
from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import Gate, ScriptedModel, StrictModelServer, call, run_agent

ANN = Principal(id="user:ann")


class Line(BaseModel):
    item: str
    price: float


class Verdict(BaseModel):
    """What was decided about an order."""

    order: str = Field(pattern=r"^A-\d+$")
    refund: bool
    lines: list[Line] = []


class Tree(BaseModel):
    name: str
    below: list[Tree] = []


class Checked(BaseModel):
    text: str

    @field_validator("text")
    @classmethod
    def check(cls, text: str) -> str:
        if text == "boom":
            raise KeyError("secret of the app")
        return text


@tool(read_only=True)
def look_up(order: str) -> str:
    """Look an order up."""
    return f"{order} is fine"


@agent(tools=[look_up], result=Verdict)
class Judge:
    """You decide about refunds."""


@agent(result=Tree)
class Gardener:
    """You draw trees."""


@agent(result=Checked)
class Checker:
    """You check."""


GOOD = {"order": "A-1", "refund": True, "lines": [{"item": "tent", "price": 9.5}]}
STORED = {**GOOD}


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(lambda request: WIRE_SCRIPT[answered(request)]) as running:
        yield running


def answered(request: ModelRequest) -> int:
    return sum(message.__class__.__name__ == "AssistantMessage" for message in request.messages)


WIRE_SCRIPT: list[Any] = [
    [call("look_up", order="A-1"), call("final_result", **GOOD)],
    call("final_result", order="7", refund="perhaps"),
    "It is refunded.",
    call("final_result", **GOOD),
]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_a_result_comes_over_both_wire_formats_after_every_way_to_miss_it(server: StrictModelServer, wire: str) -> None:
    model: Any = OpenAIModel("m", "key-1", server.url)
    if wire == "anthropic":
        model = AnthropicModel("m", "key-1", server.anthropic_url)
    found = run_agent(Judge, "Judge A-1", model=model)
    assert (found.status, found.result) == ("completed", STORED), found.model_failures
    assert json.loads(found.output or "") == STORED
    assert [(one.tool, one.status) for one in found.calls] == [
        ("look_up", "done"),
        *[("final_result", "failed")] * 3,
    ]


def test_a_call_of_the_result_tool_ends_the_run_with_the_result_and_its_text() -> None:
    model = ScriptedModel([[call("look_up", order="A-1")], ["All is well.", call("final_result", **GOOD)]])
    found = run_agent(Judge, "Judge A-1", model=model)
    assert (found.status, found.output, found.result) == ("completed", "All is well.", STORED)
    assert [one.tool for one in found.calls] == ["look_up"]  # the result is the answer, not an action
    tools = {spec.name: spec for spec in found.requests[0].tools}
    assert tools["final_result"].parameters["required"] == ["order", "refund"]
    assert "What was decided about an order." in tools["final_result"].description
    again = run_agent(
        Judge, "And A-2?", model=ScriptedModel({"And A-2?": [call("final_result", **GOOD)]}), conversation=found
    )
    assert again.result == STORED


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        f"Here it is:\n```json\n{json.dumps(GOOD)}\n```\nIs that fine?",
        f"I have decided: {json.dumps(GOOD)} That is all.",
    ],
)
def test_a_text_that_holds_the_result_is_taken(text: str) -> None:
    found = run_agent(Judge, "Judge A-1", model=ScriptedModel([text]))
    assert (found.status, found.output, found.result) == ("completed", text, STORED)


def test_what_does_not_fit_is_told_field_by_field_and_three_misses_in_a_row_end_the_run() -> None:
    bad = call("final_result", order="7", refund="perhaps", lines=[{"item": "tent", "price": "much"}])
    found = run_agent(
        Judge, "Judge", model=ScriptedModel([bad, "So?", ScriptedCall(name="final_result", arguments="{no")])
    )
    assert found.run.error is not None
    assert (found.status, found.run.error.code, found.result) == ("failed", "result_invalid", None)
    first, second, third = (one.result for one in found.calls)
    assert "order: " in first
    assert "refund: " in first
    assert "lines.0.price: " in first
    assert "text" in second
    assert "JSON" in third
    model = ScriptedModel([bad, bad, call("look_up", order="A-1"), bad, bad, call("final_result", **GOOD)])
    assert run_agent(Judge, "Judge", model=model).result == STORED  # something else in between begins anew


def test_a_result_beside_other_calls_is_not_taken_and_they_are_made() -> None:
    both = [call("final_result", **GOOD), call("look_up", order="A-1")]
    found = run_agent(Judge, "Judge", model=ScriptedModel([both, call("final_result", **GOOD)]))
    assert [(one.tool, one.status) for one in found.calls] == [("final_result", "failed"), ("look_up", "done")]
    assert found.result == STORED


def test_a_cut_result_and_a_failing_validator_are_misses_like_any_other() -> None:
    cut = ScriptedReply(parts=(call("final_result", **GOOD),), ending="length")
    found = run_agent(Judge, "Judge", model=ScriptedModel([cut, call("final_result", **GOOD)]))
    assert "cut" in found.calls[0].result
    assert found.result == STORED
    model = ScriptedModel([call("final_result", text="boom"), call("final_result", text="fine")])
    found = run_agent(Checker, "Check", model=model)
    assert found.result == {"text": "fine"}
    assert "secret" not in found.calls[0].result


def test_the_offline_model_gives_results_of_what_tools_and_the_message_gave() -> None:
    @tool(read_only=True)
    def find_order(order: Annotated[str, Field(pattern=r"^A-\d+$")]) -> dict[str, Any]:
        """Find an order."""
        return {"order": order, "lines": [{"item": "tent", "price": 9.5}]}

    @agent(tools=[find_order], result=Verdict)
    class Clerk:
        """You find orders."""

    found = run_agent(Clerk, "Find order A-7")
    assert found.result == {"order": "A-7", "refund": False, "lines": [{"item": "tent", "price": 9.5}]}
    assert (found.output or "").startswith("Here's what I found:")


def test_an_agent_that_asks_another_is_given_its_result() -> None:
    @agent(agents=[Judge])
    class Boss:
        """You ask."""

    models = {
        "boss": ScriptedModel([call("ask_judge", message="A-1?"), "Done."]),
        "judge": ScriptedModel(["x", call("final_result", **GOOD)]),
    }
    assert run_agent(Boss, "Ask", model=models).call("ask_judge").result == STORED


def test_a_model_that_holds_itself_is_a_form_too() -> None:
    tree = {"name": "a", "below": [{"name": "b", "below": []}]}
    assert run_agent(Gardener, "Draw", model=ScriptedModel([call("final_result", **tree)])).result == tree


def test_misses_are_counted_across_servers_and_no_reply_is_asked_for_twice(tmp_path: Path, with_engine: Any) -> None:
    asked: list[int] = []
    gate = Gate()

    def script(request: ModelRequest) -> Any:
        asked.append(answered(request))
        return ScriptedReply(parts=(gate, "still text")) if answered(request) == 2 else "text"

    async def begin(engine: Engine) -> str:
        run = (await engine.submit("judge", "Judge", principal=ANN)).run
        assert await gate.reached()
        return run.id

    async def go_on(engine: Engine) -> Any:
        return await engine.wait(run_id, ANN, timeout=60)

    run_id = with_engine(SqliteStore(tmp_path), [Judge], script, begin)
    gate.open()
    ended = with_engine(SqliteStore(tmp_path), [Judge], script, go_on)
    assert (ended.status.value, ended.error.code) == ("failed", "result_invalid")
    assert asked == [0, 1, 2, 2]


def test_a_result_that_is_no_pydantic_model_or_a_taken_name_stops_the_start() -> None:
    class Several(RootModel[list[int]]):
        pass

    @tool
    def final_result() -> None:
        """End."""

    for options, text in (
        ({"result": dict}, "must be a pydantic model"),
        ({"result": Several}, "must be a pydantic model"),
        ({"result": "Verdict"}, "must be a pydantic model"),
        ({"result": Verdict, "tools": [final_result]}, "'final_result' is taken"),
    ):

        class Wrong:
            """Wrong."""

        with pytest.raises(DeclarationError, match=text):
            build_declarations([agent(**options)(Wrong)])
