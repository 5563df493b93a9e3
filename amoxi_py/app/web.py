"""`create_app`: the whole app behind the ASGI interface, for any server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, TypeVar

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import BaseRoute

from amoxi_py.app.a2a import a2a_door_of
from amoxi_py.app.declarations import read_declarations
from amoxi_py.app.erasing import Erased, erase_by_code
from amoxi_py.app.mcp import mcp_door_of
from amoxi_py.app.oauth import grants_of
from amoxi_py.app.runs import Runs
from amoxi_py.app.runtime import Runtime
from amoxi_py.app.stopping import StopSignals
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.declare.authenticate import ask_sign_in
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import AmoxiError
from amoxi_py.surfaces.http.app import build_http
from amoxi_py.surfaces.http.door import Door
from amoxi_py.surfaces.http.settings import Authenticate, HttpSettings

if TYPE_CHECKING:
    from amoxi_py.surfaces.a2a.door import A2aDoor
    from amoxi_py.surfaces.mcp.door import McpDoor

T = TypeVar("T")
log = logging.getLogger("amoxi_py.app")


class Serving:
    """The life of one web process, from the server's start to its stop, and the next one after it: `app.state.amoxi`.

    Attributes:
        runtime: The process's parts.
        door: The HTTP door.
        mcp: The MCP door, or None when it stays shut.
        a2a: The A2A door, or None when it stays shut.
        failure: Why the start or the stop failed, or None; a start that a signal ended was cancelled.
        on_ready: Called when the process takes traffic.
        on_stop: Called in the first signal's handler with the grace in seconds.
    """

    def __init__(self, runtime: Runtime, door: Door) -> None:
        prefix = door.settings.prefix
        self.runtime = runtime
        self.door = door
        runtime.responses = door.responses
        self.mcp = mcp_door_of(runtime, prefix, door.settings.authenticate)
        self.a2a = a2a_door_of(runtime, prefix)
        self.failure: BaseException | None = None
        self.on_ready: Callable[[], None] | None = None
        self.on_stop: Callable[[float], None] | None = None
        self._hurry = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None

    @property
    def other_doors(self) -> list[McpDoor | A2aDoor]:
        """The doors that are open beside HTTP's."""
        return [door for door in (self.mcp, self.a2a) if door is not None]

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the other doors under the prefix."""
        return [route for door in self.other_doors for route in door.routes()]

    def root_routes(self) -> list[BaseRoute]:
        """Return those at the root of the host."""
        return [route for door in self.other_doors for route in door.root_routes()]

    @property
    def runs(self) -> Runs:
        """Starts runs from a route of the app: `request.app.state.amoxi.runs`."""
        return self.runtime.runs

    @property
    def settings(self) -> Settings:
        """What the operator has set."""
        return self.runtime.settings

    def get(self, kind: type[T]) -> T:
        """Give a route of the app its one instance of a type: `request.app.state.amoxi.get(Payments)`.

        A model with `@settings` is there before the start too, for the app's own lifespan.

        Raises:
            LookupError: nothing of it is made, or not yet, or no more.
        """
        return self.runtime.get(kind)

    async def principal(self, request: Request) -> Principal:
        """Return who asks, for a route of the app: `await request.app.state.amoxi.principal(request)`.

        It is whom the agents' own routes see: a caller by its token, a person by `@authenticate`, or a visitor. A
        visitor whose browser sends no cookie here, as outside of the prefix of `install`, is a new one each time.

        Raises:
            NotAuthenticated: the token or the sign-in does not hold; or there is none, and visitors are not welcome.
            Forbidden: a page of a foreign origin asks for a change in somebody's name.
            StoreUnavailable: the app has not started.
        """
        return (await self.door.authentication.identify(request)).principal

    async def end_connections(self, user: str, *, tenant: str | None = None) -> int:
        """End all that a person has allowed programs by OAuth, such as somebody who has left: the next request is 401.

        Args:
            user: The person's id, as `@authenticate` gives it.
            tenant: The person's tenant, in an app that has some.

        Returns:
            How many connections there were.

        Raises:
            StoreUnavailable: they may be there still; ask again.
        """
        person = Principal(id=f"user:{user}", tenant=tenant)
        return await grants_of(lambda: self.runtime.store).end_all_of(person)

    async def erase(self, principal: Principal) -> Erased:
        """Delete all that is kept of a principal, as `OpenApp.erase` does: `await app.state.amoxi.erase(principal)`."""
        return await erase_by_code(self.runtime, principal)

    def hand_over(self) -> None:
        """Let the stop that a signal begins next be quick: another process is there to go on with the runs."""
        self._hurry = True

    def take_over(self, worker_id: str) -> None:
        """Take up the runs of a process that is dead; may be called from any thread."""
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self._take_over(worker_id), self._loop)

    async def _take_over(self, worker_id: str) -> None:
        try:
            await self.runtime.store.expire_worker(worker_id)
        except AmoxiError as error:
            log.warning("runs of a process that has died go on when its lease ends: %s", error)

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Start all parts, and stop them when the server ends or a signal says that it will."""
        self.runtime.refuse_if_started()
        self.failure, self._hurry = None, False
        self._loop = asyncio.get_running_loop()
        self._starting = asyncio.current_task()
        signals = StopSignals(self._on_signal)
        signals.install()  # before the start: something that the app opens may hang
        try:
            secret = await self._start()
        except BaseException as error:
            self.failure = error
            signals.restore()
            raise
        finally:
            self._starting = None
        self.door.open(self.runtime.engine, secret.encode())
        try:
            async with AsyncExitStack() as opened:
                for door in self.other_doors:
                    await opened.enter_async_context(door.open(self.runtime.engine, self.runtime.store))
                if self.on_ready is not None:
                    self.on_ready()
                yield
        finally:
            self.door.closing.set()
            try:
                await self.runtime.stop()
            except BaseException as error:
                self.failure = error
                raise
            finally:
                signals.restore()

    async def _start(self) -> str:
        await self.runtime.start()
        try:
            return await self.runtime.secret(secrets.token_hex(32))
        except BaseException:
            await self.runtime.stop()
            raise

    def _on_signal(self) -> None:
        assert self._loop is not None
        if self.on_stop is not None:
            self.on_stop(self.settings.server.stop_grace_s)
        self._loop.call_soon_threadsafe(self._begin_stop)

    def _begin_stop(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            return
        self.door.closing.set()
        for door in self.other_doors:
            door.close()
        self.runtime.begin_stop(hurry=self._hurry)


def create_app(settings: Settings | None = None, *, package: str | None = None, profile: str | None = None) -> FastAPI:
    """Return the app of the current folder for any ASGI server; its lifespan starts the worker too.

    Args:
        settings: Of the app; read from the current folder by default.
        package: Instead of the one that the settings name.
        profile: Of the settings, when they are read here: `dev`, `production` or another.

    Raises:
        ConfigError: settings are unknown or bad.
        DeclarationError: declarations cannot work, or a module of the app's own package called this.
    """
    settings = settings or load_settings(profile=profile)
    return web_app(Runtime(settings, read_declarations(settings, package)))


def web_app(runtime: Runtime) -> FastAPI:
    """Return the web application of a process whose parts have not started yet; its lifespan starts them."""
    settings = runtime.settings
    door = Door(replace(http_settings_of(settings), authenticate=_sign_in(runtime), metrics=runtime.metrics.page))
    serving = Serving(runtime, door)
    app = build_http(door, title=settings.app_name, version=version("amoxi-py"), lifespan=serving.lifespan)
    app.state.amoxi = serving
    app.router.routes[:0] = [*serving.routes(), *serving.root_routes()]  # the others take long to look through
    runtime.configure(app)
    return app


def web_app_under(runtime: Runtime, prefix: str, host: str | None) -> FastAPI:
    """Return the web application of a process for another app that serves it under a prefix, and starts its parts.

    `app.state.amoxi` has the lifespan to be entered. `host` is where the server listens, or None when that is
    not known.
    """
    settings = runtime.settings
    told = replace(
        http_settings_of(settings),
        prefix=prefix,
        host=host,
        authenticate=_sign_in(runtime),
        metrics=runtime.metrics.page,
    )
    serving = Serving(runtime, Door(told))
    app = build_http(serving.door, title=settings.app_name, version=version("amoxi-py"))
    app.state.amoxi = serving
    app.router.routes[:0] = serving.routes()
    return app


def _sign_in(runtime: Runtime) -> Authenticate | None:
    function = runtime.declarations.authenticate
    if function is None:
        return None

    async def sign_in(request: Request) -> Principal | None:
        return await ask_sign_in(function, runtime.instances, run_in_threadpool, request)  # of this life

    return sign_in


def http_settings_of(settings: Settings) -> HttpSettings:
    """Return what the HTTP surface is told of the settings."""
    return HttpSettings(
        callers=settings.callers_of("api"),
        anonymous=settings.anonymous,
        prefix=settings.ai.http.prefix or "",
        host=settings.server.host,
        public_url=settings.server.public_url,
        cors_origins=settings.server.cors_origins,
        docs=settings.dev,
    )
