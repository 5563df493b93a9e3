"""OAuth of one server as `/mcp` sees it: whose token this is, what a 401 says, and the routes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Store
from amoxi_py.surfaces.mcp.oauth.answers import Endpoint, for_programs, json_answer
from amoxi_py.surfaces.mcp.oauth.authorize import Authorize, for_people
from amoxi_py.surfaces.mcp.oauth.client_documents import ClientDocuments, Fetch
from amoxi_py.surfaces.mcp.oauth.clients import Clients
from amoxi_py.surfaces.mcp.oauth.connections import Connections
from amoxi_py.surfaces.mcp.oauth.external import ExternalTokens
from amoxi_py.surfaces.mcp.oauth.grants import Grants
from amoxi_py.surfaces.mcp.oauth.keeping import Keeping
from amoxi_py.surfaces.mcp.oauth.pages import Pages
from amoxi_py.surfaces.mcp.oauth.places import (
    AUTHORIZATION_SERVER,
    OPENID,
    PROTECTED_RESOURCE,
    Places,
    places_of,
)
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings
from amoxi_py.surfaces.mcp.oauth.tickets import Tickets
from amoxi_py.surfaces.mcp.oauth.token_endpoint import TokenEndpoints
from amoxi_py.surfaces.mcp.root_routes import AtRoot, is_apps_own, unknown_beside, unknown_like

_LONGEST_TOKEN = 16 * 1024
_TAILS = ("/oauth", "/mcp")  # the issuer's path, and where older clients look


class OAuth:
    """OAuth of one server.

    Args:
        settings: How people connect.
        store: Gives the store of this life of the process.
        fetch_document: Reads a client's document, and `external` checks tokens of another issuer; for tests.
        external: As above.
        wrong_pause: How long a wrong token on the sign-in page is thought about.
    """

    def __init__(
        self,
        settings: OAuthSettings,
        store: Callable[[], Store],
        *,
        fetch_document: Fetch | None = None,
        external: ExternalTokens | None = None,
        wrong_pause: float = 0.5,
    ) -> None:
        self._settings = settings
        self._external = external
        if settings.external is not None and external is None:
            self._external = ExternalTokens(settings.external)
        keeping = Keeping(store)
        self._grants = Grants(keeping, settings.callers)
        clients = Clients(keeping, ClientDocuments(keeping, fetch_document))
        tickets, self._pages = Tickets(settings, keeping), Pages(settings)
        self._programs = TokenEndpoints(settings, clients, self._grants)
        self._people = Authorize(settings, clients, self._grants, tickets, self._pages, wrong_pause=wrong_pause)
        self._connections = Connections(settings, self._grants, tickets, self._pages)

    async def verify(self, token: str, scope: Scope | None = None) -> Principal | None:
        """Return whose token this is, or None when it does not hold.

        Raises:
            StoreUnavailable: nobody can say now; the answer is 503.
        """
        if not 0 < len(token) <= _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            return None
        if self._external is not None:
            return await self._external.verify(token, self._places(scope).resource)
        # In development the address of the server is whatever the request says.
        resource = None if self._settings.public_url is None else self._places(scope).resource
        return await self._grants.principal_of(token, resource)

    def challenge(self, error: str | None = None, scope: Scope | None = None) -> str:
        """Return the `WWW-Authenticate` of a 401; `error` when a token was given that does not hold."""
        return self._places(scope).challenge(error)

    def routes(self) -> list[Route]:
        """Return all routes, with their whole paths."""
        return [*self.well_known_routes(), *self.own_routes()]

    def well_known_routes(self) -> list[Route]:
        """Return the routes at the root of the host: documents, and JSON that says where none is."""
        path, prefix = places_of(self._settings, None).path, self._settings.prefix
        before = tuple(dict.fromkeys((path, prefix, "")))  # a proxy may have taken the path of the public address off
        protected = [PROTECTED_RESOURCE, *(f"{PROTECTED_RESOURCE}{one}/mcp" for one in before)]
        servers = [AUTHORIZATION_SERVER, *_under(AUTHORIZATION_SERVER, before)]
        nothing = [OPENID, *_under(OPENID, before), *(f"{one}{tail}{OPENID}" for one in before for tail in _TAILS)]
        # Who is given the path for callers' tokens alone must hear of nothing else there.
        names = (PROTECTED_RESOURCE, AUTHORIZATION_SERVER, OPENID)
        nothing += [f"{name}{one}/mcp/token" for name in names for one in before]
        found = [*((path, self._protected_resource) for path in protected), *((path, _nothing) for path in nothing)]
        found += [(path, self._authorization_server if self._external is None else _nothing) for path in servers]
        documents: list[Route] = [
            _WellKnown(path, for_programs(one), methods=["GET", "OPTIONS"], include_in_schema=False)
            for path, one in found
        ]
        return documents if self._external is not None else [*documents, *self._guessed_routes()]

    def _guessed_routes(self) -> list[Route]:
        """Return the endpoints where clients look that read no document, as the protocol of 2025-03-26 lets them."""
        programs = {"/token": self._programs.token, "/register": self._programs.register}
        return [
            _Asked("/authorize", for_people(self._pages, self._people.authorize), methods=["GET"]),
            *(_Guessed(path, for_programs(one), methods=["POST", "OPTIONS"]) for path, one in programs.items()),
        ]

    def own_routes(self) -> list[Route]:
        """Return the routes of the app's own authorization server, with the prefix; none beside an issuer."""
        if self._external is not None:
            return []
        base = f"{self._settings.prefix}/oauth"
        people, programs, connections = self._people, self._programs, self._connections
        pages = [
            ("GET", "authorize", people.authorize),
            ("POST", "sign-in", people.sign_in),
            ("POST", "consent", people.consent),
            ("GET", "connections", connections.show),
            ("POST", "connections", connections.end),
            ("GET", "page.css", self._style),
        ]
        endpoints = {"register": programs.register, "token": programs.token, "revoke": programs.revoke}
        return [
            *(_route(f"{base}/{name}", for_people(self._pages, page), method) for method, name, page in pages),
            *(_route(f"{base}/{name}", for_programs(one), "POST", "OPTIONS") for name, one in endpoints.items()),
        ]

    def _places(self, scope: Scope | None) -> Places:
        return places_of(self._settings, scope)

    async def _protected_resource(self, request: Request) -> Response:
        return _document(self._places(request.scope).protected_resource())

    async def _authorization_server(self, request: Request) -> Response:
        return _document(self._places(request.scope).authorization_server())

    async def _style(self, request: Request) -> Response:
        return self._pages.style()


