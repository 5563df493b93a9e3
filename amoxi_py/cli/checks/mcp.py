"""The MCP door: who may come in, what is there for them, and whether its address is one that clients know."""

from __future__ import annotations

from collections.abc import Iterator

from amoxi_py.cli.checks.finding import Finding
from amoxi_py.cli.mcp_snippets import endpoint_of
from amoxi_py.config.settings import Settings
from amoxi_py.declare.scan import Declarations
from amoxi_py.domain.addresses import LOCAL_NAMES


def look_at_mcp(settings: Settings, declarations: Declarations | None) -> Iterator[Finding]:
    """Look at what MCP clients will find; nothing where it is not enabled."""
    if not settings.ai.mcp.enabled:
        return
    if declarations is not None:
        yield _offered(settings, declarations)
    if settings.server.public_url is None and not settings.dev:
        alone = settings.server.host in LOCAL_NAMES
        yield Finding(
            check="mcp",
            level="note" if alone else "warning",
            text=(
                f"'server.public-url' is not set: clients are told {endpoint_of(settings)}, "
                + ("and what comes by another name is refused" if alone else "and every name is answered")
            ),
            fix="set it to the address that clients use, such as https://shop.example.com",
        )


def _offered(settings: Settings, declarations: Declarations) -> Finding:
    from amoxi_py.surfaces.mcp.publishing import publish  # it loads the protocol's library

    names = tuple(publish(declarations.catalog))
    who = [f"mcp:{name}" for name in settings.callers_of("mcp")]
    if settings.ai.mcp.oauth.enabled:
        who.append("who signs in (OAuth)")
    if not names:
        text = f"{endpoint_of(settings)} offers nothing: each tool needs approval or is not exposed, and so is no agent"
        fix = "leave `expose` as it is on a tool or an agent, or set 'ai.mcp.enabled' to false"
        return Finding(check="mcp", level="warning", text=text, fix=fix)
    text = f"{endpoint_of(settings)} offers {', '.join(names)} to {', '.join(who) or 'nobody yet'}"
    return Finding(check="mcp", level="ok", text=text)
