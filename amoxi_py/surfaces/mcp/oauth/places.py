"""The addresses of one server: of the protected resource `/mcp`, of its authorization server, and their documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Scope

from amoxi_py.surfaces.mcp.oauth.settings import SCOPE, OAuthSettings
from amoxi_py.surfaces.origins import DEFAULT_PORTS

PROTECTED_RESOURCE = "/.well-known/oauth-protected-resource"
AUTHORIZATION_SERVER = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


class Places:
    """All addresses under one base such as `https://shop.example.com`.

    Attributes:
        resource: Of `/mcp`, as the person types it, without a slash at the end.
        issuer: Of the app's own authorization server.
    """

    def __init__(self, base: str, prefix: str, external: str | None, scopes: Sequence[str] = (SCOPE,)) -> None:
        parts = urlsplit(base)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.path = parts.path.rstrip("/") + prefix
        self.resource = f"{self.origin}{self.path}/mcp"
        self.issuer = f"{self.origin}{self.path}/oauth"
        self.external = external
        self.scopes = list(scopes)

    @property
    def metadata_url(self) -> str:
        """Of the protected resource's document, with the resource's path behind the well-known one (RFC 9728)."""
        return f"{self.origin}{PROTECTED_RESOURCE}{self.path}/mcp"

    def protected_resource(self) -> dict[str, Any]:
        """Return the protected resource's document."""
        scopes = {"scopes_supported": self.scopes} if self.scopes else {}  # RFC 9728, section 3.2: no empty list
        return {
            "resource": self.resource,
            "authorization_servers": [self.external or self.issuer],
            **scopes,
            "bearer_methods_supported": ["header"],
        }

    def authorization_server(self) -> dict[str, Any]:
        """Return the authorization server's document (RFC 8414)."""
        methods = ["none", "client_secret_post", "client_secret_basic"]
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "scopes_supported": [SCOPE],
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": methods,
            "revocation_endpoint_auth_methods_supported": methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": True,
        }

    def is_resource(self, asked: str) -> bool:
        """Whether a `resource` parameter (RFC 8707) names `/mcp`; a slash at the end, letters and ports may differ."""
        return _plain(asked) == _plain(self.resource)

    def challenge(self, error: str | None) -> str:
        """Return the `WWW-Authenticate` of a 401 (RFC 9728, section 5.1); its address is absolute."""
        parts = [f'resource_metadata="{self.metadata_url}"']
        if self.scopes:
            parts.append(f'scope="{" ".join(self.scopes)}"')
        if error is not None:
            parts.insert(0, f'error="{error}", error_description="the token does not hold, or not any more"')
        return f"Bearer {', '.join(parts)}"


def places_of(settings: OAuthSettings, scope: Scope | None) -> Places:
    """Return the addresses; without a public one they are those by which the request came."""
    base = settings.public_url or (None if scope is None else _base_of(scope)) or "http://localhost:8080"
    if settings.external is not None:
        return Places(base, settings.prefix, settings.external.issuer, settings.external.scopes)
    return Places(base, settings.prefix, None)


def base_of(settings: OAuthSettings, request: Request) -> str:
    """Return the path of `/oauth` in the browser, which a proxy may have taken a part off."""
    path = urlsplit(settings.public_url).path.rstrip("/") if settings.public_url else ""
    return f"{path or request.scope.get('root_path', '')}{settings.prefix}/oauth"


def _base_of(scope: Scope) -> str | None:
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
    return f"{scope.get('scheme', 'http')}://{host}" if host else None


def _plain(url: str) -> tuple[str, str | None, int | None, str, str] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme.lower())
    except ValueError:
        return None
    if parts.fragment or parts.username or parts.password:
        return None
    return parts.scheme.lower(), parts.hostname, port, parts.path.rstrip("/"), parts.query
