"""The MCP door of an app whose settings ask for one; without it nothing of its library is loaded."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from amoxi_py.app.oauth import oauth_of
from amoxi_py.app.runtime import Runtime
from amoxi_py.surfaces.http.settings import Authenticate
from amoxi_py.surfaces.mcp.settings import McpSettings

if TYPE_CHECKING:
    from amoxi_py.surfaces.mcp.door import McpDoor


def mcp_door_of(runtime: Runtime, prefix: str, sign_in: Authenticate | None) -> McpDoor | None:
    """Return the door, or None when it stays shut; `prefix` comes before its paths, `sign_in` is the app's own."""
    settings = runtime.settings
    if not settings.ai.mcp.enabled:
        return None
    from amoxi_py.surfaces.mcp.door import McpDoor

    told = McpSettings(
        name=settings.app_name,
        version=version("amoxi-py"),
        callers=settings.callers_of("mcp"),
        prefix=prefix,
        public_url=settings.server.public_url,
        cors_origins=settings.server.cors_origins,
        answer_within=settings.ai.mcp.answer_within_s,
        stop_grace=settings.server.stop_grace_s,
    )
    return McpDoor(told, runtime.declarations.catalog, oauth_of(runtime, prefix, sign_in))
