"""What is pasted into clients so that they reach the app by MCP: for each the form that it reads today."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from amoxi_py.cli.address import local_url
from amoxi_py.config.settings import Settings
from amoxi_py.domain.addresses import LOCAL_NAMES, is_safe

ANTHROPIC_BETA = "mcp-client-2025-11-20"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """What one client wants to have.

    Attributes:
        client: Its key, such as `claude-code`.
        title: Its name, and where the text goes.
        text: To be pasted: a command, or JSON.
    """

    client: str
    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an app is reached, by whose token.

    Attributes:
        app: The app's name.
        url: Of its MCP endpoint.
        token: The caller's.
    """

    app: str
    url: str
    token: str

    @property
    def name(self) -> str:
        """The app's name with the letters that every client takes for a server."""
        plain = re.sub(r"[^A-Za-z0-9]+", "-", self.app).strip("-")[:40].rstrip("-")
        return plain if plain[:1].isalpha() else f"app-{plain}".rstrip("-")

    @property
    def variable(self) -> str:
        """The variable that clients read the token from."""
        return f"{self.name.upper().replace('-', '_')}_TOKEN"

    @property
    def is_public(self) -> bool:
        """Whether a provider's servers can be told of it: they call nothing but https, and nothing of this machine."""
        parts = urlsplit(self.url)
        return parts.scheme == "https" and parts.hostname not in LOCAL_NAMES


def endpoint_of(settings: Settings) -> str:
    """Return where clients with a token reach MCP; with OAuth the path that says nothing of it.

    Some clients leave the token that they were given unused as soon as they hear of OAuth.
    """
    server = settings.server
    root = server.public_url or local_url(server.host, server.port)
    path = "/mcp/token" if settings.ai.mcp.oauth.enabled else "/mcp"
    return f"{root.rstrip('/')}{settings.ai.http.prefix or ''}{path}"


def snippets_for(place: Place) -> tuple[Snippet, ...]:
    """Return what to paste into each client."""
    return (
        Snippet(client="claude-code", title="Claude Code", text=_claude_code(place)),
        Snippet(
            client="claude-code-project",
            title=f"Claude Code, for all who work in a folder: .mcp.json (reads ${place.variable})",
            text=_as_json({"mcpServers": {place.name: {"type": "http", **_reached(place, f"${{{place.variable}}}")}}}),
        ),
        Snippet(
            client="claude-desktop",
            title="Claude Desktop: claude_desktop_config.json (needs Node.js; holds the token)",
            text=_as_json({"mcpServers": {place.name: _claude_desktop(place)}}),
        ),
        Snippet(
            client="cursor",
            title=f"Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json of a project (reads ${place.variable})",
            text=_as_json({"mcpServers": {place.name: _reached(place, f"${{env:{place.variable}}}")}}),
        ),
        Snippet(
            client="vs-code",
            title="VS Code: .vscode/mcp.json (asks for the token once, and keeps it)",
            text=_as_json(_vs_code(place)),
        ),
        Snippet(
            client="anthropic-api",
            title=f"Anthropic's API: into POST /v1/messages, with the header anthropic-beta: {ANTHROPIC_BETA}",
            text=_as_json(_anthropic(place)),
        ),
        Snippet(
            client="openai-api",
            title="OpenAI's API: into POST /v1/responses",
            text=_as_json(_openai(place)),
        ),
    )


def _claude_code(place: Place) -> str:
    """Return a command; `--header` takes all words behind it, so it comes last."""
    header = f"Authorization: Bearer {place.token}"
    return shlex.join(["claude", "mcp", "add", "--transport", "http", place.name, place.url, "--header", header])


def _claude_desktop(place: Place) -> dict[str, Any]:
    """Return a bridge that it starts: it takes no header of a server that it reaches by itself.

    The header's value is a variable, because the program loses what is behind a space in an argument on Windows.
    """
    arguments = ["-y", "mcp-remote", place.url, "--transport", "http-only", "--header", "Authorization:${AUTH_HEADER}"]
    parts = urlsplit(place.url)
    if not is_safe(parts):
        arguments.append("--allow-http")
    return {"command": "npx", "args": arguments, "env": {"AUTH_HEADER": f"Bearer {place.token}"}}


def _vs_code(place: Place) -> dict[str, Any]:
    asked = f"{place.name}-token"
    return {
        "inputs": [
            {"type": "promptString", "id": asked, "description": f"The token for {place.name}", "password": True}
        ],
        "servers": {place.name: {"type": "http", **_reached(place, f"${{input:{asked}}}")}},
    }


def _anthropic(place: Place) -> dict[str, Any]:
    server = {"type": "url", "url": place.url, "name": place.name, "authorization_token": place.token}
    return {"mcp_servers": [server], "tools": [{"type": "mcp_toolset", "mcp_server_name": place.name}]}


def _openai(place: Place) -> dict[str, Any]:
    tool = {
        "type": "mcp",
        "server_label": place.name,
        "server_url": place.url,
        "authorization": place.token,
        "require_approval": "never",
    }
    return {"tools": [tool]}


def _reached(place: Place, token: str) -> dict[str, Any]:
    return {"url": place.url, "headers": {"Authorization": f"Bearer {token}"}}


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2)
