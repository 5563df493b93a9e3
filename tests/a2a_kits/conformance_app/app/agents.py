"""The agents that the kits of A2A ask: one for each way in which a task goes, declared as any app declares them."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from amoxi_py import ToolContext, agent, tool
from amoxi_py.ports.chat_model import ToolResult
from amoxi_py.testing import ScriptedModel, call, pause, reply

SECONDS = 4.0
"""How long a task takes that a kit subscribes to again; it wants twice its own timeout."""
ONE_MORE = "history message"
"""What an answer says that is followed by another question."""
LARGE = 2_000_000
"""The bytes of a file that is not sent within an answer."""


def says(*parts: Any) -> ScriptedModel:
    """Return a model that says the same each time."""
    return ScriptedModel(lambda request: reply(*parts), record=False)


def calls_then_says(tool_name: str, text: str, **arguments: Any) -> ScriptedModel:
    """Return a model that calls a tool once in each run, and then says a text."""

    def script(request: Any) -> Any:
        return text if isinstance(request.messages[-1], ToolResult) else call(tool_name, **arguments)

    return ScriptedModel(script, record=False)


@tool(read_only=True)
async def ask_until_said(ctx: ToolContext) -> str:
    """Ask the caller, until it has no more to say."""
    said = await ctx.ask("What else do you want to say?")
    while ONE_MORE in said:
        said = await ctx.ask("And what else?")
    return said


@tool(read_only=True)
async def ask_for_ever(ctx: ToolContext) -> None:
    """Ask the caller, whatever it says."""
    while True:
        await ctx.ask("What else do you want to say?")


@tool(read_only=True)
async def save_output(size: int, ctx: ToolContext) -> str:
    """Save a file for the caller."""
    await ctx.save_file("output.txt", b"output\n" * (size // 7), media_type="text/plain")
    return "saved"


@tool(read_only=True)
async def take_time() -> str:
    """Take some time."""
    await asyncio.sleep(SECONDS)
    return "done"


class Pair(BaseModel):
    """What the kit wants as data."""

    key: str
    count: int


@agent(tools=[ask_for_ever], model=calls_then_says("ask_for_ever", "This is never said."))
class Asking:
    """You ask your caller; whatever is not for another agent is for you."""


@agent(tools=[ask_until_said], model=calls_then_says("ask_until_said", "Thank you."))
class InputRequired:
    """You ask your caller, and thank it."""


@agent(model=says("Hello from TCK"))
class CompleteTask:
    """You say hello."""


@agent(model=says("Stream ", pause(0.05), "hello ", "from TCK"))
class Stream:
    """You say hello in pieces."""


@agent(model=says("Generated text content"))
class ArtifactText:
    """You answer with a text."""


@agent(tools=[save_output], model=calls_then_says("save_output", "It is saved.", size=70))
class ArtifactFile:
    """You answer with a file."""


@agent(tools=[save_output], model=calls_then_says("save_output", "It is saved.", size=LARGE))
class ArtifactFileUrl:
    """You answer with a large file."""


@agent(result=Pair, model=says(call("final_result", key="value", count=42)))
class ArtifactData:
    """You answer with data."""


@agent(tools=[take_time], model=calls_then_says("take_time", "That took some time."))
class TakingTime:
    """You take your time."""
