"""What a client of 2026-07-28 says with each request that it can do; to older ones nothing here is offered."""

from __future__ import annotations

from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Context = ServerRequestContext[Any, Any]

TASKS = "io.modelcontextprotocol/tasks"


def is_modern(ctx: Context) -> bool:
    """Whether the request is of 2026-07-28 or later."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def takes_tasks(ctx: Context) -> bool:
    """Whether a call may be answered with a task."""
    capabilities = _of(ctx)
    return capabilities is not None and TASKS in (capabilities.extensions or {})


def fills_forms(ctx: Context) -> bool:
    """Whether the client can show a form to its person; one that says nothing about how it asks can."""
    capabilities = _of(ctx)
    elicitation = None if capabilities is None else capabilities.elicitation
    return elicitation is not None and (elicitation.form is not None or elicitation.url is None)


def _of(ctx: Context) -> ClientCapabilities | None:
    return ctx.session.client_capabilities if is_modern(ctx) else None
