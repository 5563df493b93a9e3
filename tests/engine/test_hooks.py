"""`@before_model`, `@after_model`, `@before_tool`: what they see, what they may change, and what their mistakes do."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from amoxi_py import (
    ModelRequest,
    PlannedCall,
    Refuse,
    Reply,
    RunContext,
    after_model,
    agent,
    before_model,
    before_tool,
    singleton,
    tool,
)
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.errors import DeclarationError
from amoxi_py.models.anthropic import AnthropicModel
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.ports.chat_model import UserMessage
from amoxi_py.testing import AgentRun, Asked, ScriptedModel, StrictModelServer, call, pause, run_agent

MADE: list[tuple[str, int]] = []


@singleton
class Rules:
    def __init__(self) -> None:
        self.most = 100

    @before_tool(tools=["refund"])
    async def cap(self, ctx: RunContext, planned: PlannedCall) -> Mapping[str, Any] | Refuse | None:
        if planned.arguments["amount"] > 10 * self.most:
            return Refuse(f"{ctx.principal.name} may not refund more than {10 * self.most}.")
        if planned.arguments["amount"] > self.most:
            return {**planned.arguments, "amount": self.most}
        return None


@tool(idempotent=True)
async def refund(order: str, amount: int) -> str:
    """Refund an order."""
    MADE.append((order, amount))
    return f"{amount} for {order}"


@tool(needs_approval=True)
async def cancel(order: str, amount: int = 0) -> str:
    """Cancel an order."""
    MADE.append((order, amount))
    return f"cancelled {order}"


@agent(tools=[refund, cancel])
class Clerk:
    """You refund."""


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    MADE.clear()


def clerk(script: Any, *hooks: Any, **options: Any) -> AgentRun:
    return run_agent(Clerk, "Refund", model=ScriptedModel(script), hooks=hooks, **options)


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
def test_before_model_changes_what_is_sent_and_nothing_that_is_stored(wire: str) -> None:
    @before_model
    def add_the_day(ctx: RunContext, request: ModelRequest) -> ModelRequest:
        first, *rest = request.messages
        assert isinstance(first, UserMessage)
        return replace(
            request,
            instructions=f"{request.instructions} It is Monday for {ctx.agent}.",
            messages=(replace(first, text=f"{first.text} (asked today)"), *rest),
            tools=tuple(spec for spec in request.tools if spec.name == "refund"),
        )

    @before_model(agents=[Clerk])
    async def see(ctx: RunContext, request: ModelRequest) -> None:
        seen.append(request)

    seen: list[ModelRequest] = []
    with StrictModelServer([call("refund", order="A-1", amount=1), "Done."]) as server:
        model: Any = OpenAIModel("m", "key-1", server.url)
        if wire == "anthropic":
            model = AnthropicModel("m", "key-1", server.anthropic_url)
        found = run_agent(Clerk, "Refund", model=model, hooks=[add_the_day, see])
        asked = server.requests
    assert (found.output, found.messages[0].text) == ("Done.", "Refund")
    for request in (*asked, *seen):
        assert request.instructions == "You refund. It is Monday for clerk."
        assert request.messages[0].text == "Refund (asked today)"  # type: ignore[union-attr]
        assert [spec.name for spec in request.tools] == ["refund"]
    assert len(asked) == len(seen) == 2


def test_a_request_that_no_provider_takes_is_not_sent_and_ends_the_run(caplog: pytest.LogCaptureFixture) -> None:
    @before_model
    def forget_the_call(ctx: RunContext, request: ModelRequest) -> ModelRequest:
        return replace(request, messages=request.messages[:1] + request.messages[2:])

    model = ScriptedModel([call("refund", order="A-1", amount=1), "Done."])
    found = run_agent(Clerk, "Refund", model=model, hooks=[forget_the_call])
    assert found.run.error is not None
    assert (found.run.error.code, len(model.requests), model.refused) == ("hook_request_invalid", 1, [])
    assert "does not call" in caplog.text


def test_after_model_changes_the_reply_before_it_is_stored_or_shown() -> None:
    @after_model
    def polite(ctx: RunContext, reply: Reply) -> Reply:
        return replace(reply, text=reply.text.replace("damn", "very"), usage=replace(reply.usage, output_tokens=0))

    slow = [["damn ", pause(0.1), "good ", pause(0.1), "tents"]]
    held = clerk(slow, polite)
    assert (held.output, held.run.usage.output_tokens) == ("very good tents", 5)  # what it has used is a fact
    assert "damn" not in str(held.events)
    assert "message.delta" not in [event.type for event in held.events]

    @after_model(streams=True)
    def count(ctx: RunContext, reply: Reply) -> None:
        counted.append(reply.text)

    counted: list[str] = []
    shown = clerk(slow, count)
    assert (shown.output, counted) == ("damn good tents", ["damn good tents"])


def test_hooks_are_asked_in_the_order_of_their_declaration() -> None:
    @after_model
    def first(ctx: RunContext, reply: Reply) -> Reply:
        return replace(reply, text=reply.text + " one")

    @after_model
    async def second(ctx: RunContext, reply: Reply) -> Reply:
        return replace(reply, text=reply.text + " two")

    assert clerk(["zero"], first, second).output == "zero one two"
    assert clerk(["zero"], second, first).output == "zero two one"


def test_before_tool_refuses_or_changes_a_call_and_what_is_approved_is_what_is_made() -> None:
    script = [[call("refund", order=f"A-{amount}", amount=amount) for amount in (7, 700, 7000)], "Done."]
    found = clerk(script, Rules)
    assert MADE == [("A-7", 7), ("A-700", 100)]
    assert [(one.arguments["amount"], one.status) for one in found.calls] == [
        (7, "done"),
        (100, "done"),
        (7000, "failed"),
    ]
    assert found.calls[2].result == "Test may not refund more than 1000."
    told = [message for message in found.requests[1].messages if message.__class__.__name__ == "ToolResult"]
    assert [one.is_error for one in told] == [False, False, True]  # type: ignore[union-attr]

    @before_tool(tools=[cancel])
    def whole(ctx: RunContext, planned: PlannedCall) -> dict[str, Any]:
        return {"order": planned.arguments["order"], "amount": 5}

    MADE.clear()
    asked: list[Any] = []

    def approve(one: Asked) -> str:
        asked.append(one.arguments)
        return "approve"

    cancelled = clerk([call("cancel", order="A-1"), "Done."], whole, decide={"cancel": approve})
    assert asked == [{"order": "A-1", "amount": 5}]
    assert (MADE, cancelled.calls[0].arguments) == ([("A-1", 5)], asked[0])


def test_a_hook_that_fails_ends_the_run_or_keeps_the_call_from_being_made(caplog: pytest.LogCaptureFixture) -> None:
    def breaks(*_of: object) -> Any:
        raise RuntimeError("the secret of the app")

    def gives_nonsense(ctx: RunContext, what: object) -> Any:
        return 7

    for decorate in (before_model, after_model):
        for body in (breaks, gives_nonsense):

            @decorate
            def hook(ctx: RunContext, what: Any, body: Any = body) -> Any:
                return body(ctx, what)

            found = clerk(["Hello."], hook)
            assert found.run.error is not None
            assert (found.status, found.run.error.code) == ("failed", "hook_failed")
            assert "secret" not in str(found)
    assert "the secret of the app" in caplog.text  # the log is for the developer

    def does_not_fit(ctx: RunContext, planned: PlannedCall) -> Any:
        return {"order": "A-1", "amount": "much"}

    for body in (breaks, gives_nonsense, does_not_fit):

        @before_tool
        def check(ctx: RunContext, planned: PlannedCall, body: Any = body) -> Any:
            return body(ctx, planned)

        found = clerk([call("refund", order="A-1", amount=1), "I could not."], check)
        assert (found.status, MADE) == ("completed", [])
        assert found.calls[0].result == "A check before this action failed, so nothing was done."


def test_hooks_for_other_agents_and_tools_are_not_asked() -> None:
    @agent
    class Other:
        """Another one."""

    @before_model(agents=[Other])
    def never(ctx: RunContext, request: ModelRequest) -> None:
        raise AssertionError("asked")

    @before_tool(tools=[refund], agents=["other"])
    def neither(ctx: RunContext, planned: PlannedCall) -> None:
        raise AssertionError("asked")

    declared = build_declarations([Clerk, Other, never, neither])
    assert (declared.catalog.hooks.before_model[0].agents, declared.catalog.hooks.before_tool[0].tools) == (
        frozenset({"other"}),
        frozenset({"refund"}),
    )
    assert clerk([call("refund", order="A-1", amount=1), "Done."], Other, never, neither).output == "Done."


def test_mistakes_in_hooks_stop_the_start_all_together() -> None:
    @before_model(agents=["nobody"])
    def unknown_agent(ctx: RunContext, request: ModelRequest) -> None: ...

    @before_tool(tools=["nothing"], often=True)  # type: ignore[call-overload,untyped-decorator]
    def unknown_tool(ctx: RunContext, planned: PlannedCall) -> None: ...

    @after_model(streams="yes")  # type: ignore[call-overload,untyped-decorator]
    def odd(ctx: RunContext, reply: Reply) -> None: ...

    @before_model
    def takes_nothing() -> None: ...

    class Plain:
        @before_model
        def in_no_singleton(self, ctx: RunContext, request: ModelRequest) -> None: ...

    @before_model
    def generator(ctx: RunContext, request: ModelRequest) -> Any:
        yield request

    @before_model
    def wants(ctx: RunContext, request: ModelRequest, other: Unmade) -> None: ...

    hooks = [unknown_agent, unknown_tool, odd, takes_nothing, Plain.in_no_singleton, generator, wants]
    with pytest.raises(DeclarationError) as raised:
        build_declarations([Clerk, *hooks])
    text = str(raised.value)
    for part in (
        "'nobody', which is no agent here; those are: clerk",
        "'nothing', which is no tool here; those are: cancel, refund",
        "has no option 'often'",
        "`streams='yes'` must be True or False",
        "must be a function `(ctx, request) -> ModelRequest | None`",
        "a method can be a hook in a class that is marked with @singleton",
        "is a generator",
        "Unmade",
    ):
        assert part in text, text


class Unmade:
    """Nothing makes it."""


def test_a_sync_hook_does_not_stop_the_loop_and_methods_have_what_was_injected(
    caplog: pytest.LogCaptureFixture,
) -> None:

    threads: list[str] = []

    @before_model
    def where(ctx: RunContext, request: ModelRequest, rules: Rules) -> None:
        threads.append(threading.current_thread().name)
        assert rules.most == 100

    assert clerk(["Hello."], Rules, where).output == "Hello."
    assert threads != [threading.main_thread().name]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
