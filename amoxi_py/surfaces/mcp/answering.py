"""How a call is answered whatever happens: its client withdraws it or leaves, the server stops, the store is away.

A client of 2026-07-28 that leaves withdraws its request, and with it the run that the request started. One of an older
version withdraws by a notification, which may come to another server; when it merely leaves, the run goes on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import mcp_types as wire
from mcp.server.streamable_http import REQUEST_CANCELLED
from mcp.shared.exceptions import MCPError

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import AmoxiError, ArgumentsInvalid, NotFound, StoreUnavailable, TooMany
from amoxi_py.ports.records import Record, RecordStore
from amoxi_py.surfaces.mcp.contents import RUN_ID, Reply, failure
from amoxi_py.surfaces.mcp.flights import Flight, Flights
from amoxi_py.surfaces.mcp.requests import ToolRequest, unknown_tool
from amoxi_py.surfaces.mcp.settings import McpSettings

log = logging.getLogger("amoxi_py.mcp")

Work = Callable[[Flight], Awaitable[Reply]]
GoesOn = Callable[[str], str]

_REQUEST = "mcp.request"
_REQUEST_KEPT_S = 3600.0
_WITHDRAWN = "mcp.withdrawn"
_WITHDRAWN_KEPT_S = 60.0
_SHORTEST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_LAST_MOMENTS_S = 2.0
_STORE_AWAY = "The server cannot read or write its store now"


class Answering:
    """Answers the calls of one life of a server."""

    def __init__(self, engine: Engine, records: RecordStore, settings: McpSettings) -> None:
        self.flights = Flights()
        self._engine = engine
        self._records = records
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, request: ToolRequest, work: Work, *, linger: float, goes_on: GoesOn) -> Reply:
        """Return the result of a call.

        Args:
            request: The call.
            work: Does it; what it raises of ours is told to the model.
            linger: How long it may go on after the server has begun to stop.
            goes_on: Says of a run, by its id, that it goes on, and how to come by what it brings.

        Raises:
            MCPError: there is no such tool, the client has withdrawn the request, or something of ours is broken.
        """
        flight = self.flights.enter(request.key, linger)
        try:
            with flight.scope:
                reply = await work(flight)
                await self._forget(flight, request)
                return reply
            if flight.reason == "stopping":
                await self._forget(flight, request)
                return _stopping(flight, goes_on)
            self._cancel_soon(flight, request.principal)
            raise MCPError(REQUEST_CANCELLED, "Request cancelled")
        except asyncio.CancelledError:
            if request.modern and not self.flights.closed:
                self._cancel_soon(flight, request.principal)
            raise
        except AmoxiError as error:
            return _told(error, request, flight, goes_on)
        except MCPError:
            raise
        except Exception as error:  # the surface's boundary
            log.exception("a call of %r failed", request.name)
            raise _broken(flight, goes_on) from error
        finally:
            self.flights.leave(request.key, flight)

    def began(self, flight: Flight, request: ToolRequest, run_id: str, *, started: bool) -> None:
        """Note the run of a request; when it takes its time, its client and all servers can know which one it is."""
        flight.run_id, flight.started = run_id, started
        if request.stream is not None:
            flight.timer = self._loop.call_later(self._settings.marked_after, self._mark_soon, flight, request)
        else:
            self._remember_later(flight, request, self._settings.remembered_after)

    async def mark(self, request: ToolRequest, flight: Flight) -> None:
        """Let the client know from where it can go on, should the answer be cut off."""
        stream = request.stream
        if stream is not None and request.id is not None and flight.run_id is not None:
            await stream.mark(
                request.principal,
                run_id=flight.run_id,
                started=flight.started,
                tool=request.name,
                request_id=request.id,
                progress_token=request.progress_token,
            )

    def began_at_once(self, flight: Flight, request: ToolRequest) -> None:
        """Look, when a request without a run takes its time, whether its client has withdrawn it at another server."""
        if request.key is not None:
            after = self._settings.remembered_after
            flight.timer = self._loop.call_later(after, self._look_soon, flight, request.key, after)

    async def withdraw(self, key: str, principal: Principal) -> None:
        """End a request in the name of its client, on whatever server it is being answered."""
        if self.flights.withdraw(key):
            return
        expires_at = self._engine.now() + _WITHDRAWN_KEPT_S
        withdrawn = Record(kind=_WITHDRAWN, key=key, content="null", expires_at=expires_at)
        try:
            await self._records.keep_record(withdrawn)  # first: who notes a request looks for it after that
            record = await self._records.find_record(_REQUEST, key)
            if record is not None:
                await self._engine.cancel(decode_json(record.content)["run_id"], principal)
        except NotFound:
            pass
        except AmoxiError as error:
            log.warning("a request that its client has withdrawn goes on: %s", error)

    async def finish(self) -> None:
        """Let what was begun in the background end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_MOMENTS_S)

    def _cancel_soon(self, flight: Flight, principal: Principal) -> None:
        if flight.started and flight.run_id is not None:
            self._spawn(self._cancel(flight.run_id, principal))

    async def _cancel(self, run_id: str, principal: Principal) -> None:
        try:
            await self._engine.cancel(run_id, principal)
        except AmoxiError as error:
            log.warning("the run %s, which its client has withdrawn, goes on: %s", run_id, error)

    def _mark_soon(self, flight: Flight, request: ToolRequest) -> None:
        if self.flights.has(flight) and not self.flights.closed:
            self._spawn(self.mark(request, flight))
            self._remember_later(flight, request, self._settings.remembered_after - self._settings.marked_after)

    def _remember_later(self, flight: Flight, request: ToolRequest, after: float) -> None:
        if flight.started and request.key is not None:
            flight.timer = self._loop.call_later(max(after, 0.0), self._remember, flight, request.key)

    def _remember(self, flight: Flight, key: str) -> None:
        if self.flights.has(flight) and not self.flights.closed:
            flight.noting = self._spawn(self._note(flight, key))

    async def _note(self, flight: Flight, key: str) -> None:
        record = Record(
            kind=_REQUEST,
            key=key,
            group=flight.run_id,
            content=encode_json({"run_id": flight.run_id}),
            expires_at=self._engine.now() + _REQUEST_KEPT_S,
        )
        try:
            await self._records.keep_record(record)
            if await self._records.find_record(_WITHDRAWN, key) is not None:
                flight.end("withdrawn")
        except AmoxiError as error:
            log.warning("other servers will not know the request of the run %s: %s", flight.run_id, error)

    async def _forget(self, flight: Flight, request: ToolRequest) -> None:
        """Let nobody know any more which run a request was about: who withdraws what was answered ends nothing."""
        if request.key is None or (flight.noting is None and not request.taken_up):
            return
        if flight.noting is not None:
            await flight.noting
        try:
            await self._records.take_record(_REQUEST, request.key)
        except AmoxiError as error:
            log.warning(
                "the request of the run %s, which is answered, can still be withdrawn: %s", flight.run_id, error
            )

    def _look_soon(self, flight: Flight, key: str, pause: float) -> None:
        if self.flights.has(flight) and not self.flights.closed:
            self._spawn(self._look(flight, key, pause))

    async def _look(self, flight: Flight, key: str, pause: float) -> None:
        try:
            if await self._records.find_record(_WITHDRAWN, key) is not None:
                flight.end("withdrawn")
                return
        except AmoxiError as error:
            log.warning("whether a client has withdrawn its request cannot be seen now: %s", error)
        pause = min(max(2 * pause, _SHORTEST_PAUSE_S), _LONGEST_PAUSE_S)
        flight.timer = self._loop.call_later(pause, self._look_soon, flight, key, pause)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _stopping(flight: Flight, goes_on: GoesOn) -> wire.CallToolResult:
    if flight.run_id is None:
        return failure("The server is stopping, and nothing was done; call again in a moment.")
    return failure(f"The server is stopping. {goes_on(flight.run_id)}", flight.run_id)


