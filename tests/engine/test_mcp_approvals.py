"""Calls that need an approval, in runs that were started by MCP: who is asked, and who is told that it is declined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amoxi_py import agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.models.script import call
from amoxi_py.stores.sqlite.store import SqliteStore

TOKEN = Principal(id="mcp:desktop", channel="mcp")
PERSON = Principal(id="user:42", name="Ann", channel="mcp")
IN_THE_WEB = Principal(id="user:42", name="Ann", channel="web")
BOSS = Principal(id="user:1", channel="web", roles=frozenset({"boss"}))
DECLINED = '"The person declined this action."'


@tool(needs_approval=True)
async def cancel(order: str) -> str:
    """Cancel an order."""
    return f"cancelled {order}"


@tool(needs_approval=lambda ctx, order: True, approver="role:boss")
async def erase(order: str) -> str:
    """Erase an order."""
    return f"erased {order}"


@agent(tools=[cancel, erase])
class Clerk:
    """You cancel."""


@agent(agents=[Clerk])
class Desk:
    """You ask the clerk."""


SCRIPT = {
    "Cancel": [call("cancel", order="A-1"), "Told."],
    "Erase": [call("erase", order="A-1"), "Told."],
    "Ask": [call("ask_clerk", message="Cancel"), "Told."],
}


@pytest.mark.parametrize(
    ("approvals", "asker", "text", "agent", "decider"),
    [
        ("decline", TOKEN, "Cancel", "clerk", None),
        ("decline", PERSON, "Cancel", "clerk", None),
        ("decline", PERSON, "Erase", "clerk", None),
        ("decline", PERSON, "Ask", "desk", None),
        ("wait", TOKEN, "Cancel", "clerk", None),
        ("wait", TOKEN, "Ask", "desk", None),
        ("wait", TOKEN, "Erase", "clerk", BOSS),
        ("wait", PERSON, "Cancel", "clerk", IN_THE_WEB),
        ("wait", PERSON, "Ask", "desk", IN_THE_WEB),
        ("decline", IN_THE_WEB, "Cancel", "clerk", IN_THE_WEB),
    ],
)
def test_an_approval_waits_for_a_person_who_can_decide_and_is_declined_without_one(
    tmp_path: Path,
    with_engine: Any,
    approvals: str,
    asker: Principal,
    text: str,
    agent: str,
    decider: Principal | None,
) -> None:
    async def story(engine: Engine) -> None:
        submitted = await engine.submit(agent, text, principal=asker)
        asked: list[str] = []
        calls: list[Any] = []
        async for events in await engine.follow(asker, run_id=submitted.run.id):
            calls += [event.data for event in events if event.type.label == "tool.completed"]
            for event in events:
                if event.type.label == "approval.requested":
                    asked.append(event.data["call_id"])
                    assert decider is not None
                    await engine.decide(event.data["call_id"], decider, "approve")
        run = await engine.get_run(submitted.run.id, asker)
        assert (run.status, run.output, len(asked)) == ("completed", "Told.", int(decider is not None))
        if agent == "clerk":
            (told,) = calls
            assert told["is_error"] is (decider is None)
            assert (told["result"] == DECLINED[1:-1]) is (decider is None)
        pages = await engine.list_approvals(decider or BOSS)
        assert pages.items == ()

    with_engine(SqliteStore(tmp_path, synchronous="OFF"), [Clerk, Desk], SCRIPT, story, mcp_approvals=approvals)
