"""One operation from its message to its answer, the same for all bindings and versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from google.protobuf.message import Message
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from amoxi_py.surfaces.a2a.operations import Json, Operation
from amoxi_py.surfaces.closing import client_left, end_task

_TIME_TO_ACCEPT_S = 5.0
_NO_MORE = object()


async def perform(
    operation: Operation, message: Message, handler: RequestHandler, context: ServerCallContext, receive: Receive
) -> Json:
    """Return the answer of an operation that has one.

    Raises:
        ClientDisconnect: the client has left. What was asked for goes on; a message had time to be accepted.
    """
    work = asyncio.ensure_future(operation.handle(handler)(message, context))
    watch = asyncio.create_task(client_left(receive))
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait({work}, timeout=_TIME_TO_ACCEPT_S)
        if not work.done():
            raise ClientDisconnect
        return operation.tell(work.result(), message)
    finally:
        await end_task(watch)
        await end_task(work)


async def begin(
    operation: Operation, message: Message, handler: RequestHandler, context: ServerCallContext
) -> AsyncGenerator[Json, None]:
    """Return what an operation streams, as soon as there is the first of it; what is wrong with it is raised here."""
    assert operation.tell_events is not None
    events = operation.handle(handler)(message, context)
    told = operation.tell_events(events)
    try:
        first = await anext(told, _NO_MORE)
    except BaseException:
        await _close(told, events)
        raise
    return _all_of(first, told, events)


async def _all_of(
    first: Any, told: AsyncGenerator[Json, None], events: AsyncGenerator[Any, None]
) -> AsyncGenerator[Json, None]:
    async with aclosing(events), aclosing(told):
        if first is not _NO_MORE:
            yield first
        async for value in told:
            yield value


async def _close(*generators: AsyncGenerator[Any, None]) -> None:
    for each in generators:
        await each.aclose()