class _WellKnown(Route, AtRoot):
    """An address at the root of the host; it steps back where the app has a route of its own there."""

    unknown: Callable[[str], str] = staticmethod(unknown_beside)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is Match.PARTIAL:  # another method
            return Match.NONE, {}
        if match is Match.FULL and is_apps_own(scope, self.unknown(self.path), self._method()):
            return Match.NONE, {}
        return match, child

    def _method(self) -> str:
        return next(one for one in sorted(self.methods or ()) if one in ("GET", "POST"))


class _Guessed(_WellKnown):
    """An address that apps have for themselves too, such as `/token`: one with a part that varies is theirs."""

    unknown = staticmethod(lambda _path: unknown_like("/a/b"))


class _Asked(_Guessed):
    """A page of the same address is the app's, even one for all unknown addresses."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if b"response_type=" not in scope.get("query_string", b""):
            return Match.NONE, {}
        return super().matches(scope)


def _under(document: str, before: Iterable[str]) -> list[str]:
    return [f"{document}{one}{tail}" for one in before for tail in _TAILS]


def _route(path: str, endpoint: Endpoint, *methods: str) -> Route:
    return Route(path, endpoint, methods=methods, include_in_schema=False)


def _document(body: dict[str, Any]) -> Response:
    return json_answer(200, body, {"cache-control": "max-age=60"})


async def _nothing(request: Request) -> Response:
    return json_answer(404, {"error": "not_found", "error_description": "there is no such document here"})
