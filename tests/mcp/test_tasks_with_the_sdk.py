"""The SDK's client with an extension for tasks: it looks after them, and its user sees a call with a result."""

from __future__ import annotations

import sys
from typing import Any, Literal

import anyio
import mcp_types as wire
import pytest
from mcp.client import ClaimContext, ClientExtension, ResultClaim

pytestmark = pytest.mark.anyio

NEW = "2026-07-28"
ANN = "anns-token-0123456789"

SOURCE = """
import asyncio

from amoxi_py import ToolContext, agent, tool
from amoxi_py.testing import ScriptedModel, call

release = asyncio.Event()
done = []


@tool(idempotent=True)
async def greet(greeting: str, ctx: ToolContext) -> str:
    'Greet somebody who is asked for, after some time.'
    await release.wait()
    return f"{greeting}, {await ctx.ask('Whom?')}!"


@tool(read_only=True)
async def think() -> str:
    'Take time.'
    await release.wait()
    return "thought"


@tool(needs_approval=True)
async def erase(path: str) -> str:
    'Erase a file.'
    done.append(path)
    return f"erased {path}"


@agent(tools=[think, erase], model=ScriptedModel([[call("think")], [call("erase", path="a.txt")], "It is done."]))
class Clerk:
    'You do things.'
"""


class Task(wire.Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str


class TaskState(wire.Result):
    status: str
    input_requests: dict[str, wire.ElicitRequest] | None = None
    result: wire.CallToolResult | None = None


class GetParams(wire.RequestParams):
    task_id: str


class UpdateParams(GetParams):
    input_responses: dict[str, wire.ElicitResult]


class Get(wire.Request[GetParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"


class Update(wire.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"


class LooksAfterTasks(ClientExtension):
    """Polls a task to its end, and answers what it asks; `seen` are the statuses on the way."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.seen: list[str] = []

    def claims(self) -> list[ResultClaim[Task]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self.resolve)]

    async def resolve(self, task: Task, ctx: ClaimContext) -> wire.CallToolResult:
        self.seen.append(task.status)
        while True:
            state = await ctx.session.send_request(Get(params=GetParams(task_id=task.task_id)), TaskState)
            if state.status != self.seen[-1]:
                self.seen.append(state.status)
            if state.result is not None:
                return state.result
            for key, request in (state.input_requests or {}).items():
                self.asked.append(request.params.message)
                response = wire.ElicitResult(action="accept", content=self.answers.pop(0))
                params = UpdateParams(task_id=task.task_id, input_responses={key: response})
                await ctx.session.send_request(Update(params=params), wire.EmptyResult)
            await anyio.sleep(0.005)


async def nobody(context: Any, params: Any) -> wire.ElicitResult:
    raise AssertionError("it is asked in the task")


def release(app: Any) -> None:
    sys.modules[app.serving.settings.app.package].release.set()


async def test_a_call_becomes_a_task_that_asks_and_ends_in_the_calls_result(mcp_app: Any, until: Any) -> None:
    tasks = LooksAfterTasks({"answer": "Ann"})
    async with (
        mcp_app(SOURCE, task_after=0.0) as app,
        app.client(NEW, elicitation_callback=nobody, extensions=[tasks]) as client,
        anyio.create_task_group() as group,
    ):
        results: list[Any] = []

        async def call() -> None:
            results.append(await client.call_tool("greet", {"greeting": "Hello"}))

        group.start_soon(call)
        await until(lambda: tasks.seen)
        release(app)
        await until(lambda: results)
    assert results[0].content[0].text == "Hello, Ann!"
    assert tasks.asked == ["Whom?"]
    assert tasks.seen[0] == "working"
    assert tasks.seen[-1] == "completed"


async def test_a_person_decides_about_a_call_in_a_task(signed_in: Any, people: Any, until: Any) -> None:
    tasks = LooksAfterTasks({"decision": "approve"})
    async with (
        signed_in(SOURCE, task_after=0.0) as app,
        app.client(NEW, ANN, elicitation_callback=nobody, extensions=[tasks]) as client,
        anyio.create_task_group() as group,
    ):
        results: list[Any] = []

        async def call() -> None:
            results.append(await client.call_tool("ask_clerk", {"message": "Erase it"}))

        group.start_soon(call)
        await until(lambda: tasks.seen)
        release(app)
        await until(lambda: results)
        assert results[0].content[0].text == "It is done."
        assert results[0].structured_content["status"] == "completed"
        assert sys.modules[app.serving.settings.app.package].done == ["a.txt"]
        run = (await app.engine.list_runs(people[ANN])).items[0]
        assert run.id == results[0].meta["amoxi/run-id"]
    assert "'erase'" in tasks.asked[0]
