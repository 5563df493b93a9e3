"""Streams of events that are not cut the moment the server begins to stop.

The library that the SDK streams with ends all streams of the process then. Ours have the whole stop for it: what
answers a call says in time that the run goes on. Streams that are not of this door end as they did before.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from mcp.server import streamable_http
from sse_starlette.sse import EventSourceResponse
from starlette.types import ASGIApp, Receive, Scope, Send

_grace: ContextVar[float] = ContextVar("grace of event streams", default=0.0)


class _PatientStream(EventSourceResponse):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"shutdown_grace_period": _grace.get(), **options})


def with_time_to_end(app: ASGIApp, grace: float) -> ASGIApp:
    """Return an app of the SDK whose streams may go on for that many seconds after the server has begun to stop."""
    streamable_http.EventSourceResponse = _PatientStream  # type: ignore[attr-defined]  # there is no setting for it

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        token = _grace.set(grace)
        try:
            await app(scope, receive, send)
        finally:
            _grace.reset(token)

    return handle
