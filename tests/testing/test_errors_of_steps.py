"""What a model is told of a step that failed: the text that was raised to tell it, and of all else nothing."""

from __future__ import annotations

from amoxi_py import ToolContext, ToolError, agent, tool
from amoxi_py.testing import ScriptedModel, call, run_agent


class NotInStock(ToolError):
    """A kind of the app's own."""


@tool(idempotent=True, retries=3)
async def reserve(error: str, ctx: ToolContext) -> str:
    """Reserve a thing."""
    tries.append(error)

    def ask() -> str:
        raise {"for the model": NotInStock("There are none left."), "secret": ValueError("password=hunter2")}[error]

    return await ctx.step("ask", ask)


@agent(tools=[reserve])
class Clerk:
    """You reserve things."""


tries: list[str] = []


def test_the_text_of_a_tool_error_in_a_step_is_told_and_nothing_is_tried_again() -> None:
    tries.clear()
    result = run_agent(Clerk, "x", model=ScriptedModel([call("reserve", error="for the model"), "Sorry."]))
    assert (result.call("reserve").result, result.call("reserve").is_error) == ("There are none left.", True)
    assert len(tries) == 1


def test_of_any_other_error_in_a_step_the_text_stays_here() -> None:
    result = run_agent(Clerk, "x", model=ScriptedModel([call("reserve", error="secret"), "Sorry."]))
    assert result.call("reserve").result == "The tool failed."
