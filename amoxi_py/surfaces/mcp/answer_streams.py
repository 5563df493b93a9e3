"""Answers on their way out: JSON in one piece, or a stream of events of which the last one is the result.

The SDK makes each answer as JSON, for which it sets up the least. Clients of 2026-07-28 get it so, until something is
to be told before the result; older ones have always got streams. Who waits for more than a moment is looked after: it
is noticed when the client leaves, which nobody else does then, and silence is broken before something on the way ends
the connection.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amoxi_py.surfaces.closing import client_left
from amoxi_py.surfaces.problem import CLIENT_LEFT

ANSWER = "amoxi.mcp.answer"
"""Where it is in the scope of a request."""

_MOMENT_S = 0.02
_SILENCE_S = 15.0
_PING = b": ping\r\n\r\n"
_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


def message_event(message: bytes) -> bytes:
    """Return a message of the protocol, which is one line, as an event."""
    return b"event: message\r\ndata: %s\r\n\r\n" % message


class Answer:
    """One answer.

    Args:
        receive: Tells when the client leaves.
        send: Sends it.
        takes_events: Whether the client takes a stream of events.
        always_events: Whether it gets one in any case.
    """

    def __init__(self, receive: Receive, send: Send, *, takes_events: bool, always_events: bool) -> None:
        self._receive = receive
        self._send_to_client = send
        self._takes_events = takes_events
        self._always_events = always_events
        self._scope = anyio.CancelScope()
        self._sending = asyncio.Lock()
        self._begun = False
        self._streams = False
        self._ends = False
        self._timer: asyncio.TimerHandle | None = None
        self._care: asyncio.Task[None] | None = None

    async def make(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        """Let an app, which answers in JSON, answer a request whose body was read already.

        What it does not take it refuses as soon as it has the body, so that a stream never begins before that.
        """

        async def receive() -> Message:
            if self._timer is not None:
                await anyio.sleep_forever()
            self._timer = asyncio.get_running_loop().call_later(_MOMENT_S, self._look_after_soon)
            return {"type": "http.request", "body": body, "more_body": False}

        try:
            with self._scope:
                await app({**scope, ANSWER: self}, receive, self._pass_on)
            async with self._sending:  # what is being told is not cut off by what is around the app
                if not self._begun:  # nobody is there, but that wants to see an answer
                    await self._send({"type": "http.response.start", "status": CLIENT_LEFT, "headers": []})
                    await self._send({"type": "http.response.body", "body": b""})
        finally:
            self._ends = True
            for one in (self._timer, self._care):
                if one is not None:
                    one.cancel()

    async def tell(self, event: bytes) -> None:
        """Send an event before the result; to who takes none, has the result already or has left, nothing is sent."""
        async with self._sending:
            if self._takes_events and not self._ends:
                await self._begin_stream()
                await self._send({"type": "http.response.body", "body": event, "more_body": True})

    async def _pass_on(self, message: Message) -> None:
        async with self._sending:
            self._ends = True
            if message["type"] != "http.response.start":
                if self._streams:
                    message = {"type": "http.response.body", "body": message_event(message["body"])}
                await self._send(message)
            elif self._always_events and message["status"] == 200:
                await self._begin_stream()
            elif not self._streams:
                await self._send(message)
                self._begun = True

    async def _begin_stream(self) -> None:
        if not self._streams:
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            self._begun = self._streams = True  # not before: who sends may be cancelled

    async def _send(self, message: Message) -> None:
        with suppress(OSError):  # how servers may say that the client has left
            await self._send_to_client(message)

    def _look_after_soon(self) -> None:
        self._care = asyncio.get_running_loop().create_task(self._look_after())

    async def _look_after(self) -> None:
        leaving = asyncio.get_running_loop().create_task(client_left(self._receive))
        try:
            if self._always_events:
                await self.tell(b"")  # its headers alone: clients with the SDK for Java fail at a comment
            while not (await asyncio.wait({leaving}, timeout=_SILENCE_S))[0]:
                await self.tell(_PING)
            self._scope.cancel()
        finally:
            leaving.cancel()
