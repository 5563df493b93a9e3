"""Hooks beside `@redact`, and beside what models keep: each does what it promises whatever the others do."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from amoxi_py import PlannedCall, Refuse, RunContext, agent, before_model, before_tool, redact, tool
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, Reply, TextDelta
from amoxi_py.testing import ScriptedModel, call, run_agent

CARD = "4111111111111111"


@redact(longest=19)
def hide_cards(text: str) -> str:
    return re.sub(r"\d{13,16}", "[card]", text)


@tool(idempotent=True)
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@agent(tools=[look])
class Clerk:
    """You look."""


def test_what_a_hook_gives_a_tool_or_refuses_with_is_hidden_before_it_is_stored_or_told() -> None:
    @before_tool
    def fill_in(ctx: RunContext, planned: PlannedCall) -> dict[str, Any] | Refuse:
        if planned.arguments["what"] == "refuse":
            return Refuse(f"The card {CARD} is no good.")
        return {"what": CARD}

    script = [[call("look", what="it"), call("look", what="refuse")], "Done."]
    found = run_agent(Clerk, "Go", model=ScriptedModel(script), hooks=[fill_in, hide_cards])
    assert [one.result for one in found.calls] == ["saw [card]", "The card [card] is no good."]
    assert found.calls[0].arguments == {"what": "[card]"}
    assert CARD not in json.dumps([event.data for event in found.events])
    assert CARD not in str(found.requests)


@before_model
def say_the_day(ctx: RunContext, request: ModelRequest) -> ModelRequest:
    return replace(request, instructions=f"{request.instructions} Today is Monday.")


class Keeps:
    """A model of an app that keeps something in a form of its own with its replies."""

    name = "own:keeps"

    def __init__(self, kept: str) -> None:
        self.kept = kept
        self.given_back: list[str | None] = []

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        said = [message for message in request.messages if isinstance(message, AssistantMessage)]
        self.given_back = [message.kept for message in said]
        if said:
            yield Reply(text=f"Done. {request.instructions}")
        else:
            asked = CallRequest(id="c1", name="look", arguments='{"what":"it"}')
            yield Reply(text="", calls=(asked,), kept=self.kept)


def test_a_hook_is_not_refused_for_what_models_keep_with_messages_that_it_leaves_alone() -> None:
    for kept in ('{"mine":1}', "no JSON at all"):
        model = Keeps(kept)
        found = run_agent(Clerk, "Go", model=model, hooks=[say_the_day])
        assert found.output == "Done. You look. Today is Monday.", found.run.error
        assert model.given_back == [kept]

    @before_model
    def forge(ctx: RunContext, request: ModelRequest) -> ModelRequest:
        said = [isinstance(message, AssistantMessage) for message in request.messages]
        messages = tuple(
            replace(message, kept="forged") if isinstance(message, AssistantMessage) else message
            for message in request.messages
        )
        return replace(request, messages=messages) if any(said) else request

    found = run_agent(Clerk, "Go", model=Keeps('{"mine":1}'), hooks=[forge])
    assert found.run.error is not None
    assert found.run.error.code == "hook_request_invalid"


def test_a_hook_and_a_model_of_pydantic_ai_that_signs_its_reasoning_go_together() -> None:
    from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall, FunctionModel

    seen: list[Any] = []

    async def answer(messages: list[Any], info: Any) -> AsyncIterator[Any]:
        seen.append(messages)
        if len(messages) == 1:
            yield {0: DeltaThinkingPart(content="hm", signature="signed")}
            yield {1: DeltaToolCall(name="look", json_args='{"what":"it"}', tool_call_id="x1")}
        else:
            yield "Done."

    found = run_agent(Clerk, "Go", model=FunctionModel(stream_function=answer), hooks=[say_the_day])
    assert found.output == "Done.", found.run.error
    assert "signed" in str(seen[1])
