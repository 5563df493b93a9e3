"""Answers that are cut off: a client of the older versions has the rest of them, from any server, by an event's id."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from amoxi_py.surfaces.mcp.bookmarks import Bookmarks
from amoxi_py.surfaces.mcp.flights import request_key

pytestmark = pytest.mark.anyio

BOTH = {"accept": "application/json, text/event-stream"}
SESSION = {"mcp-session-id": "s1"}
NEWEST = {**SESSION, "mcp-protocol-version": "2025-11-25"}
LAPTOP = "laptop-token-0123456789"
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


@tool(idempotent=True)
async def work_fast() -> str:
    """Do fast work."""
    return "worked"


@tool(read_only=True)
async def watch() -> str:
    """Watch."""
    await release.wait()
    return "seen"


@agent(tools=[work])
class Worker:
    """You work."""
'''


def call(name: str, arguments: Any = None, **meta: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments or {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": "seven", "method": "tools/call", "params": params}


CALLS = {"work": call("work"), "ask_worker": call("ask_worker", {"message": "Do slow work"})}
WITHDRAWN = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "seven"}}


def event_of(block: str) -> dict[str, str]:
    """Return the fields of one event."""
    return dict(line.split(":", 1) for line in block.splitlines() if line and not line.startswith(":"))


def messages_in(text: str) -> list[Any]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


class Reading:
    """An answer that is read as its events arrive."""

    def __init__(self, answer: Any) -> None:
        self._pieces = answer.aiter_text()
        self._text = ""

    async def event(self) -> dict[str, str]:
        """Return the next event, which ends with an empty line."""
        while True:
            whole, ended, rest = self._text.replace("\r\n", "\n").partition("\n\n")
            if ended:
                self._text = rest
                if event := event_of(whole):
                    return event
            else:
                self._text += await asyncio.wait_for(anext(self._pieces), 30)


async def cut_off(http: Any, message: Any, **headers: str) -> dict[str, str]:
    """Make a call, leave after its first event, and return that."""
    async with http.stream("POST", "/mcp", json=message, headers={**BOTH, **NEWEST, **headers}) as answer:
        return await Reading(answer).event()


async def cut_off_again(http: Any, event: dict[str, str]) -> dict[str, str]:
    """Ask for the rest of an answer, leave after its first event, and return that."""
    headers = {"accept": "text/event-stream", "last-event-id": event["id"].strip(), **NEWEST}
    async with http.stream("GET", "/mcp", headers=headers) as answer:
        return await Reading(answer).event()


def rest(http: Any, event: dict[str, str], **headers: str) -> asyncio.Task[Any]:
    """Ask for the rest of an answer."""
    given = {"accept": "text/event-stream", "last-event-id": event["id"].strip().encode("latin-1"), **NEWEST, **headers}
    return asyncio.create_task(http.get("/mcp", headers=given))


def text_in(answer: Any) -> str:
    """Return the text of the one response that an answer holds."""
    assert answer.status_code == 200, answer.text
    (response,) = [message for message in messages_in(answer.text) if "id" in message]
    assert response["id"] == "seven"
    return str(response["result"]["content"][0]["text"])


@pytest.mark.parametrize("name", CALLS)
async def test_the_rest_of_an_answer_comes_from_another_server_once_and_the_call_was_made_once(
    mcp_app: Any, until: Any, name: str
) -> None:
    async with (
        mcp_app(SOURCE) as first,
        mcp_app(SOURCE, {"ai.runs.worker": False}) as second,
        first.http() as http,
        second.http() as elsewhere,
    ):
        event = await cut_off(http, CALLS[name])
        assert {**event, "id": ""} == {"id": "", "retry": " 2000", "data": ""}
        again = await cut_off_again(elsewhere, event)
        assert again["id"] != event["id"], "the rest can be cut off too"
        whole = rest(elsewhere, again)
        await until(lambda: first.module.story == ["begun"])
        first.module.release.set()
        assert "worked" in text_in(await whole)
        assert "worked" in text_in(await rest(http, event)), "it is there for who has not read it"
        assert first.module.story == ["begun"]
        assert len((await first.serving.runs.list(limit=10)).items) == 1


async def test_the_rest_of_an_answer_comes_after_a_restart(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        events = [await cut_off(http, message) for message in CALLS.values()]
    async with mcp_app(SOURCE) as app, app.http() as http:
        answers = [rest(http, event) for event in events]
        await until(lambda: len(app.module.story) == 2)
        app.module.release.set()
        assert ["worked" in text_in(await answer) for answer in answers] == [True, True]


async def test_an_event_id_of_another_caller_an_old_one_and_an_invented_one_are_unknown(
    mcp_app: Any, monkeypatch: Any
) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http, app.http(LAPTOP) as other:
        event = await cut_off(http, call("work"))
        given = event["id"].strip()
        changed = f"{'A' if given[0] != 'A' else 'B'}{given[1:]}"
        for unknown in (changed, given[:-4], f"{given}AAAA", "1", "é", "run_01a22b64d67968ff77169d288f", "A" * 5000):
            answer = await rest(http, {"id": unknown})
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), unknown
        foreign = await rest(other, event)
        assert (foreign.status_code, foreign.json()) == (404, answer.json())
        bookmarks: Bookmarks = app.serving.mcp.serving.bookmarks
        now = bookmarks.now()
        monkeypatch.setattr(bookmarks, "now", lambda: now + 86_460)
        assert (await rest(http, event)).status_code == 404
        monkeypatch.undo()
        app.module.release.set()
        assert text_in(await rest(http, event)) == "worked"


async def test_nothing_else_is_had_with_get(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, marked_after=0.0) as app, app.http() as http, app.http(None) as stranger:
        event = await cut_off(http, call("work"))
        assert (await http.get("/mcp", headers={"accept": "text/event-stream", **NEWEST})).status_code == 405
        for headers in ({"mcp-protocol-version": "2026-07-28"}, {"accept": "application/json"}):
            assert (await rest(http, event, **headers)).status_code == 405
        assert (await rest(stranger, event)).status_code == 401
        app.module.release.set()


async def test_an_answer_that_comes_soon_is_not_marked_and_neither_is_one_that_needs_no_run(mcp_app: Any) -> None:
    async with mcp_app(SOURCE, marked_after=0.0) as app, app.http() as http:
        watched = asyncio.create_task(http.post("/mcp", json=call("watch"), headers={**BOTH, **NEWEST}))
        app.module.release.set()
        assert "\nid:" not in (await watched).text
    async with mcp_app(SOURCE, marked_after=20.0) as app, app.http() as http:
        answer = await http.post("/mcp", json=call("work_fast"), headers={**BOTH, **NEWEST})
        assert text_in(answer) == "worked"
        assert "id:" not in answer.text.replace('"id":', "")


async def test_progress_is_told_after_the_mark_and_goes_on_in_the_rest_with_higher_numbers(
    mcp_app: Any, until: Any
) -> None:
    def numbers_in(messages: list[Any]) -> list[float]:
        progress = [message["params"] for message in messages if message.get("method") == "notifications/progress"]
        assert {params["progressToken"] for params in progress} <= {"p1"}
        return [params["progress"] for params in progress]

    async with mcp_app(SOURCE, marked_after=20.0) as app, app.http() as http:
        headers = {**BOTH, **NEWEST}
        async with http.stream("POST", "/mcp", json=call("work", progressToken="p1"), headers=headers) as answer:
            reading = Reading(answer)
            mark, first, second = [await reading.event() for _ in range(3)]
        assert (mark["data"], "id" in mark) == ("", True)
        before = numbers_in([json.loads(event["data"]) for event in (first, second)])
        answer = rest(http, mark)
        await until(lambda: any(flight.run_id for flight in app.serving.mcp.serving.answering.flights._all))
        app.module.release.set()
        whole = await answer
        assert text_in(whole) == "worked"
        numbers = [*before, *numbers_in(messages_in(whole.text))]
        assert len(numbers) > 2
        assert numbers == sorted(set(numbers))


async def test_a_call_whose_answer_is_gone_on_with_can_still_be_withdrawn(mcp_app: Any, until: Any) -> None:
    async with mcp_app(SOURCE, remembered_after=0.0) as app, app.http() as http:
        flights = app.serving.mcp.serving.answering.flights
        event = await cut_off(http, call("work"))
        await until(lambda: not flights._all)
        both = [rest(http, event), rest(http, event)]  # of the first one it is not known here that it was cut off
        await until(lambda: sum(flight.run_id is not None for flight in flights._all) == 2)
        await http.post("/mcp", json=WITHDRAWN, headers={**BOTH, **NEWEST})
        for answer in both:
            (message,) = messages_in((await answer).text)
            assert (message["id"], message["error"]["code"]) == ("seven", -32800)
        await until(lambda: "cancelled" in app.module.story)
        (run,) = (await app.serving.runs.list(limit=10)).items
        assert run.status == "cancelled"


async def test_an_agent_answers_in_the_time_that_it_has_from_the_beginning_of_the_call_and_is_withdrawn_too_late_then(
    mcp_app: Any, until: Any, monkeypatch: Any
) -> None:
    async with mcp_app(SOURCE, remembered_after=0.0, answer_within=3600.0) as app, app.http() as http:
        event = await cut_off(http, CALLS["ask_worker"])

        async def noted() -> bool:
            (run,) = (await app.serving.runs.list(limit=10)).items
            key = request_key(run.principal, "s1", "seven")
            return await app.serving.runtime.store.find_record("mcp.request", key) is not None

        await until(noted)
        bookmarks = app.serving.mcp.serving.bookmarks
        now = bookmarks.now()
        monkeypatch.setattr(bookmarks, "now", lambda: now + 3601)
        assert "still working" in text_in(await rest(http, event))
        await http.post("/mcp", json=WITHDRAWN, headers={**BOTH, **NEWEST})
        (run,) = (await app.serving.runs.list(limit=10)).items
        assert run.status == "running"
        app.module.release.set()


async def test_a_mark_has_a_type_for_clients_that_would_take_it_for_a_message(mcp_app: Any) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        for version, type_ in (("2025-11-25", None), ("2025-06-18", " bookmark"), (None, " bookmark")):
            headers = {**BOTH, **({} if version is None else {"mcp-protocol-version": version})}
            async with http.stream("POST", "/mcp", json=call("work"), headers=headers) as answer:
                event = await Reading(answer).event()
            assert (event.get("event"), event["data"]) == (type_, ""), version
        app.module.release.set()


async def test_the_sdks_client_goes_on_by_itself_when_its_answers_are_cut_off(mcp_app: Any) -> None:
    cuts = 0

    def cutting(app: Any) -> Any:
        async def cut(scope: Any, receive: Any, send: Any) -> None:
            gone = asyncio.Event()

            async def send_until_marked(message: Any) -> None:
                nonlocal cuts
                if gone.is_set():
                    return
                marked = b"retry:" in message.get("body", b"") and cuts < 2
                if marked:
                    cuts += 1
                    gone.set()
                    message = {**message, "more_body": False}
                await send(message)

            async def receive_or_gone() -> Any:
                received = asyncio.ensure_future(receive())
                left = asyncio.ensure_future(gone.wait())
                try:
                    await asyncio.wait({received, left}, return_when=asyncio.FIRST_COMPLETED)
                    return received.result() if received.done() else {"type": "http.disconnect"}
                finally:
                    received.cancel()
                    left.cancel()

            await app(scope, receive_or_gone, send_until_marked)

        return cut

    async with mcp_app(SOURCE, retry_after=0.0) as app:
        app.wire = type(app.wire)(cutting(app.app))
        async with app.client("legacy") as client:
            calling = asyncio.create_task(client.call_tool("work", {}))
            async with asyncio.timeout(30):
                while cuts < 2:
                    await asyncio.sleep(0.005)
            app.module.release.set()
            result = await asyncio.wait_for(calling, 30)
            assert (result.is_error, result.content[0].text) == (False, "worked")
        assert app.module.story == ["begun"]
