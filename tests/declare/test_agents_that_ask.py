"""`agents=[...]`: the tools by which an agent asks others, and what cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py import Principal, agent, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.domain.tool_call import Effect
from amoxi_py.errors import ArgumentsInvalid, DeclarationError


@tool(read_only=True)
def rates() -> str:
    """Tell the rates."""
    return "4 %"


@agent(tools=[rates])
class CreditDesk:
    """You know about credit.

    Only about credit.
    """


@agent(expose=False, allow=lambda principal: "finance" in principal.roles, description="Writes invoices.")
class BillingAgent:
    """You write invoices."""


@agent(tools=[rates], agents=[CreditDesk, BillingAgent])
class SupportAgent:
    """You help."""


def mistakes_of(*things: Any) -> str:
    with pytest.raises(DeclarationError) as refused:
        build_declarations(things)
    return str(refused.value)


def test_an_agent_asks_others_by_tools_that_are_named_and_described_by_them() -> None:
    catalog = build_declarations([SupportAgent]).catalog
    support = catalog.agents["support-agent"]
    assert [each.name for each in support.tools] == ["rates", "ask_credit_desk", "ask_billing_agent"]
    asking = support.tool("ask_credit_desk")
    assert asking is not None
    assert (asking.asks, asking.description) == ("credit-desk", "You know about credit.")
    assert (asking.needs_approval, asking.effect, asking.expose) == (False, Effect.IDEMPOTENT, False)
    assert asking.parameters["required"] == ["message"]
    assert asking.parameters["properties"]["message"]["type"] == "string"
    assert asking.read_arguments({"message": "Hello"}) == {"message": "Hello"}
    for wrong in ({}, {"message": " \n"}, {"message": 1}, {"message": "Hello", "to": "you"}):
        with pytest.raises(ArgumentsInvalid):
            asking.read_arguments(wrong)


def test_agents_that_are_asked_are_found_by_those_who_ask_and_no_door_offers_the_tools() -> None:
    catalog = build_declarations([SupportAgent]).catalog
    assert set(catalog.agents) == {"support-agent", "credit-desk", "billing-agent"}
    assert set(catalog.tools) == {"rates"}


def test_an_agent_that_somebody_may_not_use_cannot_be_asked_in_their_name() -> None:
    support = build_declarations([SupportAgent]).catalog.agents["support-agent"]
    asking = support.tool("ask_billing_agent")
    assert asking is not None
    assert not asking.exists_for(Principal(id="user:ann"))
    assert asking.exists_for(Principal(id="user:ben", roles=frozenset({"finance"})))


def test_agents_without_a_description_are_named() -> None:
    @agent
    class Helper:
        def instructions(self) -> str:
            return "Help."

    @agent(agents=(Helper,))
    class Asking:
        """Ask."""

    asking = build_declarations([Asking]).catalog.agents["asking"].tool("ask_helper")
    assert asking is not None
    assert asking.description == "Ask the agent 'helper'."


class Plain:
    pass


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        (CreditDesk, ["agent 'asking'", "`agents=", "must be a list of classes"]),
        ("credit-desk", ["must be a list of classes"]),
        (["credit-desk"], ["'credit-desk' in `agents` is a text; name the class"]),
        ([Plain], ["'Plain' in `agents` is no agent; mark the class with @agent"]),
        ([rates], ["'rates' in `agents` is no agent"]),
        ([CreditDesk()], ["is an instance; name its class 'CreditDesk'"]),
        ([CreditDesk, CreditDesk], ["'CreditDesk' stands twice in `agents`; name it once"]),
        (7, ["`agents=7` must be a list of classes"]),
    ],
)
def test_what_is_no_agent_cannot_be_asked(asked: Any, parts: list[str]) -> None:
    @agent(agents=asked)
    class Asking:
        """Ask."""

    told = mistakes_of(Asking)
    assert all(part in told for part in parts), told


def test_agents_that_ask_in_a_circle_stop_the_start() -> None:
    asked_by_first: list[type[Any]] = []

    @agent(agents=asked_by_first)
    class First:
        """Ask the second."""

    @agent(agents=[First, CreditDesk])
    class Third:
        """Ask the first."""

    @agent(agents=[Third])
    class Second:
        """Ask the third."""

    asked_by_first.append(Second)
    told = mistakes_of(First)
    assert told.count("its `agents` go round in a circle") == 1
    assert all(f".{name} ->" in told for name in ("First", "Second", "Third"))
    asked_by_first[:] = [First]
    assert "'test_agents_that_ask_in_a_circle_stop_the_start.<locals>.First' in `agents` is the agent itself" in (
        mistakes_of(First)
    )


def test_a_tool_that_has_the_name_by_which_an_agent_is_asked_stops_the_start() -> None:
    @tool
    def ask_credit_desk(message: str) -> str:
        """Ask."""
        return message

    @agent(tools=[ask_credit_desk], agents=[CreditDesk])
    class Asking:
        """Ask."""

    told = mistakes_of(Asking)
    assert "the name 'ask_credit_desk' belongs to the agent 'credit-desk' of this app; rename the tool" in told


def test_an_agent_in_tools_is_told_to_stand_in_agents() -> None:
    @agent(tools=[CreditDesk])
    class Asking:
        """Ask."""

    assert "'CreditDesk' in `tools` is an agent, not a tool; name it in `agents`" in mistakes_of(Asking)


def test_tools_that_ask_agents_count_among_those_that_a_provider_takes() -> None:
    def numbered(number: int) -> Any:
        @tool(name=f"look_up_{number}")
        def look() -> None: ...

        return look

    tools = [numbered(number) for number in range(128)]

    @agent(tools=tools)
    class Many:
        """Help."""

    @agent(tools=tools, agents=[CreditDesk])
    class TooMany:
        """Help."""

    build_declarations([Many])
    assert "it has 129 tools, and providers take 128 at most" in mistakes_of(TooMany)
