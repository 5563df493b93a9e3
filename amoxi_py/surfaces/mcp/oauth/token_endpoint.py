"""Where programs come: to register, for tokens, and to give them back."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from amoxi_py.surfaces.mcp.oauth.answers import OAuthError, json_answer, read_body, read_form
from amoxi_py.surfaces.mcp.oauth.clients import Clients
from amoxi_py.surfaces.mcp.oauth.grants import Grants
from amoxi_py.surfaces.mcp.oauth.limits import Allowance
from amoxi_py.surfaces.mcp.oauth.places import places_of
from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings

_REGISTRATIONS_AN_HOUR = 200
_WRONG_A_MINUTE = 120
_LARGEST_REGISTRATION = 8 * 1024


class TokenEndpoints:
    """`/oauth/register`, `/oauth/token` and `/oauth/revoke`."""

    def __init__(self, settings: OAuthSettings, clients: Clients, grants: Grants) -> None:
        self._settings = settings
        self._clients = clients
        self._grants = grants
        self._registrations = Allowance("registrations", _REGISTRATIONS_AN_HOUR, 3600.0)
        self._wrong = Allowance("requests that do not hold", _WRONG_A_MINUTE, 60.0)

    async def register(self, request: Request) -> Response:
        """Register a client; anybody may (RFC 7591), so what is not used is forgotten after a week."""
        self._registrations.use(request)
        return json_answer(201, await self._clients.register(await read_body(request, _LARGEST_REGISTRATION)))

    async def token(self, request: Request) -> Response:
        """Give tokens for a code or a refresh token."""
        try:
            return json_answer(200, await self._token(request), {"pragma": "no-cache"})  # RFC 6749, section 5.1
        except OAuthError:
            self._wrong.use(request)
            raise

    async def _token(self, request: Request) -> dict[str, object]:
        form = await read_form(request)
        client = await self._clients.authenticated(request, form)
        resource, places = form.get("resource"), places_of(self._settings, request.scope)
        if resource is not None and not places.is_resource(resource):
            raise OAuthError("invalid_target", "'resource' is not the address of this server's MCP endpoint")
        ours = None if self._settings.public_url is None else places.resource
        kind = form.get("grant_type")
        if kind == "authorization_code":
            tokens = await self._grants.exchange(client, form, ours)
        elif kind == "refresh_token":
            tokens = await self._grants.refresh(client, form, ours)
        elif kind is None:
            raise OAuthError("invalid_request", "'grant_type' is missing")
        else:
            raise OAuthError("unsupported_grant_type", "'grant_type' is authorization_code or refresh_token")
        await self._clients.used(client)
        return tokens

    async def revoke(self, request: Request) -> Response:
        """Take a token back (RFC 7009); one that nobody knows is none already."""
        form = await read_form(request)
        client = await self._clients.authenticated(request, form)
        token = form.get("token")
        if token is None:
            raise OAuthError("invalid_request", "'token' is missing")
        await self._grants.revoke(client, token)
        return json_answer(200, {})
