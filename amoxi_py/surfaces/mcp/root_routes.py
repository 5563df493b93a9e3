"""Routes at the root of the host, which is the app's: they step back for a route that the app has for the same request.

A page for all unknown addresses is not meant for this one, and stays behind. What takes all that is sent is no page: it
may hand it on to whoever it is for.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from starlette.routing import BaseRoute, Match
from starlette.types import Scope

_PROGRAMS_METHOD = "POST"


class AtRoot(BaseRoute):
    """A route at the root of the host that is none of the app's own."""


def is_apps_own(scope: Scope, unknown: str, method: str = _PROGRAMS_METHOD) -> bool:
    """Whether the app has a route of its own for a request.

    Args:
        scope: Of the request.
        unknown: A path like the request's that nobody has a route for; the route that would take it is not meant.
        method: What a browser is about to send that asks with OPTIONS and does not say it.
    """
    app = scope.get("app")
    others = [route for route in getattr(app, "routes", ()) if not isinstance(route, AtRoot)]
    if scope["method"] == "OPTIONS":
        wanted = next((value for name, value in scope["headers"] if name == b"access-control-request-method"), b"")
        scope = {**scope, "method": wanted.decode("latin-1") or method}
    taker = _taker(others, scope)
    if taker is None or scope["method"] not in ("GET", "HEAD"):
        return taker is not None
    return taker is not _taker(others, _at(scope, unknown))


def unknown_like(path: str) -> str:
    """Return a path of as many parts as another one that nobody has a route for."""
    return f"/{secrets.token_hex(8)}" * max(path.count("/"), 1)


def unknown_beside(path: str) -> str:
    """Return a path in the same folder as another one that nobody has a route for."""
    return f"{path.rpartition('/')[0]}/{secrets.token_hex(8)}"


def _at(scope: Scope, path: str) -> Scope:
    path = f"{scope.get('root_path', '')}{path}"
    return {**scope, "path": path, "raw_path": path.encode()}


def _taker(routes: Iterable[Any], scope: Scope) -> object | None:
    """Return the innermost route that takes a request."""
    for route in routes:
        match, child = route.matches({**scope})
        if match is Match.FULL:
            return _inner(route, {**scope, **child})
    return None


def _inner(route: Any, scope: Scope) -> object | None:
    choose = getattr(route, "_match", None)  # FastAPI has no public word for which route of an included router it is
    if choose is not None:
        chosen = choose({**scope})[2]
        return route if chosen is None else _inner(chosen, scope)
    within = getattr(route, "routes", None)  # of a mounted app
    if not within:
        return route  # type: ignore[no-any-return]
    return _taker(within, scope)
