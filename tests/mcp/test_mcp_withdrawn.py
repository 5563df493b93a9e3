"""How calls end early: the client leaves or withdraws the request, here or by another server, or this server stops."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from amoxi_py.errors import StoreUnavailable
from amoxi_py.surfaces.mcp.flights import request_key

pytestmark = pytest.mark.anyio

TOKEN = "desktop-token-0123456789"
BOTH = {"accept": "application/json, text/event-stream"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call"}
SOURCE = '''
import asyncio

from amoxi_py import ToolContext, agent, tool

release = asyncio.Event()
story = []


@tool(idempotent=True)
async def work(ctx: ToolContext) -> str:
    """Do slow work."""
    story.append("begun")
    ctx.progress("begun")
    try:
        await release.wait()
    except asyncio.CancelledError:
        story.append("cancelled")
        raise
    return "worked"


@tool(read_only=True)
async def watch() -> str:
    """Watch."""
    story.append("watching")
    try:
        await release.wait()
    except asyncio.CancelledError:
        story.append("watched no more")
        raise
    return "seen"


@agent(tools=[work])
class Worker:
    """You work."""
'''


def call(name: str, arguments: Any = None, *, id: Any = 7, modern: bool = False, meta: Any = None) -> dict[str, Any]:
    extra = dict(meta or {})
    if modern:
        extra |= {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    params = {"name": name, "arguments": arguments or {}, "_meta": extra}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def message_of(text: str) -> Any:
    lines = [line for line in text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1].removeprefix("data: "))


async def post(http: Any, message: Any, **headers: str) -> Any:
    if "mcp-protocol-version" in headers:
        headers["mcp-name"] = message["params"]["name"]
    return await http.post("/mcp", json=message, headers={**BOTH, **headers})


async def run_of(app: Any) -> Any:
    items = (await app.serving.runs.list(limit=10)).items
    return items[0] if items else None


@pytest.mark.parametrize("accept", [BOTH["accept"], "application/json"])
async def test_a_client_of_2026_07_28_that_leaves_cancels_the_run_that_its_request_started(
    mcp_app: Any, until: Any, accept: str
) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        for message in (call("work", modern=True), call("ask_worker", {"message": "Do slow work"}, modern=True)):
            story = app.module.story
            story.clear()
            request = asyncio.create_task(post(http, message, **MODERN, accept=accept))
            await until(lambda story=story: "begun" in story)
            request.cancel()
            await until(lambda story=story: "cancelled" in story)
            assert (await run_of(app)).status == "cancelled"


async def test_a_client_of_2026_07_28_that_only_waits_for_a_run_and_leaves_ends_nothing(
    mcp_app: Any, until: Any
) -> None:
    async with mcp_app(SOURCE, answer_within=0.05) as app, app.http() as http:
        asked = (await post(http, call("ask_worker", {"message": "Do slow work"}, modern=True), **MODERN)).json()
        run_id = asked["result"]["structuredContent"]["run_id"]
    async with mcp_app(SOURCE) as app, app.http() as http:
        await until(lambda: "begun" in app.module.story)
        request = asyncio.create_task(post(http, call("ask_worker", {"run_id": run_id}, modern=True), **MODERN))
        flights = app.serving.mcp.serving.answering.flights
        await until(lambda: any(flight.run_id == run_id for flight in flights._all))
        request.cancel()
        await until(lambda: not flights._all)
        app.module.release.set()
        assert (await app.serving.runs.wait(run_id)).status == "completed"


async def test_a_client_of_an_older_version_that_leaves_ends_nothing_and_has_the_answer_by_the_runs_id(
    mcp_app: Any, until: Any
) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        request = asyncio.create_task(post(http, call("work")))
        await until(lambda: "begun" in app.module.story)
        request.cancel()
        await until(lambda: not app.serving.mcp.serving.answering.flights._all)
        app.module.release.set()
        run = await run_of(app)
        again = await post(http, call("work", meta={"amoxi/run-id": run.id}))
        assert message_of(again.text)["result"]["content"][0]["text"] == "worked"
        assert app.module.story == ["begun"]


def withdrawn(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}


@pytest.mark.parametrize("id", [7, "seven"])
async def test_an_older_clients_notification_cancels_the_run_that_its_request_started(
    mcp_app: Any, until: Any, id: Any
) -> None:
    session = {"mcp-session-id": "s1"}
    async with mcp_app(SOURCE) as app, app.http() as http, app.http("laptop-token-0123456789") as other:
        request = asyncio.create_task(post(http, call("work", id=id), **session))
        await until(lambda: "begun" in app.module.story)
        for wrong, headers in ((withdrawn(8), session), (withdrawn(id), {"mcp-session-id": "s2"}), (withdrawn(id), {})):
            assert (await post(http, wrong, **headers)).status_code == 202
        assert (await post(other, withdrawn(id), **session)).status_code == 202
        assert [flight.reason for flight in app.serving.mcp.serving.answering.flights._all] == [None]
        assert (await run_of(app)).status == "running"
        assert (await post(http, withdrawn(id), **session)).status_code == 202
        answer = message_of((await request).text)
        assert (answer["id"], answer["error"]["code"]) == (id, -32800)
        await until(lambda: "cancelled" in app.module.story)
        assert (await run_of(app)).status == "cancelled"


async def test_a_notification_cancels_a_read_only_call_that_has_no_run(mcp_app: Any, until: Any) -> None:
    session = {"mcp-session-id": "s1"}
    async with mcp_app(SOURCE) as app, app.http() as http:
        request = asyncio.create_task(post(http, call("watch"), **session))
        await until(lambda: "watching" in app.module.story)
        await post(http, withdrawn(7), **session)
        assert message_of((await request).text)["error"]["code"] == -32800
        await until(lambda: "watched no more" in app.module.story)


async def test_a_notification_that_comes_to_another_server_cancels_the_run_too(mcp_app: Any, until: Any) -> None:
    session = {"mcp-session-id": "s1"}
    async with (
        mcp_app(SOURCE, remembered_after=0.0) as app,
        mcp_app(SOURCE, {"ai.runs.worker": False}) as second,
        app.http() as http,
        second.http() as elsewhere,
        second.http("laptop-token-0123456789") as other,
    ):
        request = asyncio.create_task(post(http, call("work"), **session))
        await until(lambda: "begun" in app.module.story)
        run = await run_of(app)
        assert run.status == "running"

        async def noted() -> Any:
            key = request_key(run.principal, "s1", 7)
            return await app.serving.runtime.store.find_record("mcp.request", key)

        await until(noted)
        await post(other, withdrawn(7), **session)
        assert (await run_of(app)).status == "running", "it was not this caller's"
        await post(elsewhere, withdrawn(7), **session)
        assert (await run_of(app)).status == "cancelled"
        result = message_of((await request).text)["result"]
        assert result["isError"] is True
        await until(lambda: "cancelled" in app.module.story)


@pytest.mark.parametrize("name", ["work", "watch"])
async def test_a_notification_that_comes_to_another_server_before_it_knows_of_the_request_ends_it_too(
    mcp_app: Any, until: Any, name: str
) -> None:
    session = {"mcp-session-id": "s1"}
    async with (
        mcp_app(SOURCE, remembered_after=0.05) as app,
        mcp_app(SOURCE, {"ai.runs.worker": False}) as second,
        app.http() as http,
        second.http() as elsewhere,
        second.http("laptop-token-0123456789") as other,
    ):
        await post(other, withdrawn(8), **session)
        await post(elsewhere, withdrawn(7), **session)
        answers = [asyncio.create_task(post(http, call(name, id=n), **session)) for n in (7, 8)]
        assert message_of((await answers[0]).text)["error"]["code"] == -32800
        await until(lambda: {"cancelled", "watched no more"} & set(app.module.story))
        app.module.release.set()
        assert message_of((await answers[1]).text)["result"]["isError"] is False


async def test_of_two_requests_that_look_the_same_none_is_withdrawn(mcp_app: Any, until: Any) -> None:
    session = {"mcp-session-id": "s1"}
    async with mcp_app(SOURCE, remembered_after=0.0) as app, app.http() as http:
        requests = [asyncio.create_task(post(http, call("work"), **session)) for _ in range(2)]
        await until(lambda: app.module.story.count("begun") == 2)
        flights = app.serving.mcp.serving.answering.flights._all
        await until(lambda: all(flight.noting is not None and flight.noting.done() for flight in flights))
        await post(http, withdrawn(7), **session)
        assert {run.status for run in (await app.serving.runs.list(limit=10)).items} == {"running"}
        app.module.release.set()
        results = [message_of((await request).text)["result"] for request in requests]
        assert [result["isError"] for result in results] == [False, False]


async def test_a_request_that_was_answered_is_withdrawn_too_late(mcp_app: Any, until: Any) -> None:
    session = {"mcp-session-id": "s1"}
    async with mcp_app(SOURCE, remembered_after=0.0, answer_within=0.5) as app, app.http() as http:
        answer = await post(http, call("ask_worker", {"message": "Do slow work"}), **session)
        assert message_of(answer.text)["result"]["structuredContent"]["status"] != "completed"
        await until(lambda: app.module.story == ["begun"])
        await post(http, withdrawn(7), **session)
        run = await run_of(app)
        assert run.status == "running"
        app.module.release.set()
        assert (await app.serving.runs.wait(run.id)).status == "completed"


@pytest.mark.parametrize("modern", [False, True])
async def test_a_call_whose_run_is_there_is_not_called_anew_when_the_store_goes_away_or_something_breaks(
    mcp_app: Any, until: Any, monkeypatch: Any, modern: bool
) -> None:
    headers = MODERN if modern else {}

    def body(answer: Any) -> Any:
        return answer.json() if modern else message_of(answer.text)

    async with mcp_app(SOURCE) as app, app.http() as http:
        engine = app.engine
        for error in (StoreUnavailable("the disk is full"), RuntimeError("broken")):

            async def wait(*given: Any, error: Exception = error, **named: Any) -> Any:
                raise error

            monkeypatch.setattr(engine, "wait_call", wait)
            told = body(await post(http, call("work", modern=modern), **headers))
            run_id = (await run_of(app)).id
            if isinstance(error, RuntimeError):
                assert (told["error"]["code"], told["error"]["data"]) == (-32603, {"amoxi/run-id": run_id})
                text = told["error"]["message"]
            else:
                assert told["result"]["_meta"]["amoxi/run-id"] == run_id
                text = told["result"]["content"][0]["text"]
            assert f"goes on as the run {run_id}: do not call it anew" in text

        async def lost(*given: Any, **named: Any) -> Any:
            raise StoreUnavailable("the connection broke")

        monkeypatch.setattr(engine, "submit_call", lost)
        monkeypatch.setattr(engine, "submit", lost)
        monkeypatch.setattr(engine, "call_now", lost)
        for name, arguments in (("work", {}), ("ask_worker", {"message": "Do slow work"})):
            told = body(await post(http, call(name, arguments, modern=modern), **headers))
            assert "it is not known whether the call began" in told["result"]["content"][0]["text"]
        told = body(await post(http, call("watch", modern=modern), **headers))
        assert "call again in a moment" in told["result"]["content"][0]["text"]
        app.module.release.set()


async def test_when_the_server_stops_a_call_without_a_run_ends_before_it_is_cut(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, stop_grace=0.0) as app, app.http() as http:
        request = asyncio.create_task(post(http, call("watch")))
        await until(lambda: "watching" in app.module.story)
        app.serving._begin_stop()
        result = message_of((await asyncio.wait_for(request, 30)).text)["result"]
        assert (result["isError"], "nothing was done" in result["content"][0]["text"]) == (True, True)
        await until(lambda: "watched no more" in app.module.story)


async def test_when_the_server_stops_a_call_ends_cleanly_and_is_had_from_the_next_server(
    mcp_app: Any, until: Any
) -> None:
    async with mcp_app(SOURCE, linger=0.0) as app, app.http() as http:
        direct = asyncio.create_task(post(http, call("work", id=1)))
        asked = asyncio.create_task(post(http, call("ask_worker", {"message": "Do slow work"}, id=2)))
        await until(lambda: app.module.story.count("begun") == 2)
        app.serving._begin_stop()
        results = [message_of((await each).text)["result"] for each in (direct, asked)]
        run_ids = [result["_meta"]["amoxi/run-id"] for result in results]
        for result, run_id in zip(results, run_ids, strict=True):
            assert result["isError"] is True
            assert run_id in result["content"][0]["text"]
    async with mcp_app(SOURCE) as app, app.http() as http:
        app.module.release.set()
        direct = await post(http, call("work", meta={"amoxi/run-id": run_ids[0]}))
        assert message_of(direct.text)["result"]["content"][0]["text"] == "worked"
        asked = await post(http, call("ask_worker", {"run_id": run_ids[1]}))
        assert message_of(asked.text)["result"]["structuredContent"]["status"] == "completed"
