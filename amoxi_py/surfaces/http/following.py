"""From a request that follows a log to its answer: a stream of events, or 204 when there is nothing more to come."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.engine.streams import EventStream
from amoxi_py.surfaces.http.door import Door, principal_of
from amoxi_py.surfaces.http.sse import EventStreamResponse


async def events_answer(
    door: Door,
    request: Request,
    *,
    run_id: str | None = None,
    conversation_id: str | None = None,
    agent: str | None = None,
    after: int | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Return the events of a run or a conversation after a cursor; raise `NotFound`."""
    stream = await door.engine.follow(
        principal_of(request), run_id=run_id, conversation_id=conversation_id, agent=agent, after=after
    )
    return stream_answer(door, stream, headers=headers)


def stream_answer(door: Door, stream: EventStream, headers: dict[str, str] | None = None) -> Response:
    """Return the events of a stream, or 204 when nothing comes any more."""
    if stream.exhausted:
        return Response(status_code=204, headers={"cache-control": "no-store", **(headers or {})})
    return EventStreamResponse(stream, closing=door.closing, heartbeat=door.settings.heartbeat, headers=headers)
