"""`ask_<agent>` over MCP: a message, the rest of an earlier answer, an answer to a question, and what is refused."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from amoxi_py.domain.principal import Principal

pytestmark = pytest.mark.anyio
ERAS = ("legacy", "2026-07-28")

SOURCE = '''
import asyncio
from typing import Literal

from pydantic import BaseModel

from amoxi_py import ToolContext, agent, tool

release = asyncio.Event()


@tool(read_only=True)
def lookup_thing(thing_id: str) -> dict[str, str]:
    """Look up a thing.

    Args:
        thing_id: The number, e.g. T-1
    """
    return {"id": thing_id, "status": "found"}


@tool(idempotent=True)
async def slow_work(ctx: ToolContext) -> str:
    """Do slow work."""
    ctx.progress("half of it is done")
    await release.wait()
    return "worked"


@tool(idempotent=True)
async def ask_size(ctx: ToolContext) -> str:
    """Ask for the size."""
    return "size " + await ctx.ask("Which size?", Literal["small", "large"])


@tool(idempotent=True)
async def ask_count(ctx: ToolContext) -> str:
    """Ask how many."""
    return f"{await ctx.ask('How many?', int) + 1} of them"


@tool(needs_approval=True)
def cancel_thing(thing_id: str) -> str:
    """Cancel a thing."""
    return f"cancelled {thing_id}"


@tool(needs_approval=True, approver="role:boss")
def burn_thing(thing_id: str) -> str:
    """Burn a thing."""
    return f"burnt {thing_id}"


@tool(idempotent=True)
async def draw_chart(ctx: ToolContext) -> str:
    """Draw a chart."""
    await ctx.save_file("chart.png", b"\\x89PNG fake", media_type="image/png")
    return "drawn"


class Verdict(BaseModel):
    good: bool


@agent(
    tools=[lookup_thing, slow_work, ask_size, ask_count, cancel_thing, burn_thing, draw_chart],
    description="Knows things.",
)
class ThingAgent:
    """You know things."""


@agent(result=Verdict, on_busy="reject", tools=[slow_work])
class Judge:
    """You judge."""


@agent(allow=lambda principal: principal.id == "mcp:laptop")
class LaptopAgent:
    """You are for one caller."""
'''


async def open_approvals(app: Any, principal: Principal) -> Any:
    return (await app.engine.list_approvals(principal)).items


def text_of(result: Any) -> str:
    return result.content[0].text


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_answers_with_its_text_and_the_ids_to_go_on_with(mcp_app: Any, era: str) -> None:
    async with mcp_app(SOURCE) as app, app.client(era) as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "ask_thing_agent")
        assert tool.title == "Ask thing agent"
        assert tool.description.startswith("Knows things.\n\n")
        assert tool.input_schema.get("required", []) == []
        first = await client.call_tool("ask_thing_agent", {"message": "Look up thing T-1"})
        assert not first.is_error
        told = first.structured_content
        assert text_of(first) == told["output"]
        assert "T-1" in text_of(first)
        assert (told["status"], first.meta["amoxi/run-id"]) == ("completed", told["run_id"])
        run = await app.serving.runs.get(told["run_id"])
        assert (run.principal.id, run.principal.channel, run.agent) == ("mcp:desktop", "mcp", "thing-agent")
        second = await client.call_tool(
            "ask_thing_agent", {"message": "And thing T-2?", "conversation_id": told["conversation_id"], "run_id": ""}
        )
        assert second.structured_content["conversation_id"] == told["conversation_id"]
        again = await client.call_tool("ask_thing_agent", {"run_id": told["run_id"], "message": None})
        assert again.structured_content == told


@pytest.mark.parametrize("era", ERAS)
async def test_past_its_limit_a_call_answers_with_the_runs_id_and_a_later_one_gives_the_rest(
    mcp_app: Any, era: str
) -> None:
    async with mcp_app(SOURCE, answer_within=0.01) as app, app.client(era) as client:
        await client.list_tools()
        early = await client.call_tool("ask_thing_agent", {"message": "Do slow work"})
        told = early.structured_content
        assert not early.is_error
        assert told["status"] in ("queued", "running")
        assert told["output"] is None
        assert f"run_id={told['run_id']!r}" in text_of(early)
        sys.modules[app.serving.settings.app.package].release.set()
        await app.serving.runs.wait(told["run_id"])
        rest = await client.call_tool("ask_thing_agent", {"run_id": told["run_id"]})
        assert rest.structured_content["status"] == "completed"
        assert "worked" in text_of(rest)


@pytest.mark.parametrize("era", ERAS)
async def test_a_question_of_the_agent_is_told_and_answered_by_the_same_tool(mcp_app: Any, era: str) -> None:
    async with mcp_app(SOURCE) as app, app.client(era) as client:
        await client.list_tools()
        asks = await client.call_tool("ask_thing_agent", {"message": "Ask for the size"})
        told = asks.structured_content
        assert told["status"] in ("running", "waiting")
        assert told["waiting_for"][0]["question"] == "Which size?"
        assert "Which size?" in text_of(asks)
        wrong = await client.call_tool("ask_thing_agent", {"run_id": told["run_id"], "message": "huge"})
        assert wrong.is_error
        assert "answer" in text_of(wrong)
        done = await client.call_tool("ask_thing_agent", {"run_id": told["run_id"], "message": "large"})
        assert done.structured_content["status"] == "completed"
        assert "size large" in text_of(done)
        late = await client.call_tool("ask_thing_agent", {"run_id": told["run_id"], "message": "small"})
        assert late.is_error
        assert "asks nothing" in text_of(late)
        number = await client.call_tool("ask_thing_agent", {"message": "Ask how many"})
        many = await client.call_tool(
            "ask_thing_agent", {"run_id": number.structured_content["run_id"], "message": "41"}
        )
        assert "42 of them" in text_of(many)


async def test_a_run_that_meta_names_is_waited_for_and_a_message_beside_it_says_nothing_to_it(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.client() as client:
        asked = await client.call_tool("ask_thing_agent", {"message": "Ask for the size"})
        for arguments in ({"message": "Ask for the size"}, {}):
            again = await client.call_tool("ask_thing_agent", arguments, meta=asked.meta)
            for told in ("run_id", "waiting_for"):
                assert again.structured_content[told] == asked.structured_content[told]
        assert len((await app.serving.runs.list(limit=10)).items) == 1
        unknown = {"amoxi/run-id": "run_" + "0" * 26}
        assert (await client.call_tool("ask_thing_agent", {"message": "Ask for the size"}, meta=unknown)).is_error
        assert len((await app.serving.runs.list(limit=10)).items) == 1


async def test_arguments_that_do_not_go_together_are_told_to_the_model(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.client() as client:
        for arguments, told in {
            (): "message: give what the agent is asked",
            (("message", 7),): "message: it must be a text",
            (("message", ""),): "message: give what the agent is asked",
            (("message", "a"), ("run_id", "run_1"), ("conversation_id", "conv_1")): "conversation_id: a run is in",
            (("query", "a"),): "query: there is no such argument",
        }.items():
            result = await client.call_tool("ask_thing_agent", dict(arguments))
            assert result.is_error
            assert told in text_of(result), arguments
        assert (await app.serving.runs.list(limit=10)).items == ()


async def test_what_the_door_refuses_is_told_to_the_model(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, answer_within=0.05) as app, app.client() as client:
        unknown = await client.call_tool("ask_thing_agent", {"message": "a", "conversation_id": "conv_" + "0" * 26})
        assert unknown.is_error
        assert "conversation" in text_of(unknown)
        busy = await client.call_tool("ask_judge", {"message": "Do slow work"})
        conversation = busy.structured_content["conversation_id"]
        refused = await client.call_tool("ask_judge", {"message": "Now", "conversation_id": conversation})
        assert refused.is_error
        assert "busy" in text_of(refused)
        sys.modules[app.serving.settings.app.package].release.set()


@pytest.mark.parametrize("era", ERAS)
async def test_what_needs_a_persons_approval_is_declined_for_a_program(mcp_app: Any, era: str) -> None:
    for approvals in ("decline", "wait"):
        async with mcp_app(SOURCE, {"ai.mcp.approvals": approvals}) as app, app.client(era) as client:
            result = await client.call_tool("ask_thing_agent", {"message": "Cancel thing T-1"})
            assert "The person declined this action." in text_of(result)
            assert not result.is_error


@pytest.mark.parametrize("era", ERAS)
async def test_with_an_approver_a_run_waits_for_it_and_is_gone_on_with_by_its_id(
    mcp_app: Any, era: str, until: Any
) -> None:
    settings = {"ai.mcp.approvals": "wait"}
    async with mcp_app(SOURCE, settings, answer_within=0.05) as app, app.client(era) as client:
        waits = await client.call_tool("ask_thing_agent", {"message": "Burn thing T-1"})
        run_id = waits.structured_content["run_id"]
        boss = Principal(id="user:1", channel="web", roles=frozenset({"boss"}))
        [approval] = await until(lambda: open_approvals(app, boss))
        still = await client.call_tool("ask_thing_agent", {"run_id": run_id})
        assert still.structured_content["waiting_for"][0]["kind"] == "approval"
        assert "until a person approves 'burn_thing'" in text_of(still)
        await app.engine.decide(approval.call.id, boss, "approve")
        await app.serving.runs.wait(run_id)
        done = await client.call_tool("ask_thing_agent", {"run_id": run_id})
        assert "burnt T-1" in text_of(done)


@pytest.mark.parametrize("era", ERAS)
async def test_progress_tells_what_the_agent_does(mcp_app: Any, era: str) -> None:
    async with mcp_app(SOURCE) as app, app.client(era) as client:
        sys.modules[app.serving.settings.app.package].release.set()
        heard: list[tuple[float, str | None]] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append((progress, message))

        done = await client.call_tool("ask_thing_agent", {"message": "Do slow work"}, progress_callback=hear)
        assert heard == [
            (1, f"Run {done.meta['amoxi/run-id']}"),
            (2, "Calling slow_work"),
            (3, "half of it is done"),
            (4, "slow_work is done"),
        ]


async def test_a_message_with_the_same_idempotency_key_is_the_same_run(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.client() as client:
        meta = {"amoxi/idempotency-key": "k1"}
        first = await client.call_tool("ask_thing_agent", {"message": "Look up thing T-1"}, meta=meta)
        again = await client.call_tool("ask_thing_agent", {"message": "Look up thing T-1"}, meta=meta)
        assert first.structured_content == again.structured_content


async def test_a_structured_result_comes_in_the_form_that_is_advertised(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.client() as client:
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "ask_judge")
        assert tool.output_schema["properties"]["result"]["properties"]["good"]["type"] == "boolean"
        done = await client.call_tool("ask_judge", {"message": "Is it good?"})
        if not done.is_error:
            assert isinstance(done.structured_content["result"]["good"], bool)


@pytest.mark.parametrize("era", ERAS)
async def test_files_that_an_agents_answer_shows_come_with_it(mcp_app: Any, era: str) -> None:
    async with mcp_app(SOURCE) as app, app.client(era) as client:
        done = await client.call_tool("ask_thing_agent", {"message": "Draw a chart"})
        assert text_of(done) == done.structured_content["output"]
        assert [(part.type, part.mime_type) for part in done.content[1:]] == [("image", "image/png")]


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_that_the_caller_does_not_have_is_the_same_as_one_that_does_not_exist(
    mcp_app: Any, era: str
) -> None:
    async with mcp_app(SOURCE) as app, app.client(era) as client:
        assert "ask_laptop_agent" not in [tool.name for tool in (await client.list_tools()).tools]
        for name in ("ask_laptop_agent", "ask_nobody"):
            for arguments in ({}, {"message": "Hello"}, {"run_id": "run_" + "0" * 26}):
                with pytest.raises(MCPError) as caught:
                    await client.call_tool(name, arguments)
                assert (caught.value.code, caught.value.message) == (-32602, f"Unknown tool: {name}")
    async with mcp_app(SOURCE) as app, app.client(era, token="laptop-token-0123456789") as client:
        assert "ask_laptop_agent" in [tool.name for tool in (await client.list_tools()).tools]
