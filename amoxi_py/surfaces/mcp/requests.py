"""One request of a client, as the handlers of this surface see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.abilities import Context, fills_forms, is_modern, takes_tasks
from amoxi_py.surfaces.mcp.answer_streams import ANSWER, Answer, message_event
from amoxi_py.surfaces.mcp.call_streams import STREAM, CallStream
from amoxi_py.surfaces.mcp.contents import IDEMPOTENCY_KEY, RUN_ID
from amoxi_py.surfaces.mcp.flights import request_key
from amoxi_py.surfaces.mcp.progress import Report
from amoxi_py.surfaces.mcp.rounds import Round

PRINCIPAL = "amoxi.mcp.principal"
SESSION_HEADER = "mcp-session-id"

_KEY = re.compile(r"[!-~]{1,255}")
_LONGEST_NAME = 100


class ToolRequest(Struct, frozen=True, kw_only=True):
    """A `tools/call`.

    Attributes:
        principal: Who asks.
        name: The tool's.
        arguments: As they came.
        key: What the request is known by on all servers, or None.
        modern: Whether a client that leaves withdraws its request (2026-07-28 and later).
        id: What the client calls the request.
        stream: Of its answer, or None where nobody could go on with it.
        progress_token: What the client calls the progress of it.
        report: Tells the client of progress, or None when it does not want to hear of it.
        idempotency_key: The client's own name of the call: the same one is the same run.
        run_id: A run of an earlier call, which is to be waited for.
        fills_forms: Whether the client can be asked for something.
        takes_tasks: Whether it can be answered with a task.
        round: Of a call that goes on: what the requests before have come to.
        responses: What the client answers to what it was asked for, by key.
    """

    principal: Principal
    name: str
    arguments: dict[str, Any]
    key: str | None
    modern: bool
    id: str | int | None
    stream: CallStream | None
    progress_token: str | int | None
    report: Report | None
    idempotency_key: str | None
    run_id: str | None
    fills_forms: bool = False
    takes_tasks: bool = False
    round: Round | None = None
    responses: Mapping[str, Any] = {}

    @property
    def talks(self) -> bool:
        """Whether the client takes other answers than results."""
        return self.fills_forms or self.takes_tasks

    @property
    def taken_up(self) -> bool:
        """Whether it is for the rest of an answer that was cut off."""
        return self.stream is not None and self.stream.taken_up is not None


def principal_of(ctx: Context) -> Principal:
    """Return who asks, as the endpoint found out."""
    assert ctx.request is not None, "all requests come over HTTP"
    principal: Principal = ctx.request.scope[PRINCIPAL]
    return principal


def read_request(ctx: Context, params: wire.CallToolRequestParams) -> ToolRequest:
    """Return a call as this surface sees it; raise `MCPError` for what is none."""
    assert ctx.request is not None, "all requests come over HTTP"
    principal = principal_of(ctx)
    meta: dict[str, Any] = dict(ctx.meta or {})
    modern = is_modern(ctx)
    session = None if modern else ctx.request.headers.get(SESSION_HEADER)
    token = meta.get("progressToken", meta.get("progress_token"))
    stream: CallStream | None = ctx.request.scope.get(STREAM)
    return ToolRequest(
        principal=principal,
        name=params.name,
        arguments=params.arguments or {},
        key=request_key(principal, session, ctx.request_id),
        modern=modern,
        id=ctx.request_id,
        stream=stream,
        progress_token=token,
        report=None if token is None else partial(_report, ctx.request.scope[ANSWER], token),
        idempotency_key=_of_meta(meta, IDEMPOTENCY_KEY, _KEY),
        run_id=_of_meta(meta, RUN_ID, _KEY),
        fills_forms=fills_forms(ctx),
        takes_tasks=takes_tasks(ctx),
        round=_round(params, stream, modern=modern),
        responses=params.input_responses or {},
    )


async def _report(answer: Answer, token: str | int, progress: int, message: str) -> None:
    params = {"progressToken": token, "progress": progress, "message": message}
    notification = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    await answer.tell(message_event(encode_json(notification).encode("ascii")))


def _round(params: wire.CallToolRequestParams, stream: CallStream | None, *, modern: bool) -> Round | None:
    if modern:
        return Round.read(params.request_state) if params.request_state else None
    if stream is None or stream.taken_up is None:
        return None
    return Round(run_id=stream.taken_up.run_id, started=stream.taken_up.started)


def unknown_tool(name: str) -> MCPError:
    """Return the one error for a tool that does not exist, and for one that the caller may not know of."""
    return MCPError(wire.INVALID_PARAMS, f"Unknown tool: {name[:_LONGEST_NAME]}")


def _of_meta(meta: dict[str, Any], name: str, form: re.Pattern[str]) -> str | None:
    value = meta.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or not form.fullmatch(value):
        raise MCPError(wire.INVALID_PARAMS, f"_meta {name!r} must be a text of 1 to 255 visible ASCII characters")
    return value