def _broken(flight: Flight, goes_on: GoesOn) -> MCPError:
    text = "the server failed; it has been logged"
    if flight.run_id is None:
        return MCPError(wire.INTERNAL_ERROR, text)
    return MCPError(wire.INTERNAL_ERROR, f"{text}. {goes_on(flight.run_id)}", data={RUN_ID: flight.run_id})


def _told(error: AmoxiError, request: ToolRequest, flight: Flight, goes_on: GoesOn) -> wire.CallToolResult:
    """Return what a model is told of an error; raise `MCPError` for a tool that the caller does not have."""
    if isinstance(error, NotFound) and error.kind in ("tool", "agent"):
        raise unknown_tool(request.name)
    if isinstance(error, ArgumentsInvalid):
        return failure(f"The arguments do not fit: {error}. Nothing was done; correct them.")
    if isinstance(error, StoreUnavailable):
        log.warning("the store cannot be used: %s", error)
        if flight.run_id is not None:
            return failure(f"{_STORE_AWAY}. {goes_on(flight.run_id)}", flight.run_id)
        if flight.submitting:
            return failure(f"{_STORE_AWAY}: it is not known whether the call began. Look before you call it again.")
        return failure(f"{_STORE_AWAY}; call again in a moment.")
    if isinstance(error, TooMany):
        again = max(1, math.ceil(error.retry_after))
        return failure(f"Not now: {error}. Nothing was done; call again in {again} s.")
    return failure(f"This cannot be done: {error}.", flight.run_id)
