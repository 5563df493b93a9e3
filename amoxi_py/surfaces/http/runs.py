"""`/agents/{agent}/runs` and `/runs`: submit a message, read, follow and cancel the runs that came of it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.domain.run import Run
from amoxi_py.engine.log_facts import about
from amoxi_py.engine.streams import EventStream
from amoxi_py.surfaces.closing import end_task
from amoxi_py.surfaces.http.answers import RunJson, RunsJson, json_answer, run_json, runs_json
from amoxi_py.surfaces.http.bodies import SubmitBody
from amoxi_py.surfaces.http.door import Door, caller_of, principal_of
from amoxi_py.surfaces.http.following import events_answer, stream_answer
from amoxi_py.surfaces.http.problems import documented
from amoxi_py.surfaces.http.requests import (
    After,
    Cursor,
    Limit,
    RunId,
    body_digest,
    cursor_of_stream,
    idempotency_key,
    known_id,
    read_body,
    wants_events,
)
from amoxi_py.surfaces.http.schema import AGENT, EVENTS, IDEMPOTENCY_KEY, LAST_EVENT_ID, body_schema

Wait = Annotated[
    float | None, Query(ge=0, le=300, allow_inf_nan=False, description="Seconds to wait for the run's end.")
]
_ENDED = {"model": RunJson, "content": EVENTS[200]["content"]}


class RunRoutes:
    """The routes of runs."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def add_to(self, router: APIRouter) -> None:
        """Add the routes, under an agent and over all agents."""
        self._door.add(
            router,
            "/agents/{agent}/runs",
            self.submit,
            methods=["POST"],
            gated=True,
            status_code=202,
            tags=["runs"],
            operation_id="submit_run",
            response_model=RunJson,
            responses={
                **documented(401, 403, 404, 409, 413, 415, 422, 429, 503),
                200: {
                    "description": "With `wait`: the ended run. With `Accept: text/event-stream`: its events.",
                    **_ENDED,
                },
                204: {"description": "A stream was asked for, of a run that has ended, after its last event."},
            },
            openapi_extra={
                "parameters": [*AGENT["parameters"], IDEMPOTENCY_KEY],
                "requestBody": body_schema(SubmitBody),
            },
        )
        for path, name, extra in (("/agents/{agent}/runs", "agent_run", AGENT), ("/runs", "run", None)):
            self._add_reads(router, path, name, extra)

    def _add_reads(self, router: APIRouter, path: str, name: str, extra: dict[str, Any] | None) -> None:
        self._door.add(
            router,
            path,
            self.list_runs,
            tags=["runs"],
            operation_id=f"list_{name}s",
            response_model=RunsJson,
            responses=documented(401, 404, 422, 503),
            openapi_extra=extra,
        )
        self._door.add(
            router,
            path + "/{id}",
            self.get_run,
            tags=["runs"],
            operation_id=f"get_{name}",
            response_model=RunJson,
            responses=documented(401, 404, 422, 503),
            openapi_extra=extra,
        )
        self._door.add(
            router,
            path + "/{id}/events",
            self.follow,
            tags=["runs"],
            operation_id=f"follow_{name}",
            response_model=None,
            responses={**documented(401, 404, 422, 503), **EVENTS},
            openapi_extra={"parameters": [*(extra or {}).get("parameters", ()), LAST_EVENT_ID]},
        )
        self._door.add(
            router,
            path + "/{id}/cancel",
            self.cancel,
            methods=["POST"],
            tags=["runs"],
            operation_id=f"cancel_{name}",
            response_model=RunJson,
            responses=documented(401, 403, 404, 422, 503),
            openapi_extra=extra,
        )

    async def submit(self, request: Request, wait: Wait = None) -> Response:
        """Save a message as a run and return it at once; a worker executes it."""
        agent = self._door.agent_name(request)
        assert agent is not None, "the path names an agent"
        caller = caller_of(request)
        idempotency = idempotency_key(request)
        body = await read_body(request, SubmitBody, self._door.settings.max_body)
        asked: dict[str, Any] = {
            "principal": caller.principal,
            "conversation_id": None if body.conversation_id is None else known_id("conversation", body.conversation_id),
            "idempotency_key": idempotency,
            "files": tuple(known_id("file", file_id) for file_id in body.files),
            "digest": "" if idempotency is None else body_digest(body),
        }
        stream: EventStream | None = None
        after = cursor_of_stream(request) if wants_events(request) else None
        if wants_events(request) and after is None:
            submitted, stream = await self._door.engine.submit_followed(agent, body.message, **asked)
        else:
            submitted = await self._door.engine.submit(agent, body.message, **asked)
        about(run_id=submitted.run.id, conversation_id=submitted.run.conversation_id)
        location = {"location": f"{_base(request, self._door)}/agents/{agent}/runs/{submitted.run.id}"}
        if stream is not None:
            answer = stream_answer(self._door, stream, headers=location)
        elif wants_events(request):
            answer = await events_answer(self._door, request, run_id=submitted.run.id, after=after, headers=location)
        else:
            run = submitted.run if wait is None else await self._wait(request, submitted.run, wait)
            answer = json_answer(run_json(run), 200 if wait is not None and run.status.final else 202, location)
        self._door.authentication.welcome(request, caller, answer)
        return answer

    async def list_runs(self, request: Request, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """List the caller's runs, newest first."""
        agent = self._door.agent_name(request)
        page = await self._door.engine.list_runs(principal_of(request), agent, limit=limit, cursor=cursor)
        return json_answer(runs_json(page))

    async def get_run(self, request: Request, id: RunId) -> Response:
        """Return one run of the caller."""
        agent = self._door.agent_name(request)
        return json_answer(run_json(await self._door.engine.get_run(known_id("run", id), principal_of(request), agent)))

    async def follow(self, request: Request, id: RunId, after: After = None) -> Response:
        """Stream the run's events from the start, or after a cursor, until its end."""
        return await events_answer(
            self._door,
            request,
            run_id=known_id("run", id),
            agent=self._door.agent_name(request),
            after=cursor_of_stream(request, after),
        )

    async def cancel(self, request: Request, id: RunId) -> Response:
        """End a run now, and return it as it ended; one that had ended stays as it was."""
        agent = self._door.agent_name(request)
        return json_answer(run_json(await self._door.engine.cancel(known_id("run", id), principal_of(request), agent)))

    async def _wait(self, request: Request, run: Run, seconds: float) -> Run:
        """Return the run when it has ended, the time is over, the client has left or the server closes."""
        waiting = asyncio.create_task(
            self._door.engine.wait(run.id, principal_of(request), agent=run.agent, timeout=seconds)
        )
        try:
            async with self._door.closing.or_gone(request.receive) as gone:
                ends: set[asyncio.Future[Any]] = {waiting, gone}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else run
        finally:
            await end_task(waiting)


def _base(request: Request, door: Door) -> str:
    """Return what comes before our paths: the server's own root, then the prefix."""
    return f"{request.scope.get('root_path', '')}{door.settings.prefix}"
