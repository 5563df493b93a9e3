"""Answers that are streams of events: each is sent when its reader has taken the one before, silence has heartbeats.

The library that writes them ends all streams of the process the moment the server begins to stop. Those of this door
have the grace of the stop: they end by themselves then.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send

from amoxi_py.domain.encoding import encode_json


class EventAnswer:
    """Streams values as JSON, one an event.

    Args:
        values: What is streamed; closed when the reader has left.
        tell: From an error in between to the last value, which says that it went wrong.
        names_errors: Whether that value comes as an event named `error`.
        heartbeat: The longest silence, in seconds.
        grace: How long it may go on after the server has begun to stop, in seconds.
    """

    def __init__(
        self,
        values: AsyncGenerator[Any, None],
        *,
        tell: Callable[[Exception], Any],
        names_errors: bool,
        heartbeat: float,
        grace: float,
    ) -> None:
        self._values = values
        self._tell = tell
        self._error_name = b"event: error\r\n" if names_errors else b""
        self._heartbeat = heartbeat
        self._grace = grace

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames()) as frames:
            answer = EventSourceResponse(frames, ping=self._heartbeat, shutdown_grace_period=self._grace)
            await answer(scope, receive, send)

    async def _frames(self) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._values) as values:
            try:
                async for value in values:
                    yield _frame(value)
            except Exception as error:  # noqa: BLE001 - the surface's boundary
                yield self._error_name + _frame(self._tell(error))


def _frame(value: Any) -> bytes:
    return f"data: {encode_json(value)}\r\n\r\n".encode("ascii")
