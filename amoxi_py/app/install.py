"""`install`: all of it, worker and lifespan included, in a FastAPI app that is there already."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.datastructures import URLPath
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.runtime import Runtime
from amoxi_py.app.web import Serving, web_app_under
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.errors import DeclarationError

_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def install(
    app: FastAPI,
    prefix: str = "/ai",
    *,
    package: str | None = None,
    settings: Settings | None = None,
    profile: str | None = None,
) -> None:
    """Put the agents of a package into a FastAPI app, with routes, event streams, chat pages and the worker.

    Everything is under the prefix. The app's own lifespan goes on: what it opens is there before the agents start, and
    is closed after they have stopped. Its routes, exception handlers and OpenAPI stay as they are; its middleware runs
    before the agents' routes too. `@configure` functions of the package get this app. `app.state.amoxi.runs` is a
    `Runs` for the app's own routes, and `app.state.amoxi.get(Payments)` gives them what the agents have by type.

    Args:
        app: The app; it must not have started yet.
        prefix: Comes before every path, such as `/ai`.
        package: Where the agents are, instead of the one that the settings name.
        settings: By default those of `application.json` in the current folder, and of the environment.
        profile: Of the settings, when they are read here; `production` by default.

    Raises:
        ConfigError: settings are unknown or bad.
        DeclarationError: declarations cannot work; or the app has started, has its agents already, or has routes under
            the prefix itself; or a module of the package called this.
    """
    _refuse(app, prefix)
    settings = settings or load_settings(profile=profile)
    host = settings.server.host if "server.host" in settings.sources else None
    own = web_app_under(Runtime(settings, read_declarations(settings, package)), prefix, host)
    serving: Serving = own.state.amoxi
    app.router.routes[:0] = [_Installed(prefix, own), *serving.root_routes()]
    app.router.lifespan_context = _around(app, serving)
    app.state.amoxi = serving
    serving.runtime.configure(app)


def _refuse(app: FastAPI, prefix: str) -> None:
    if not isinstance(app, FastAPI):
        raise DeclarationError(f"install() was given {app!r}, which is no FastAPI app")
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise DeclarationError(
            f"install() was given the prefix {prefix!r}; it must be like '/ai', with a slash before each part and "
            "none at the end"
        )
    if hasattr(app.state, "amoxi"):
        raise DeclarationError(f"install() was called twice for the app {app.title!r}; call it once")
    if app.middleware_stack is not None:
        raise DeclarationError(
            f"install() was called after the app {app.title!r} had started; call it where the app is made"
        )
    for path in _paths(app.routes):
        if path == prefix or path.startswith(f"{prefix}/"):
            raise DeclarationError(
                f"install() puts its routes under {prefix!r}, where the app {app.title!r} has {path!r} already; "
                "give another prefix"
            )


def _paths(routes: Iterable[Any]) -> Iterator[str]:
    for route in routes:
        within = getattr(route, "effective_candidates", None)  # FastAPI's word for the routes of an included router
        if within is not None:
            yield from _paths(within())
        else:
            yield str(getattr(route, "path", "") or getattr(getattr(route, "starlette_route", None), "path", ""))


class _Installed(BaseRoute):
    """Hands all requests under a prefix on, with their whole path; `request.app` stays the app that has them."""

    def __init__(self, prefix: str, app: FastAPI) -> None:
        self.path = prefix
        self.app = app
        self._handle = app.build_middleware_stack()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] not in ("http", "websocket"):
            return Match.NONE, {}
        at = scope.get("root_path", "") + self.path
        mine = scope["path"].startswith((f"{at}/", f"{self.path}/")) or scope["path"] in (at, self.path)
        return (Match.FULL if mine else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """Return the path of one of the agents' routes, so that pages of the app find it by its name."""
        return self.app.url_path_for(name, **path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        inner = {name: value for name, value in scope.items() if name not in ("router", "endpoint", "route")}
        await self._handle({**inner, "path_params": {}}, receive, send)


def _around(app: FastAPI, serving: Serving) -> Any:
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Mapping[str, Any] | None]:
        async with inner(app) as state, serving.lifespan(app):
            yield state

    return lifespan
