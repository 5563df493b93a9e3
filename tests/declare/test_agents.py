"""Agents: their names, what they are told, and the tools they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py import Principal, RunContext, SyncToolContext, agent, singleton, tool
from amoxi_py.declare.agent_definition import agent_name
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.declare.injection import open_instances


@tool(read_only=True)
def look_up(order: str) -> str:
    """Look an order up."""
    return order


@singleton
class Payments:
    def __init__(self) -> None:
        self.name = "bank"


class RefundTools:
    def __init__(self, payments: Payments) -> None:
        self.payments = payments

    @tool(idempotent=True)
    async def refund(self, order: str) -> str:
        """Refund an order."""
        return f"{order} by {self.payments.name}"

    @tool
    def cancel(self, order: str, ctx: SyncToolContext) -> str:
        """Cancel an order."""
        return f"{order} by {self.payments.name} for {ctx.principal.id}"


class MoreTools(RefundTools):
    @tool(idempotent=True)
    async def refund(self, order: str) -> str:
        """Refund an order, and more."""
        return "more"

    @tool(name="delete_it")
    def delete(self) -> None:
        """Delete it."""

    cancel = None  # type: ignore[assignment]


def numbered(number: int) -> Any:
    @tool(name=f"look_up_{number}")
    def look() -> None: ...

    return look


@agent(tools=[look_up, RefundTools], model="offline", model_options={"temperature": 0}, max_turns=3, on_busy="queue")
class SupportAgent:
    """You help
    in a shop.

    Be kind.
    """


def agent_of(*things: Any) -> AgentDefinition:
    return next(iter(build_declarations(things).catalog.agents.values()))


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("SupportAgent", "support-agent"),
        ("Assistant", "assistant"),
        ("HTTPAgent", "http-agent"),
        ("FAQBot2", "faq-bot2"),
        ("Order_Agent", "order-agent"),
        ("lowercase", "lowercase"),
    ],
)
def test_a_name_on_the_wire_is_the_class_name_in_kebab_case(class_name: str, name: str) -> None:
    assert agent_name(type(class_name, (), {})) == name


def test_an_agent_is_told_its_docstring_and_described_by_its_first_paragraph() -> None:
    definition = agent_of(SupportAgent)
    assert definition.name == "support-agent"
    assert definition.instructions == "You help\nin a shop.\n\nBe kind."
    assert definition.description == "You help in a shop."
    assert (definition.model, definition.model_options) == ("offline", {"temperature": 0})
    assert (definition.max_turns, definition.on_busy, definition.expose) == (3, "queue", True)


def test_tools_stand_in_the_declared_order_and_classes_need_no_mark_of_their_own() -> None:
    declarations = build_declarations([SupportAgent])
    [definition] = declarations.catalog.agents.values()
    assert [entry.name for entry in definition.tools] == ["look_up", "refund", "cancel"]
    assert set(declarations.catalog.tools) == {"look_up", "refund", "cancel"}
    assert declarations.singletons == (RefundTools, Payments)


def test_methods_get_their_instance_with_what_it_asked_for(call: Callable[..., Any]) -> None:
    declarations = build_declarations([SupportAgent])

    async def instances() -> Any:
        async with open_instances(declarations.singletons, {}) as opened:
            return opened

    opened = asyncio.run(instances())
    tools = declarations.catalog.tools
    assert call(tools["refund"], {"order": "A-1"}, opened) == "A-1 by bank"
    assert call(tools["cancel"], {"order": "A-1"}, opened) == "A-1 by bank for user:ana"


def test_single_methods_static_methods_and_bound_methods_are_tools_of_an_agent(call: Callable[..., Any]) -> None:
    class Local:
        @tool
        def one(self) -> str:
            return "one"

        @tool
        def other(self) -> str:
            return "other"

        @staticmethod
        @tool
        def still() -> str:
            return "still"

    local = Local()

    @agent(tools=[RefundTools.refund, Local.still, local.other])
    class Picker:
        """Pick."""

    declarations = build_declarations([Picker])
    [definition] = declarations.catalog.agents.values()
    assert [entry.name for entry in definition.tools] == ["refund", "still", "other"]
    assert declarations.singletons == (RefundTools, Payments)
    assert call(definition.tools[1], {}) == "still"
    assert call(definition.tools[2], {}) == "other"


def test_a_subclass_has_the_tools_of_its_base_with_its_own_in_their_place() -> None:
    @agent(tools=[MoreTools])
    class Helper:
        """Help."""

    definition = agent_of(Helper)
    assert [entry.name for entry in definition.tools] == ["refund", "delete_it"]
    assert definition.tools[0].description == "Refund an order, and more."


def test_two_agents_share_one_definition_of_a_tool() -> None:
    @agent(tools=[RefundTools])
    class Other:
        """Help."""

    catalog = build_declarations([SupportAgent, Other, look_up]).catalog
    assert catalog.agents["support-agent"].tool("refund") is catalog.agents["other"].tool("refund")
    assert catalog.agents["other"].tool("look_up") is None


@pytest.mark.parametrize("kind", ["sync", "async", "without the context"])
def test_instructions_of_a_method_are_asked_with_the_context_of_the_run(kind: str, run_context: RunContext) -> None:
    class Base:
        def __init__(self, payments: Payments) -> None:
            self.payments = payments

    if kind == "sync":

        @agent
        class Asked(Base):
            """Helps."""

            def instructions(self, ctx: RunContext) -> str:
                return f"Serve {ctx.principal.id} with {self.payments.name}."

    elif kind == "async":

        @agent  # type: ignore[no-redef]
        class Asked(Base):
            """Helps."""

            async def instructions(self, ctx: RunContext) -> str:
                return f"Serve {ctx.principal.id} with {self.payments.name}."

    else:

        @agent  # type: ignore[no-redef]
        class Asked(Base):
            """Helps."""

            def instructions(self) -> str:
                return f"Serve user:ana with {self.payments.name}."

    declarations = build_declarations([Asked])
    [definition] = declarations.catalog.agents.values()
    assert definition.description == "Helps."
    assert declarations.singletons == (Asked, Payments)

    async def ask() -> str:
        async with open_instances(declarations.singletons, {}) as opened:
            assert callable(definition.instructions)
            return await definition.instructions(opened, run_context)

    assert asyncio.run(ask()) == "Serve user:ana with bank."


def test_instructions_that_are_no_text_are_an_error_that_names_the_agent(run_context: RunContext) -> None:
    @agent
    class Wrong:
        def instructions(self) -> Any:
            return 5

    declarations = build_declarations([Wrong])
    [definition] = declarations.catalog.agents.values()

    async def ask() -> str:
        async with open_instances(declarations.singletons, {}) as opened:
            assert callable(definition.instructions)
            return await definition.instructions(opened, run_context)

    with pytest.raises(TypeError, match=r"agent 'wrong'.*'int', not text"):
        asyncio.run(ask())


def test_an_allow_that_cannot_answer_lets_nobody_in_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(principal: Principal) -> bool:
        raise KeyError(principal.id)

    async def later() -> bool:
        return True

    @tool(allow=broken)
    def fire() -> None: ...

    @agent(tools=[fire], allow=lambda principal: later())  # type: ignore[arg-type, return-value]  # what is tested
    class Office:
        """Rule."""

    definition = agent_of(Office)
    for _ in range(3):
        assert not definition.tools[0].exists_for(Principal(id="user:ana"))
        assert not definition.exists_for(Principal(id="user:ana"))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "tool 'fire': its `allow` failed" in told[0]
    assert "agent 'office': its `allow` returned an awaitable" in told[1]


def test_allow_decides_whether_an_agent_and_a_tool_exist_for_somebody() -> None:
    def boss(principal: Principal) -> bool:
        return "boss" in principal.roles

    @tool(allow=boss)
    def fire() -> None: ...

    @agent(tools=[fire], allow=boss)
    class Office:
        """Rule."""

    definition = agent_of(Office)
    for thing in (definition, definition.tools[0]):
        assert thing.exists_for(Principal(id="user:ana", roles=frozenset({"boss"})))
        assert not thing.exists_for(Principal(id="user:bob"))


def test_an_agent_may_have_as_many_tools_as_providers_take() -> None:
    @agent(tools=[numbered(number) for number in range(128)])
    class Many:
        """You have much to do."""

    assert len(build_declarations([Many]).catalog.agents["many"].tools) == 128
