"""The tasks extension: a run that takes its time is answered with as a task, which the client looks after.

The task is the run: it has the run's id, survives what the run survives, and any server of the app tells of it.
https://modelcontextprotocol.io/seps/2663-tasks-extension
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import mcp_types as wire
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.jsonrpc import HEADER_MISMATCH, METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import BaseModel, ValidationError

from amoxi_py.domain.event import time_text
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus, Waiting
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound, StoreUnavailable
from amoxi_py.surfaces.mcp.abilities import TASKS, Context, fills_forms, is_modern, takes_tasks
from amoxi_py.surfaces.mcp.contents import RUN_ID
from amoxi_py.surfaces.mcp.inputs import Inputs, Refused
from amoxi_py.surfaces.mcp.requests import principal_of

log = logging.getLogger("amoxi_py.mcp")

_TASK_ID = re.compile(r"run_[0-9a-f]{26}")
_SOONEST_POLL_MS = 500
_LATEST_POLL_MS = 5000
P = TypeVar("P", bound="TaskParams")
Work = Callable[[Context, P, Run], Awaitable[dict[str, Any]]]
Results = Callable[[Run, Principal], Awaitable[wire.CallToolResult | None]]
"""Gives what the plain call of an ended run would have answered; None where the caller has no such tool."""


class TaskParams(wire.RequestParams):
    """Names a task."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Names a task and holds what its client was asked for."""

    input_responses: dict[str, Any]


def created_task(run: Run, now: float) -> dict[str, Any]:
    """Return the answer to a call whose run goes on."""
    return {"resultType": "task", **_told(run, now, "working"), "_meta": {RUN_ID: run.id}}


class Tasks:
    """Tells of tasks, takes answers for them, and cancels them."""

    def __init__(self, engine: Engine, results: Results) -> None:
        self._engine = engine
        self._inputs = Inputs(engine)
        self._results = results

    def offer(self, server: Server[Any]) -> None:
        """Add the extension to the protocol's server."""
        server.extensions[TASKS] = {}
        server.add_request_handler("tasks/get", TaskParams, self.get)
        server.add_request_handler("tasks/update", TaskUpdateParams, self.update)
        server.add_request_handler("tasks/cancel", TaskParams, self.cancel)

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """Return a task as it is, with its result when it has ended."""
        return await self._answer(ctx, params, self._get)

    async def update(self, ctx: Context, params: TaskUpdateParams) -> dict[str, Any]:
        """Take what a client answers; what is not asked for any more is left out."""
        return await self._answer(ctx, params, self._update)

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """End a task; one that has ended stays as it is."""
        return await self._answer(ctx, params, self._cancel)

    async def _answer(self, ctx: Context, params: P, work: Work[P]) -> dict[str, Any]:
        principal = self._admit(ctx, params)
        try:
            if not _TASK_ID.fullmatch(params.task_id):
                raise NotFound("run", params.task_id)
            run = await self._engine.get_run(params.task_id, principal)
            if run.principal.owner_key != principal.owner_key or run.root_id is not None:
                raise NotFound("run", params.task_id)
            return await work(ctx, params, run)
        except NotFound:
            raise MCPError(wire.INVALID_PARAMS, "there is no such task") from None
        except StoreUnavailable as error:
            log.warning("the store cannot be used: %s", error)
            text = "the server cannot read or write its store now; ask again in a moment"
            raise MCPError(wire.INTERNAL_ERROR, text) from error

    async def _get(self, ctx: Context, params: TaskParams, run: Run) -> dict[str, Any]:
        now = self._engine.now()
        if run.status is RunStatus.CANCELLED:
            return _told(run, now, "cancelled")
        if run.status.final:  # a failed one too: its result says so
            result = await self._results(run, principal_of(ctx))
            if result is None:
                raise NotFound("run", run.id)
            return {**_told(run, now, "completed"), "result": _on_wire(result)}
        asks = await self._inputs.open(run, principal_of(ctx)) if fills_forms(ctx) else {}
        if not asks:
            return _told(run, now, "working")
        requests = {key: _on_wire(ask.request()) for key, ask in asks.items()}
        return {**_told(run, now, "input_required"), "inputRequests": requests}

    async def _update(self, ctx: Context, params: TaskUpdateParams, run: Run) -> dict[str, Any]:
        principal = principal_of(ctx)
        asks = {} if run.status.final else await self._inputs.open(run, principal)
        answered = [key for key in asks if key in params.input_responses]
        for key in answered:
            try:
                response = wire.ElicitResult.model_validate(params.input_responses[key], by_name=False)
                await self._inputs.take(run, asks[key], response, principal)
            except ValidationError:
                raise MCPError(wire.INVALID_PARAMS, f"inputResponses {key!r} is no answer to an elicitation") from None
            except Refused as error:
                raise MCPError(wire.INVALID_PARAMS, f"inputResponses {key!r} cannot be used: {error}") from None
        return {}

    async def _cancel(self, ctx: Context, params: TaskParams, run: Run) -> dict[str, Any]:
        if not run.status.final:
            await self._engine.cancel(run.id, principal_of(ctx))
        return {}

    def _admit(self, ctx: Context, params: TaskParams) -> Principal:
        """Return who asks; raise `MCPError` for a request that has no business here."""
        if not is_modern(ctx):
            raise MCPError(METHOD_NOT_FOUND, "Method not found", data=ctx.method)
        if not takes_tasks(ctx):
            needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", data=needed)
        header = None if ctx.request is None else ctx.request.headers.get(MCP_NAME_HEADER)
        if header is not None and decode_header_value(header) != params.task_id:
            raise MCPError(HEADER_MISMATCH, "the Mcp-Name header is not the taskId")
        return principal_of(ctx)


def _told(run: Run, now: float, status: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "taskId": run.id,
        "status": status,
        "createdAt": time_text(run.created_at),
        "lastUpdatedAt": time_text(run.updated_at),
        "ttlMs": None,
        "pollIntervalMs": _poll_interval(run, now),
    }
    message = _message(run)
    return told if message is None else {**told, "statusMessage": message}


def _poll_interval(run: Run, now: float) -> int:
    """Return when it is worth to look again, in ms: a tenth of the task's age later."""
    age_ms = int((now - run.created_at) * 1000)
    return max(_SOONEST_POLL_MS, min(_LATEST_POLL_MS, age_ms // 10))


def _message(run: Run) -> str | None:
    if run.status is RunStatus.CANCELLED:
        return "The run was cancelled."
    if run.status is RunStatus.FAILED:
        return None if run.error is None else run.error.message
    waiting = next((one for one in run.waiting_for if one.kind in _WAITS), None)
    return None if waiting is None else _WAITS[waiting.kind](waiting)


_WAITS: dict[str, Callable[[Waiting], str]] = {
    "approval": lambda waiting: f"Waits until a person decides about {waiting.tool!r}.",
    "question": lambda waiting: f"Waits for an answer: {waiting.name}",
    "signal": lambda waiting: f"Waits for the signal {waiting.name!r}.",
    "sleep": lambda waiting: "Waits until a time.",
}


def _on_wire(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
