"""The kits' tools that ask their caller something or take their time, and how long that is."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from amoxi_py import ToolContext, ToolError, agent, tool
from amoxi_py.testing import ScriptedModel, call

LONGER_THAN_A_CALL_S = 1.0
"""After three quarters of a second a call is a task."""


class Named(BaseModel):
    """Somebody."""

    name: str


class Okayed(BaseModel):
    """Whether it is."""

    ok: bool


class Colored(BaseModel):
    """Something of a color."""

    color: str


class Confirmed(BaseModel):
    """Whether somebody is sure."""

    confirm: bool


@tool(read_only=True)
async def test_input_required_result_elicitation(ctx: ToolContext) -> str:
    """Ask for a name."""
    return f"Hello, {(await ctx.ask('User name?', Named)).name}!"


@tool(read_only=True)
async def test_input_required_result_request_state(ctx: ToolContext) -> str:
    """Ask whether it is okay."""
    return "state-ok" if (await ctx.ask("Is it okay?", Okayed)).ok else "it is not"


@tool(read_only=True)
async def test_input_required_result_tampered_state(ctx: ToolContext) -> str:
    """Ask whether it is okay."""
    return "okay" if (await ctx.ask("Is it okay?", Okayed)).ok else "it is not"


@tool(read_only=True)
async def test_input_required_result_multi_round(ctx: ToolContext) -> str:
    """Ask two things, one after the other."""
    name = (await ctx.ask("Step 1: What is your name?", Named)).name
    return f"{name} likes {(await ctx.ask('Step 2: What is your favorite color?', Colored)).color}"


@tool(read_only=True)
async def test_tool_with_task(ctx: ToolContext) -> str:
    """Ask for a name, and then take some time."""
    name = (await ctx.ask("User name?", Named)).name
    await asyncio.sleep(LONGER_THAN_A_CALL_S)
    return f"Hello, {name}!"


@tool(read_only=True)
def greet(name: str) -> str:
    """Answer at once."""
    return f"Hello, {name}!"


@tool(read_only=True)
async def slow_compute(seconds: float, ctx: ToolContext, label: str = "") -> str:
    """Take some time."""
    ctx.progress(label)
    await asyncio.sleep(seconds)
    return f"{label}: done"


@tool(read_only=True)
async def failing_job(ctx: ToolContext) -> str:
    """Fail after some time."""
    ctx.progress("trying")
    await asyncio.sleep(LONGER_THAN_A_CALL_S)
    raise ToolError("It has failed.")


@tool(read_only=True)
async def confirm_delete(filename: str, ctx: ToolContext) -> str:
    """Ask after some time."""
    await ctx.step("take time", asyncio.sleep, LONGER_THAN_A_CALL_S)
    sure = (await ctx.ask(f"Delete {filename}?", Confirmed)).confirm
    return f"deleted {filename}" if sure else f"kept {filename}"


@tool(read_only=True)
async def ask_for_one(which: str, ctx: ToolContext) -> str:
    """Ask for one thing after some time."""
    await ctx.step("take time", asyncio.sleep, LONGER_THAN_A_CALL_S)
    return (await ctx.ask(f"Name {which}?", Named)).name


def asks_for_two(request: Any) -> Any:
    """Return the calls of two tools at once, and then an answer."""
    if len(request.messages) == 1:
        return [call("ask_for_one", which="a"), call("ask_for_one", which="b")]
    return "I have both."


@agent(tools=[ask_for_one], model=ScriptedModel(asks_for_two, record=False))
class MultiInput:
    """You ask for two things at once, which one call of a tool does not do."""
