"""The tasks extension: a call that takes its time is answered with a task, which is its run."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal

pytestmark = pytest.mark.anyio

NEW = "2026-07-28"
DESKTOP, LAPTOP = "desktop-token-0123456789", "laptop-token-0123456789"
TASKS = "io.modelcontextprotocol/tasks"
WITH_TASKS: Mapping[str, Any] = {"extensions": {TASKS: {}}}
ASKED_TOO: Mapping[str, Any] = {**WITH_TASKS, "elicitation": {}}
LATER = 0.02
"""When a call becomes a task here, in seconds."""

SOURCE = """
import asyncio

from pydantic import BaseModel

from amoxi_py import ToolContext, ToolError, agent, tool
from amoxi_py.testing import ScriptedModel, call

release = asyncio.Event()
runs = []


class Sum(BaseModel):
    total: int


@tool(read_only=True)
def quick(n: int) -> Sum:
    'Answer at once.'
    return Sum(total=n)


@tool(idempotent=True)
async def slow(n: int, ctx: ToolContext) -> Sum:
    'Take time.'
    runs.append(ctx.run_id)
    await release.wait()
    return Sum(total=n)


@tool(idempotent=True)
async def failing() -> str:
    'Take time and fail.'
    await release.wait()
    raise ToolError("The shop is closed.")


@tool(idempotent=True)
async def ask_late(ctx: ToolContext) -> str:
    'Ask after some time.'
    await release.wait()
    return f"Hello, {await ctx.ask('Your name?')}"


@tool(idempotent=True)
async def ask_first(ctx: ToolContext) -> str:
    'Ask, then take time.'
    name = await ctx.ask("Your name?")
    await release.wait()
    return f"Hello, {name}"


@tool(idempotent=True)
async def ask_number(which: str, ctx: ToolContext) -> int:
    'Ask after some time.'
    await release.wait()
    return await ctx.ask(f"Number {which}?", int)


ASKS = [call("ask_number", which="a"), call("ask_number", which="b")]


@agent(tools=[ask_number], model=ScriptedModel([ASKS, "Both."]))
class Clerk:
    'You ask.'


"""


class Refused(Exception):
    """A JSON-RPC error and its HTTP status."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(error)
        self.status, self.code, self.data = status, error["code"], error.get("data")


class Caller:
    """A client of 2026-07-28 that says what it can do with each request."""

    def __init__(self, http: Any, capabilities: Mapping[str, Any]) -> None:
        self.http = http
        self.capabilities = capabilities

    async def request(self, method: str, params: dict[str, Any], name: str | None = None, **headers: str) -> Any:
        meta = {
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
        shown = {"mcp-protocol-version": NEW, "mcp-method": method, **({} if name is None else {"mcp-name": name})}
        answer = await self.http.post(
            "/mcp", json=message, headers={"accept": "application/json, text/event-stream", **shown, **headers}
        )
        body = answer.json()
        if "error" in body:
            raise Refused(answer.status_code, body["error"])
        return body["result"]

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, **params: Any) -> Any:
        return await self.request("tools/call", {"name": tool, "arguments": arguments or {}, **params}, tool)

    async def get(self, task: str) -> Any:
        return await self.request("tasks/get", {"taskId": task}, task)

    async def update(self, task: str, responses: dict[str, Any]) -> Any:
        return await self.request("tasks/update", {"taskId": task, "inputResponses": responses}, task)

    async def cancel(self, task: str) -> Any:
        return await self.request("tasks/cancel", {"taskId": task}, task)


@asynccontextmanager
async def calling(
    app: Any, capabilities: Mapping[str, Any] = WITH_TASKS, token: str = DESKTOP
) -> AsyncIterator[Caller]:
    async with app.http(token) as http:
        yield Caller(http, capabilities)


def accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result without the server's stamp."""
    meta = {key: value for key, value in result.get("_meta", {}).items() if key.startswith("amoxi/")}
    return {**result, "_meta": meta}


async def ended(caller: Caller, task: str, until: Any) -> Any:
    async def final() -> Any:
        found = await caller.get(task)
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    return await until(final)


async def in_status(caller: Caller, task: str, status: str, until: Any) -> Any:
    async def there() -> Any:
        found = await caller.get(task)
        return found if found["status"] == status else None

    return await until(there)


