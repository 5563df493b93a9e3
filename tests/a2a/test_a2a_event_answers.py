"""Answers that are streams: nothing is taken that their reader has not room for, and nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from sse_starlette.sse import AppStatus

from amoxi_py.surfaces.a2a.events import EventAnswer

pytestmark = pytest.mark.anyio
SCOPE = {"type": "http", "method": "POST", "headers": [], "asgi": {"spec_version": "2.3"}}


class Source:
    """Gives numbers without end, or ends or fails at one; knows how many were taken, and whether it was closed."""

    def __init__(self, fails_at: int | None = None, ends_at: int | None = None) -> None:
        self.taken = 0
        self.closed = False
        self._fails_at = fails_at
        self._ends_at = ends_at

    async def values(self) -> AsyncGenerator[Any, None]:
        try:
            while self.taken != self._ends_at:
                await asyncio.sleep(0)
                if self.taken == self._fails_at:
                    raise RuntimeError("canary")
                self.taken += 1
                yield {"n": self.taken, "text": "ä\u2028"}
        finally:
            self.closed = True


def answer(source: Source, *, names_errors: bool = True, grace: float = 1.0) -> EventAnswer:
    return EventAnswer(
        source.values(), tell=lambda error: {"error": 1}, names_errors=names_errors, heartbeat=15.0, grace=grace
    )


async def test_a_stream_has_the_time_of_the_stop_to_end_by_itself(monkeypatch: Any) -> None:
    monkeypatch.setattr(AppStatus, "should_exit", True)
    for grace, whole in ((20.0, True), (0.0, False)):
        source, sent = Source(ends_at=500), []

        async def send(message: Any, sent: list[Any] = sent) -> None:
            sent.append(message.get("body"))

        async with asyncio.timeout(20):
            await answer(source, grace=grace)(SCOPE, asyncio.Event().wait, send)
        assert (len([body for body in sent if body]) == 500) is whole
        assert source.closed


async def test_a_reader_that_takes_nothing_has_one_event_waiting_and_its_leave_ends_all() -> None:
    source, stuck, left = Source(), asyncio.Event(), asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            stuck.set()
            await asyncio.Event().wait()

    async def receive() -> Any:
        await left.wait()
        return {"type": "http.disconnect"}

    async with asyncio.timeout(20):
        answering = asyncio.create_task(answer(source)(SCOPE, receive, send))
        await stuck.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        assert source.taken == 1
        left.set()
        await answering
    assert source.closed


@pytest.mark.parametrize(("named", "before"), [(True, b"event: error\r\n"), (False, b"")])
async def test_an_error_in_between_is_the_last_event_and_tells_no_text(named: bool, before: bytes) -> None:
    source, sent = Source(fails_at=2), []

    async def send(message: Any) -> None:
        sent.append(message)

    async with asyncio.timeout(20):
        await answer(source, names_errors=named)(SCOPE, asyncio.Event().wait, send)
    bodies = [message["body"] for message in sent if message.get("body")]
    assert bodies[0] == b'data: {"n":1,"text":"\\u00e4\\u2028"}\r\n\r\n', "one line, in ASCII"
    assert bodies[-1] == before + b'data: {"error":1}\r\n\r\n'
    assert source.closed
    headers = dict(sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-store", b"no")
