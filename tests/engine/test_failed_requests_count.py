"""What a request has used counts, whatever became of it: failed, cut, spoilt by a hook, or for a summary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from amoxi_py import Budget, Compaction, RunContext, after_model, agent, tool
from amoxi_py.domain.usage import Usage
from amoxi_py.engine.compacting import SUMMARISE
from amoxi_py.errors import ModelFailed
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.prices import cost_of
from amoxi_py.ports.chat_model import Asked, CallRequest, ModelRequest, Reply, TextDelta
from amoxi_py.testing import AgentRun, ScriptedModel, call, run_agent

USED = Usage(input_tokens=5000, output_tokens=500)


@tool(read_only=True)
def look() -> str:
    """Look."""
    return "fact " * 600


class Says:
    """A model that gives what a function makes of the number of the request: a reply, or a failure to be raised."""

    def __init__(self, say: Callable[[ModelRequest, int], Reply | ModelFailed], name: str = "scripted") -> None:
        self.name = name
        self.asked = 0
        self._say = say

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply | Asked]:
        self.asked += 1
        said = self._say(request, self.asked)
        if isinstance(said, ModelFailed):
            raise said
        yield said


def ask(model: Any, budget: Budget | None = None, hooks: Any = (), **options: Any) -> AgentRun:
    @agent(tools=[look], budget=budget, **options)
    class Clerk:
        """You look."""

    return run_agent(Clerk, "Look", model=model, hooks=hooks)


def ended_by(found: AgentRun) -> str | None:
    return None if found.run.error is None else found.run.error.code


def test_replies_that_cannot_be_used_count_against_the_budget() -> None:
    blank = Says(lambda _, __: Reply(text="  ", usage=USED))
    found = ask(blank, Budget(tokens=6000))
    assert (ended_by(found), blank.asked) == ("budget_exceeded", 2)
    assert found.run.usage == Usage(requests=2, input_tokens=10_000, output_tokens=1000)


def test_a_failure_counts_with_what_its_provider_told_and_by_the_price_of_the_model_that_was_asked() -> None:
    def fails_once(_: ModelRequest, number: int) -> Reply | ModelFailed:
        cut = ModelFailed("cut", code="model_stream_cut", usage=USED)
        return cut if number == 1 else Reply(text="Fine.", usage=Usage(input_tokens=10, output_tokens=1))

    found = ask(Says(fails_once, "openai:gpt-5"))
    price = cost_of("openai:gpt-5", USED)
    assert price
    assert found.output == "Fine."
    assert (found.run.usage.requests, found.run.usage.input_tokens) == (2, 5010)
    assert found.run.usage.cost > price
    first = Says(lambda _, __: ModelFailed("away", code="model_unavailable", usage=USED), "openai:gpt-5")
    chain = FallbackModel([first, Says(lambda _, __: Reply(text="Fine."), "openai:llama-at-home")])
    found = ask(chain)
    assert (found.output, found.run.usage.requests, found.run.usage.cost) == ("Fine.", 2, price)
    away = FallbackModel([first, Says(lambda _, __: ModelFailed("no", code="model_refused", retryable=False))])
    assert ask(away).run.usage == Usage(requests=1, input_tokens=5000, output_tokens=500, cost=price)


def test_a_reply_that_is_cut_before_its_first_word_is_not_asked_for_again_and_counts() -> None:
    thinks = Says(lambda _, __: Reply(text="", cut=True, usage=USED))
    found = ask(thinks)
    assert (ended_by(found), thinks.asked, found.run.usage.output_tokens) == ("model_reply_cut", 1, 500)


def test_a_reply_that_a_hook_fails_at_counts() -> None:
    @after_model
    def spoil(ctx: RunContext, given: Reply) -> Reply | None:
        raise ValueError("spoilt")

    found = ask(Says(lambda _, __: Reply(text="Fine.", usage=USED)), hooks=[spoil])
    assert (ended_by(found), found.run.usage.input_tokens) == ("hook_failed", 5000)


def test_a_budget_is_looked_at_before_requests_for_summaries_too() -> None:
    kinds: list[str] = []

    def say(request: ModelRequest, number: int) -> Reply:
        kinds.append("summary" if request.instructions == SUMMARISE else "turn")
        if kinds[-1] == "summary":
            return Reply(text="Record.", usage=USED)
        made = CallRequest(id=f"c{number}", name="look", arguments="{}")
        return Reply(text="", calls=(made,), usage=Usage(input_tokens=2000, output_tokens=5))

    found = ask(Says(say), Budget(turns=6), compaction=Compaction(window=2000, at=0.5, keep=0.2))
    assert (ended_by(found), len(kinds), found.run.usage.requests) == ("budget_exceeded", 6, 6)
    assert kinds.count("summary") >= 2


def test_what_is_not_stored_yet_counts_against_a_budget_above() -> None:
    @agent(tools=[look], expose=False, compaction=Compaction(window=1000))
    class Helper:
        """You look."""

    @agent(agents=[Helper], budget=Budget(tokens=6000))
    class Boss:
        """You ask others."""

    def say(request: ModelRequest, number: int) -> Reply:
        if request.instructions == SUMMARISE:
            return Reply(text=" ", usage=USED)
        made = CallRequest(id=f"c{number}", name="look", arguments="{}")
        return Reply(text="", calls=(made,), usage=Usage(input_tokens=600, output_tokens=5))

    helper = Says(say)
    models = {"boss": ScriptedModel([call("ask_helper", message="look"), "Fine."]), "helper": helper}
    found = run_agent(Boss, "Look", model=models)
    assert (ended_by(found.child("helper")), helper.asked) == ("budget_exceeded", 2)
    assert found.run.usage.input_tokens == 10 + 600 + 5000
