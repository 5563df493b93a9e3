"""What clients look for where they think that a server may offer OAuth: without it, JSON that says so.

A page that an app shows for all unknown addresses would be taken for such a document, and the token that the client was
given would be left unused.
"""

from __future__ import annotations

import re

from starlette.datastructures import URLPath
from starlette.responses import JSONResponse
from starlette.routing import Match, NoMatchFound
from starlette.types import Receive, Scope, Send

from amoxi_py.surfaces.mcp.root_routes import AtRoot, is_apps_own, unknown_like

_NAMES = "oauth-protected-resource|oauth-authorization-server|openid-configuration"
_GUESSED = frozenset({"/register", "/authorize", "/token"})
_NOTHING = {
    "error": "not_found",
    "error_description": (
        "This server offers no OAuth. Send the token that you were given by whoever runs it, as the header "
        "'Authorization: Bearer <token>'."
    ),
}


class NoDiscovery(AtRoot):
    """Answers 404 in JSON where clients look for OAuth, but to what the app has routes of its own for.

    Args:
        paths: Of the MCP endpoints, with their prefix.
    """

    def __init__(self, *paths: str) -> None:
        endpoints = "|".join(map(re.escape, paths))
        self._known = re.compile(rf"/\.well-known/(?:{_NAMES})(?:/.*)?|(?:{endpoints})/\.well-known/(?:{_NAMES})")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http":
            return Match.NONE, {}
        path = _path(scope)
        guessed = path in _GUESSED
        mine = not _is_visit(scope) if guessed else self._known.fullmatch(path) is not None
        if not mine or is_apps_own(scope, unknown_like("/a/b" if guessed else path)):
            return Match.NONE, {}
        return Match.FULL, {}

    def url_path_for(self, name: str, /, **path_params: object) -> URLPath:
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = JSONResponse(_NOTHING, status_code=404, headers={"cache-control": "no-store"})
        await answer(scope, receive, send)


def _path(scope: Scope) -> str:
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _is_visit(scope: Scope) -> bool:
    """Whether a person's browser asks for a page, such as the app's own to register."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return scope["method"] in ("GET", "HEAD") and b"text/html" in accepted