async def test_a_call_that_takes_its_time_is_a_task_and_its_result_is_that_of_the_plain_call(
    mcp_app: Any, until: Any
) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = await caller.call("slow", {"n": 7})
        assert {key: value for key, value in task.items() if key in ("resultType", "status", "ttlMs")} == {
            "resultType": "task",
            "status": "working",
            "ttlMs": None,
        }
        assert not {"result", "error", "inputRequests", "requestState", "task", "content"} & task.keys()
        for when in (task["createdAt"], task["lastUpdatedAt"]):
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", when)
        assert isinstance(task["pollIntervalMs"], int)
        assert [task["taskId"]] == [task["_meta"]["amoxi/run-id"]] == app.module.runs
        working = await caller.get(task["taskId"])
        assert (working["resultType"], working["status"]) == ("complete", "working")
        assert "result" not in working

        app.module.release.set()
        done = await ended(caller, task["taskId"], until)
        assert (done["resultType"], done["status"]) == ("complete", "completed")
        async with calling(app, {}) as plain:
            again = await plain.call("slow", {"n": 7}, _meta={**_meta({}), "amoxi/run-id": task["taskId"]})
        assert done["result"] == told(again)
        assert done["result"]["structuredContent"] == {"total": 7}


def _meta(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


async def test_a_quick_call_is_answered_with_its_result(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, calling(app) as caller:
        for tool in ("quick", "slow"):
            app.module.release.set()
            result = await caller.call(tool, {"n": 1})
            assert result["resultType"] == "complete"
            assert result["structuredContent"] == {"total": 1}
            assert "taskId" not in result


async def test_without_the_capability_there_are_no_tasks(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=0.0) as app, calling(app, {}) as plain, calling(app) as caller:
        task = (await caller.call("slow", {"n": 1}))["taskId"]
        for method, params in (
            ("tasks/get", {"taskId": task}),
            ("tasks/update", {"taskId": task, "inputResponses": {}}),
            ("tasks/cancel", {"taskId": task}),
        ):
            with pytest.raises(Refused) as refused:
                await plain.request(method, params, task)
            assert (refused.value.code, refused.value.status) == (-32021, 400)
            assert refused.value.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        app.module.release.set()
        assert (await plain.call("slow", {"n": 1}))["resultType"] == "complete"


async def test_the_extension_is_told_of_and_is_not_there_for_older_clients(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, calling(app) as caller, app.http() as http:
        capabilities = (await caller.request("server/discover", {}))["capabilities"]
        assert capabilities["extensions"] == {TASKS: {}}
        assert "tasks" not in capabilities
        assert (await app.rpc(http, "tasks/get", {"taskId": "run_1"}))["error"]["code"] == -32601
        for method in ("tasks/list", "tasks/result"):
            with pytest.raises(Refused) as refused:
                await caller.request(method, {"taskId": "run_1"})
            assert refused.value.code == -32601


async def test_a_tools_error_is_a_completed_task(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("failing"))["taskId"]
        app.module.release.set()
        done = await ended(caller, task, until)
        assert done["status"] == "completed"
        assert done["result"]["isError"] is True
        assert done["result"]["content"][0]["text"] == "The shop is closed."


async def test_a_task_is_cancelled_once_and_stays_so(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("slow", {"n": 1}))["taskId"]
        for _ in range(2):
            assert await caller.cancel(task) == {"resultType": "complete", "_meta": await stamp(caller)}
        done = await ended(caller, task, until)
        assert done["status"] == "cancelled"
        assert "result" not in done
        app.module.release.set()
        other = await caller.call("slow", {"n": 2}, _meta={**_meta(WITH_TASKS), "amoxi/idempotency-key": "k"})
        assert other["structuredContent"] == {"total": 2}


async def stamp(caller: Caller) -> Any:
    return (await caller.request("server/discover", {}))["_meta"]


async def test_another_callers_task_is_an_unknown_one(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("slow", {"n": 1}))["taskId"]
        async with calling(app, ASKED_TOO, LAPTOP) as other:
            for name in (task, "run_00000000000000000000000000", "nothing", ""):
                for attempt in (other.get(name), other.update(name, {}), other.cancel(name)):
                    with pytest.raises(Refused) as refused:
                        await attempt
                    assert (refused.value.code, str(refused.value)) == (
                        -32602,
                        "{'code': -32602, 'message': 'there is no such task'}",
                    )
        assert (await caller.get(task))["status"] == "working"
        app.module.release.set()


async def test_a_task_goes_on_when_its_client_leaves_and_on_another_server(mcp_app: Any, until: Any) -> None:
    at_once = {"server.stop-grace-s": 0.0}
    async with mcp_app(SOURCE, at_once, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("slow", {"n": 5}))["taskId"]
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        assert (await caller.get(task))["status"] == "working"
        app.module.release.set()
        done = await ended(caller, task, until)
        assert done["result"]["structuredContent"] == {"total": 5}


async def test_a_question_that_comes_late_is_asked_in_the_task(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app, ASKED_TOO) as caller:
        task = (await caller.call("ask_late"))["taskId"]
        app.module.release.set()
        waiting = await in_status(caller, task, "input_required", until)
        assert waiting["resultType"] == "complete"
        assert waiting["statusMessage"] == "Waits for an answer: Your name?"
        (request,) = waiting["inputRequests"].values()
        assert request["method"] == "elicitation/create"
        assert request["params"]["message"] == "Your name?"
        (key,) = waiting["inputRequests"]

        assert set(await caller.update(task, {"other": {"ignored": True}})) == {"resultType", "_meta"}
        assert list((await caller.get(task))["inputRequests"]) == [key]
        for wrong in ({"ignored": True}, accept(answer="")):
            with pytest.raises(Refused) as refused:
                await caller.update(task, {key: wrong})
            assert refused.value.code == -32602
        await caller.update(task, {key: {"action": "cancel"}})
        assert list((await caller.get(task))["inputRequests"]) == [key]

        assert set(await caller.update(task, {key: accept(answer="Ann")})) == {"resultType", "_meta"}
        done = await ended(caller, task, until)
        assert done["result"]["content"][0]["text"] == "Hello, Ann"
        assert set(await caller.update(task, {key: accept(answer="Bob")})) == {"resultType", "_meta"}


async def test_a_client_that_cannot_be_asked_sees_a_task_that_works_and_why(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("ask_late"))["taskId"]
        app.module.release.set()

        async def waits() -> Any:
            found = await caller.get(task)
            assert found["status"] == "working"
            return found.get("statusMessage")

        assert await until(waits) == "Waits for an answer: Your name?"


async def test_a_question_at_the_start_comes_before_the_task(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=60.0) as app, calling(app, ASKED_TOO) as caller:
        asked = await caller.call("ask_first")
        assert asked["resultType"] == "input_required"
        assert "taskId" not in asked
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app, ASKED_TOO) as caller:
        (key,) = asked["inputRequests"]
        task = await caller.call(
            "ask_first", inputResponses={key: accept(answer="Ann")}, requestState=asked["requestState"]
        )
        assert task["resultType"] == "task"
        assert not {"requestState", "inputRequests"} & task.keys()
        app.module.release.set()
        done = await ended(caller, task["taskId"], until)
        assert done["result"]["content"][0]["text"] == "Hello, Ann"


async def test_several_questions_of_a_task_are_answered_one_by_one(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app, ASKED_TOO) as caller:
        task = (await caller.call("ask_clerk", {"message": "Go"}))["taskId"]
        app.module.release.set()

        async def both() -> Any:
            requests = (await caller.get(task)).get("inputRequests", {})
            return list(requests) if len(requests) == 2 else None

        first, second = await until(both)
        await caller.update(task, {first: accept(answer=1)})
        left = await caller.get(task)
        assert left["status"] == "input_required"
        assert list(left["inputRequests"]) == [second]
        await caller.update(task, {second: accept(answer=2)})
        done = await ended(caller, task, until)
        assert done["result"]["content"][0]["text"] == "Both."
        assert done["result"]["structuredContent"]["run_id"] == task


async def test_the_name_in_a_header_must_be_the_tasks(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, task_after=LATER) as app, calling(app) as caller:
        task = (await caller.call("slow", {"n": 1}))["taskId"]
        with pytest.raises(Refused) as refused:
            await caller.request("tasks/get", {"taskId": task}, "run_1")
        assert (refused.value.code, refused.value.status) == (-32020, 400)
        assert (await caller.request("tasks/get", {"taskId": task}))["taskId"] == task
        app.module.release.set()


async def test_a_call_that_was_cut_off_can_be_looked_after_as_a_task(mcp_app: Any, until: Any) -> None:
    desktop = Principal(id="mcp:desktop", channel="mcp")
    async with mcp_app(SOURCE) as app, calling(app) as caller:
        own = await app.engine.submit_call("quick", {"n": 1}, principal=desktop)
        done = await ended(caller, own.run.id, until)
        assert done["result"]["structuredContent"] == {"total": 1}


async def test_a_task_of_a_tool_that_its_caller_has_no_more_is_an_unknown_one(mcp_app: Any, until: Any) -> None:
    laptop = Principal(id="mcp:laptop", channel="mcp")
    async with mcp_app(SOURCE) as app, calling(app, WITH_TASKS, LAPTOP) as caller:
        own = await app.engine.submit_call("quick", {"n": 1}, principal=laptop)
        assert (await ended(caller, own.run.id, until))["status"] == "completed"
    less = SOURCE.replace("@tool(read_only=True)", '@tool(read_only=True, allow=lambda who: who.id != "mcp:laptop")')
    async with mcp_app(less) as app, calling(app, WITH_TASKS, LAPTOP) as caller:
        with pytest.raises(Refused) as refused:
            await caller.get(own.run.id)
        assert refused.value.code == -32602
