"""What every route stands behind: the engine, who asks, and the boundary where errors become answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.log_facts import about
from amoxi_py.errors import NotFound, StoreUnavailable
from amoxi_py.surfaces.closing import Closing
from amoxi_py.surfaces.http.authentication import Authentication, Caller
from amoxi_py.surfaces.http.problems import problem_of
from amoxi_py.surfaces.http.settings import HttpSettings

Endpoint = Callable[..., Coroutine[Any, Any, Response]]

_CALLER = "amoxi.caller"


class Door:
    """The HTTP door of one app: made with the app, opened when the engine has started.

    Until `open` every route but the liveness probe answers 503. `closing.set()` ends all open streams and waits.
    `responses` has how many answers of each status there were.
    """

    def __init__(self, settings: HttpSettings | None = None) -> None:
        self.settings = settings or HttpSettings()
        self.closing = Closing()
        self.responses: dict[str, int] = {}
        self._engine: Engine | None = None
        self._authentication: Authentication | None = None
        self._admitted = _admitted_route(self)
        self._gated = _gated_route(self)

    def open(self, engine: Engine, secret: bytes) -> None:
        """Let requests in; `secret` signs the visitors' cookies and must be the same on every server of the app."""
        self.closing = Closing()  # of this life of the server: an earlier one may have closed
        self._engine = engine
        self._authentication = Authentication(self.settings, secret)

    @property
    def engine(self) -> Engine:
        """The engine; raise `StoreUnavailable` before the start."""
        if self._engine is None:
            raise StoreUnavailable("the server has not started yet")
        return self._engine

    @property
    def authentication(self) -> Authentication:
        """Who finds out who asks; raise `StoreUnavailable` before the start."""
        if self._authentication is None:
            raise StoreUnavailable("the server has not started yet")
        return self._authentication

    async def identify(self, request: Request) -> Caller:
        """Find out who asks, and keep it for `caller_of`; raise what `Authentication.identify` does."""
        caller = await self.authentication.identify(request)
        request.scope[_CALLER] = caller
        about(principal=caller.principal.id)
        return caller

    def add(
        self,
        router: APIRouter,
        path: str,
        endpoint: Endpoint,
        *,
        known: bool = True,
        gated: bool = False,
        **options: Any,
    ) -> None:
        """Add a route under the prefix; with `known` it finds out who asks before it looks at anything else.

        One that is `gated` also looks whether the caller is known to get no run now, before the request is read.
        `options` are those of FastAPI's `add_api_route`. What they say of answers is for the documentation, and half
        of the cost of making the app: where there is none, it is left out.
        """
        if not self.settings.docs:
            options |= {"responses": None, "response_model": None}
        router.add_api_route(
            self.settings.prefix + path,
            endpoint,
            route_class_override=self._gated if gated else self._admitted if known else BoundaryRoute,
            **options,
        )

    def agent(self, request: Request) -> AgentDefinition | None:
        """Return the agent of the address, or None when it names none; raise `NotFound` for one the caller has not."""
        name = request.path_params.get("agent")
        if name is None:
            return None
        agent = self.engine.catalog.agents.get(name)
        if agent is None or not agent.expose or not agent.exists_for(principal_of(request)):
            raise NotFound("agent", name)
        return agent

    def agent_name(self, request: Request) -> str | None:
        """Return the name of `agent`."""
        agent = self.agent(request)
        return None if agent is None else agent.name


class BoundaryRoute(APIRoute):
    """A route that answers every error with a problem."""

    async def admit(self, request: Request) -> None:
        """Let everybody in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                await self.admit(request)
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - the surface's boundary
                return problem_of(error, request)

        return answer


def _admitted_route(door: Door) -> type[BoundaryRoute]:
    class AdmittedRoute(BoundaryRoute):
        async def admit(self, request: Request) -> None:
            await door.identify(request)

    return AdmittedRoute


def _gated_route(door: Door) -> type[BoundaryRoute]:
    class GatedRoute(BoundaryRoute):
        async def admit(self, request: Request) -> None:
            caller = await door.identify(request)
            if "idempotency-key" not in request.headers:
                door.engine.gate.refuse(caller.principal.owner_key, may_replace=True)  # what it is has not been read

    return GatedRoute


def caller_of(request: Request) -> Caller:
    """Return who asks, as the route found out."""
    caller: Caller = request.scope[_CALLER]
    return caller


def principal_of(request: Request) -> Principal:
    """Return the principal that asks."""
    return caller_of(request).principal
