"""`budget=`: what a run may use at most, looked at before each request to a model."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from amoxi_py import Budget, agent, tool
from amoxi_py.app.models import find_models
from amoxi_py.config.load import load_settings
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError, DeclarationError
from amoxi_py.models.prices import cost_of
from amoxi_py.models.script import ScriptedReply
from amoxi_py.ports.chat_model import ModelRequest, Reply, TextDelta
from amoxi_py.testing import AgentRun, ScriptedModel, call, run_agent

DONE: list[str] = []


@tool(read_only=True)
def look(order: str) -> str:
    """Look an order up."""
    DONE.append(order)
    return f"{order} is fine"


@tool(read_only=True)
def take_a_while() -> str:
    """Take ten milliseconds."""
    start = time.monotonic()
    while time.monotonic() - start < 0.01:
        pass
    return "done"


def looks(count: int) -> list[Any]:
    return [call("look", order=f"A-{n}") for n in range(count)]


class NamedModel:
    """A scripted model under the name of one that has a price, or has none."""

    def __init__(self, name: str, script: list[Any]) -> None:
        self.name = name
        self._script = ScriptedModel(script)

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        return self._script.stream(request)


def run_with(budget: Budget, model: Any) -> AgentRun:
    @agent(tools=[look, take_a_while], budget=budget)
    class Clerk:
        """You look orders up."""

    return run_agent(Clerk, "Look", model=model)


def failure(found: AgentRun) -> tuple[str, str]:
    assert found.run.error is not None
    return found.run.error.code, found.run.error.message


def test_a_run_ends_before_the_request_that_its_budget_does_not_allow_and_what_was_done_stays() -> None:
    for budget, said in (
        (Budget(turns=2), "all 2 turns are used"),
        (Budget(tokens=30), "30 tokens are used, of 30"),  # a scripted reply has 10 in and 5 out
        (Budget(tokens=17, turns=9), "30 tokens are used, of 17"),
    ):
        DONE.clear()
        found = run_with(budget, ScriptedModel(looks(9)))
        assert failure(found) == ("budget_exceeded", f"the run has come to the end of its budget: {said}")
        assert (found.run.usage.requests, DONE) == (2, ["A-0", "A-1"])
        assert [one.status for one in found.calls] == ["done", "done"]
    assert run_with(Budget(turns=3, tokens=45), ScriptedModel([*looks(2), "Fine."])).output == "Fine."


def test_the_seconds_of_a_budget_are_those_since_the_message_came() -> None:
    found = run_with(Budget(seconds=0.005), ScriptedModel([call("take_a_while"), "Too late."]))
    assert failure(found)[0] == "budget_exceeded"
    assert "0.005 seconds" in failure(found)[1]
    assert run_with(Budget(seconds=60), ScriptedModel([call("take_a_while"), "In time."])).output == "In time."


def test_money_is_counted_by_list_prices_with_cached_tokens_and_told_with_the_run() -> None:
    used = Usage(input_tokens=1_000_000, output_tokens=1000, cached_tokens=800_000)
    price = cost_of("openai:gpt-5", used)
    assert price is not None
    assert 0 < price < (cost_of("openai:gpt-5", Usage(input_tokens=1_000_000, output_tokens=1000)) or 0)
    script: list[Any] = [ScriptedReply(parts=(one,), usage=used) for one in (*looks(3), "Fine.")]
    found = run_with(Budget(usd=2 * price / 1e9), NamedModel("openai:gpt-5", script))
    assert failure(found)[0] == "budget_exceeded"
    assert "US dollars" in failure(found)[1]
    assert (found.run.usage.requests, found.run.usage.cost) == (2, 2 * price)
    assert run_with(Budget(usd=5 * price / 1e9), NamedModel("openai:gpt-5", script)).output == "Fine."
    assert cost_of("anthropic:claude-sonnet-5-5", Usage(input_tokens=1000, written_tokens=1000)) == 2_500_000


def test_a_budget_in_money_needs_the_price_of_the_model_before_it_is_asked(tmp_path: Path) -> None:
    found = run_with(Budget(usd=1), NamedModel("openai:llama-at-home", ["Never."]))
    assert (failure(found)[0], found.run.usage.requests, found.requests) == ("price_unknown", 0, ())

    @agent(budget=Budget(usd=1), model=[NamedModel("openai:gpt-5", []), NamedModel("openai:llama-at-home", [])])
    class Dear:
        """You cost money."""

    settings = load_settings(tmp_path, profile="test", environ={})
    with pytest.raises(ConfigError, match="price of the model 'openai:llama-at-home' is unknown"):
        find_models(build_declarations([Dear]).catalog, settings)


def test_the_price_of_every_agent_below_must_be_known_at_the_start(tmp_path: Path) -> None:
    @agent(model=NamedModel("openai:llama-at-home", []))
    class Lowest:
        """You help."""

    @agent(agents=[Lowest], model=NamedModel("openai:gpt-5", []))
    class Middle:
        """You help."""

    @agent(agents=[Middle], model=NamedModel("openai:gpt-5", []), budget=Budget(usd=1))
    class Boss:
        """You ask others."""

    settings = load_settings(tmp_path, profile="test", environ={})
    with pytest.raises(ConfigError, match="'openai:llama-at-home' is unknown") as raised:
        find_models(build_declarations([Boss]).catalog, settings)
    assert "the agent 'boss' has a budget in US dollars" in str(raised.value)


def test_what_an_agent_that_is_asked_uses_counts_against_those_that_ask_it() -> None:
    @agent(tools=[look])
    class Helper:
        """You look orders up."""

    @agent(agents=[Helper], budget=Budget(turns=3))
    class Boss:
        """You ask others."""

    models = {"boss": ScriptedModel([call("ask_helper", message="look"), "Fine."]), "helper": ScriptedModel(looks(9))}
    found = run_agent(Boss, "Look", model=models)
    assert failure(found)[0] == "budget_exceeded"
    helper = failure(found.child("helper"))
    assert helper == ("budget_exceeded", "the run has come to the end of the budget of 'boss': all 3 turns are used")
    assert found.run.usage.requests == 3


def test_a_budget_that_is_none_stops_the_start() -> None:
    for budget, text in (
        (Budget(), "has no limit"),
        (Budget(turns=0), "`turns=0` must be a whole number from 1 up"),
        (Budget(tokens=1.5), "`tokens=1.5` must be a whole number"),  # type: ignore[arg-type]
        (Budget(turns=True), "`turns=True`"),
        (Budget(usd=-1), "`usd=-1` must be a number above 0"),
        (Budget(seconds=float("inf")), "`seconds=inf`"),
        (1000, "`budget=1000` must be a Budget"),
    ):

        class Wrong:
            """Wrong."""

        with pytest.raises(DeclarationError) as raised:
            build_declarations([agent(budget=budget)(Wrong)])  # type: ignore[arg-type]
        assert text in str(raised.value)
