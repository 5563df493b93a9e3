"""The address that other agents speak to: who asks, what is taken, and where it leads; nothing is read before that."""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.log_facts import about
from amoxi_py.errors import StoreUnavailable
from amoxi_py.surfaces.a2a.context import base_of
from amoxi_py.surfaces.a2a.file_route import FILES, answer_file
from amoxi_py.surfaces.a2a.rest import ROUTES, RestRoute, answer_rest
from amoxi_py.surfaces.a2a.rest_compat import ROUTES_0_3
from amoxi_py.surfaces.a2a.rpc import answer_rpc
from amoxi_py.surfaces.a2a.serving import Asked, Serving
from amoxi_py.surfaces.a2a.settings import A2aSettings
from amoxi_py.surfaces.origins import is_foreign
from amoxi_py.surfaces.problem import broken, outage, problem
from amoxi_py.surfaces.request_bodies import read_at_most
from amoxi_py.surfaces.tokens import authorizations, bearer_token, caller_of_token

log = logging.getLogger("amoxi_py.a2a")

REST = "rest"
"""The name of what stands behind the endpoint's own path, in a route's parameters."""

_METHODS = ("POST", "GET", "HEAD", "DELETE")
_ALL_REST = (*ROUTES, *ROUTES_0_3)


class Endpoint:
    """One address for all bindings and versions."""

    def __init__(self, settings: A2aSettings, serving: Callable[[], Serving]) -> None:
        self._settings = settings
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        except StoreUnavailable as error:
            log.warning("a request cannot be answered now: %s", error)
            answer = outage(error)
        except Exception:  # the surface's boundary
            log.exception("%s %s failed", scope["method"], scope["path"])
            answer = broken()
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        serving = self._serving()
        if request.method not in _METHODS:
            return _not_taken("POST")
        origin = request.headers.get("origin")
        known = (self._settings.public_url, *self._settings.cors_origins)
        if origin is not None and is_foreign(request, origin, known):
            return problem(403, "foreign_origin", "a page of another origin may not use this server's agents")
        principal = self._identify(request)
        if principal is None:
            detail = "send a caller's token: 'Authorization: Bearer <token>'"
            return problem(401, "not_authenticated", detail, headers={"www-authenticate": "Bearer"})
        about(principal=principal.id)
        path: str = request.path_params.get(REST, "")
        file = FILES.fullmatch(path)
        if file is not None:
            if request.method not in ("GET", "HEAD"):
                return _not_taken("GET", "HEAD")
            return await answer_file(serving.engine, principal, file["id"], request)
        return await self._ask(serving, request, principal, path)

    async def _ask(self, serving: Serving, request: Request, principal: Principal, path: str) -> ASGIApp:
        routes = [route for route in _ALL_REST if route.path.fullmatch(path)]
        methods = [route.method for route in routes] if path else ["POST"]
        if not methods:
            return problem(404, "not_found", "there is nothing at this address")
        if request.method not in methods:
            return _not_taken(*methods)
        body = await read_at_most(request, self._settings.max_body)
        if body is None:
            return problem(413, "body_too_large", f"the body is longer than {self._settings.max_body} bytes")
        asked = Asked(
            serving=serving,
            request=request,
            principal=principal,
            base=base_of(self._settings, request),
            body=body,
        )
        if not path:
            return await answer_rpc(asked)
        route = _of_method(routes, request.method)
        match = route.path.fullmatch(path)
        assert match is not None
        return await answer_rest(asked, route, match.groupdict())

    def _identify(self, request: Request) -> Principal | None:
        token = bearer_token(authorizations(request.scope))
        name = None if token is None else caller_of_token(token, self._settings.callers)
        return None if name is None else Principal(id=f"a2a:{name}", name=name, channel="a2a")


def _of_method(routes: list[RestRoute], method: str) -> RestRoute:
    return next(route for route in routes if route.method == method)


def _not_taken(*methods: str) -> Response:
    taken = ", ".join(dict.fromkeys(methods))
    return problem(405, "method_not_allowed", f"this address takes {taken}", headers={"allow": taken})
