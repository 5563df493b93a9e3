"""How answers come: whole, or in a stream that begins before the result; and it is noticed when a client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.responses import Response

from amoxi_py.surfaces.mcp import answer_streams

pytestmark = pytest.mark.anyio

BOTH = {"accept": "application/json, text/event-stream"}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "watch"}
OLDER = {"mcp-protocol-version": "2025-11-25"}
PING = ": ping\r\n\r\n"
SOURCE = '''
import asyncio

from amoxi_py import tool

release = asyncio.Event()
story = []


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
'''
MIDDLEWARE = """

from amoxi_py import configure


@configure
def pass_on(app):
    @app.middleware("http")
    async def through(request, call_next):
        return await call_next(request)
"""


def call(version: dict[str, str], **meta: Any) -> dict[str, Any]:
    if version is MODERN:
        meta |= {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    params = {"name": "watch", "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def text_in(message: str) -> str:
    return str(json.loads(message)["result"]["content"][0]["text"])


async def has(text: str, pieces: AsyncIterator[str]) -> str:
    """Return what was read until there was this text in it."""
    read = ""
    while text not in read:
        read += await asyncio.wait_for(anext(pieces), 60)
    return read


async def test_silence_before_a_result_is_broken_again_and_again_and_the_result_is_then_the_last_event(
    mcp_app: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(answer_streams, "_SILENCE_S", 0.01)
    async with mcp_app(SOURCE) as app, app.http() as http:
        for version in (MODERN, OLDER):
            app.module.release.clear()
            headers = {**BOTH, **version}
            async with http.stream("POST", "/mcp", json=call(version), headers=headers) as answer:
                pieces = answer.aiter_text()
                read = await has(PING * 2, pieces)
                app.module.release.set()
                read += "".join([piece async for piece in pieces])
            assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
            silence, _, last = read.rpartition(PING)
            assert silence.replace(PING, "") == ""
            kind, _, data = last.removesuffix("\r\n\r\n").partition("\r\n")
            assert (kind, text_in(data.removeprefix("data: "))) == ("event: message", "seen")


async def test_a_client_of_an_older_version_has_the_beginning_of_its_answer_while_the_call_goes_on(
    mcp_app: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(answer_streams, "_SILENCE_S", 3600.0)
    async with (
        mcp_app(SOURCE) as app,
        app.http() as http,
        asyncio.timeout(60),
        http.stream("POST", "/mcp", json=call(OLDER), headers={**BOTH, **OLDER}) as answer,
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream")
        assert not app.module.release.is_set()
        app.module.release.set()
        assert "seen" in "".join([piece async for piece in answer.aiter_text()])


@pytest.mark.parametrize("version", [MODERN, OLDER])
async def test_a_client_that_takes_json_alone_hears_nothing_before_the_result(
    mcp_app: Any, until: Any, monkeypatch: Any, version: dict[str, str]
) -> None:
    told: list[bytes] = []
    tell = answer_streams.Answer.tell

    async def telling(answer: Any, event: bytes) -> None:
        told.append(event)
        await tell(answer, event)

    monkeypatch.setattr(answer_streams.Answer, "tell", telling)
    monkeypatch.setattr(answer_streams, "_SILENCE_S", 0.0)
    async with mcp_app(SOURCE) as app, app.http() as http:
        headers = {"accept": "application/json", **version}
        request = asyncio.create_task(http.post("/mcp", json=call(version), headers=headers))
        await until(lambda: told)
        app.module.release.set()
        answer = await request
        assert (answer.headers["content-type"], text_in(answer.text)) == ("application/json", "seen")


@pytest.mark.parametrize("version", [MODERN, OLDER])
@pytest.mark.parametrize("token", [{}, {"progressToken": "p1"}])
@pytest.mark.parametrize("accept", [BOTH["accept"], "application/json"])
async def test_a_call_that_only_reads_ends_when_its_client_leaves(
    mcp_app: Any, until: Any, version: dict[str, str], token: dict[str, str], accept: str
) -> None:
    async with mcp_app(SOURCE) as app, app.http() as http:
        headers = {**version, "accept": accept}
        request = asyncio.create_task(http.post("/mcp", json=call(version, **token), headers=headers))
        await until(lambda: app.module.story)
        request.cancel()
        await until(lambda: app.module.story == ["watching", "watched no more"])


class Sent:
    """What a server has got of one answer, from which the client leaves when it is told so; `fail` is met by each."""

    def __init__(self, fail: type[Exception] | None = None) -> None:
        self.messages: list[Any] = []
        self.left = asyncio.Event()
        self._fail = fail

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(message)
        if self._fail is not None:
            raise self._fail

    def answer(self, *, always_events: bool) -> answer_streams.Answer:
        return answer_streams.Answer(self.receive, self.send, takes_events=True, always_events=always_events)

    @property
    def starts(self) -> list[int]:
        return [message["status"] for message in self.messages if message["type"] == "http.response.start"]


async def wait_for_ever(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await asyncio.Event().wait()


async def test_what_is_refused_is_never_an_event_however_long_it_took_to_come_to_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(answer_streams, "_MOMENT_S", 0.0)
    sent = Sent()

    async def refuse(scope: Any, receive: Any, send: Any) -> None:
        for _ in range(20):  # other work is in the way
            await asyncio.sleep(0)
        await receive()
        await Response(status_code=202)(scope, receive, send)

    await sent.answer(always_events=True).make(refuse, {"type": "http"}, b"{}")
    assert sent.starts == [202]


async def test_an_answer_begins_with_headers_and_no_comment_at_which_some_clients_fail(
    until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(answer_streams, "_MOMENT_S", 0.0)
    sent = Sent()
    made = asyncio.create_task(sent.answer(always_events=True).make(wait_for_ever, {"type": "http"}, b"{}"))
    await until(lambda: len(sent.messages) == 2)
    assert sent.starts == [200]
    assert sent.messages[1] == {"type": "http.response.body", "body": b"", "more_body": True}
    sent.left.set()
    await made


async def test_who_leaves_before_the_answer_begins_leaves_one_behind_that_middleware_can_pass_on(
    monkeypatch: Any,
) -> None:
    monkeypatch.setattr(answer_streams, "_MOMENT_S", 0.0)
    sent = Sent()
    answer = sent.answer(always_events=False)
    sent.left.set()
    await answer.make(wait_for_ever, {"type": "http"}, b"{}")
    assert sent.starts == [499]
    assert sent.messages[-1] == {"type": "http.response.body", "body": b""}
    await answer.tell(b"late")
    assert len(sent.messages) == 2, "nothing is told any more"


@pytest.mark.parametrize("read", [False, True])
async def test_a_client_that_leaves_is_no_error_of_an_app_with_a_middleware(
    mcp_app: Any, until: Any, read: bool
) -> None:
    async with mcp_app(SOURCE + MIDDLEWARE) as app, app.http() as http:
        request = http.build_request("POST", "/mcp", json=call(MODERN), headers={**BOTH, **MODERN})
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
        }
        pieces = [{"type": "http.request", "body": request.content, "more_body": not read}]
        sent = Sent()

        async def receive() -> dict[str, Any]:
            return pieces.pop() if pieces else await sent.receive()

        served = asyncio.create_task(app.app(scope, receive, sent.send))
        await until(lambda: not pieces and (not read or app.module.story))
        sent.left.set()
        await served
        assert sent.starts == [499 if read else 400]


async def test_an_answer_whose_first_event_is_cancelled_on_its_way_begins_once_and_ends() -> None:
    sent, blocked = Sent(), asyncio.Event()

    async def send(message: Any) -> None:
        if not blocked.is_set():
            blocked.set()
            await asyncio.Event().wait()
        await sent.send(message)

    answer = answer_streams.Answer(sent.receive, send, takes_events=True, always_events=False)

    async def tell_and_end(scope: Any, receive: Any, send: Any) -> None:
        telling = asyncio.create_task(answer.tell(b"first"))
        await blocked.wait()
        telling.cancel()
        await asyncio.wait({telling})
        await answer.tell(b"second")
        await Response("{}")(scope, receive, send)

    await answer.make(tell_and_end, {"type": "http"}, b"{}")
    assert sent.starts == [200]
    assert [message["body"] for message in sent.messages[1:]] == [b"second", answer_streams.message_event(b"{}")]


async def test_a_server_that_says_by_an_error_that_the_client_has_left_fails_nothing() -> None:
    sent = Sent(ConnectionResetError)
    answer = sent.answer(always_events=False)

    async def tell_and_end(scope: Any, receive: Any, send: Any) -> None:
        await answer.tell(b"first")
        await Response("{}")(scope, receive, send)

    await answer.make(tell_and_end, {"type": "http"}, b"{}")
    assert sent.starts == [200]


async def test_an_answer_whose_client_leaves_just_when_it_begins_is_seen_to_begin_once(
    until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(answer_streams, "_MOMENT_S", 0.0)
    sent, held = Sent(), asyncio.Event()

    async def send(message: Any) -> None:
        if not held.is_set():
            held.set()
            await asyncio.Event().wait()
        await sent.send(message)

    answer = answer_streams.Answer(sent.receive, send, takes_events=True, always_events=False)

    async def end(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await Response("{}")(scope, receive, send)

    made = asyncio.create_task(answer.make(end, {"type": "http"}, b"{}"))
    await until(held.is_set)
    sent.left.set()
    await made
    assert sent.starts == [499]


async def test_an_answer_is_not_over_while_something_is_being_told(until: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(answer_streams, "_MOMENT_S", 0.0)
    sent, release, story = Sent(), asyncio.Event(), []

    async def send(message: Any) -> None:
        await sent.send(message)
        if message.get("more_body"):
            await release.wait()
            story.append("told")

    answer = answer_streams.Answer(sent.receive, send, takes_events=True, always_events=False)

    async def tell(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        telling = asyncio.create_task(answer.tell(b"first"))
        try:
            await asyncio.wait({telling})
        finally:
            story.append("left")

    made = asyncio.create_task(answer.make(tell, {"type": "http"}, b"{}"))
    made.add_done_callback(lambda _: story.append("over"))
    await until(lambda: len(sent.messages) == 2)
    sent.left.set()
    await until(lambda: story)
    for _ in range(10):
        await asyncio.sleep(0)
    release.set()
    await made
    assert story == ["left", "told", "over"]
