"""OAuth of the MCP door: who signs people in, and what their programs will be able to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from amoxi_py.app.runtime import Runtime
from amoxi_py.config.settings import Settings
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import ConfigError
from amoxi_py.surfaces.http.authentication import SignInFailed, ask
from amoxi_py.surfaces.http.settings import Authenticate

if TYPE_CHECKING:
    from amoxi_py.ports.store import Store
    from amoxi_py.surfaces.mcp.oauth.door import OAuth
    from amoxi_py.surfaces.mcp.oauth.grants import Grants
    from amoxi_py.surfaces.mcp.oauth.settings import ExternalIssuer, SignIn

_LONGEST_OFFER = 120


def oauth_of(runtime: Runtime, prefix: str, sign_in: Authenticate | None) -> OAuth | None:
    """Return what signs people in at the MCP door, or None when it is off.

    Raises:
        ConfigError: there is no way to sign in.
    """
    settings = runtime.settings
    if not settings.ai.mcp.oauth.enabled:
        return None
    from amoxi_py.surfaces.mcp.oauth.door import OAuth
    from amoxi_py.surfaces.mcp.oauth.settings import OAuthSettings

    callers = settings.callers_of("mcp")
    external = _external(settings)
    if external is None and sign_in is None and not callers:
        raise ConfigError(
            "'ai.mcp.oauth.enabled' is true, but nobody can sign in: the app has no @authenticate, and there is no "
            "token AI_MCP_CALLERS_<NAME> that a person could paste; add one of them, or set 'ai.mcp.oauth.issuer'"
        )
    told = OAuthSettings(
        app_name=settings.app_name,
        public_url=None if settings.server.public_url is None else settings.server.public_url.rstrip("/"),
        prefix=prefix,
        sign_in=None if sign_in is None else _asking(sign_in),
        sign_in_url=settings.ai.mcp.oauth.sign_in_url,
        callers=callers,
        offers=lambda principal: _offers(runtime, principal),
        external=external,
    )
    return OAuth(told, lambda: runtime.store)


def grants_of(store: Callable[[], Store]) -> Grants:
    """Return what people have allowed programs by OAuth, to be seen and ended."""
    from amoxi_py.surfaces.mcp.oauth.grants import Grants
    from amoxi_py.surfaces.mcp.oauth.keeping import Keeping

    return Grants(Keeping(store), {})


def _external(settings: Settings) -> ExternalIssuer | None:
    oauth = settings.ai.mcp.oauth
    if oauth.issuer is None:
        return None
    from amoxi_py.surfaces.mcp.oauth.settings import ExternalIssuer

    return ExternalIssuer(
        issuer=oauth.issuer,
        audience=oauth.audience,
        name_claim=oauth.name_claim,
        roles_claim=oauth.roles_claim,
        tenant_claim=oauth.tenant_claim,
        scopes=oauth.scopes,
    )


def _asking(sign_in: Authenticate) -> SignIn:
    from amoxi_py.surfaces.mcp.oauth.settings import SignInBroken

    async def person(request: Request) -> Principal | None:
        try:
            return await ask(sign_in, request)
        except SignInFailed as error:
            raise SignInBroken from error

    return person


def _offers(runtime: Runtime, principal: Principal) -> list[str]:
    engine = runtime.engine
    tools = [_line(tool.name.replace("_", " "), tool.description) for tool in engine.tools(principal)]
    agents = [_line(f"ask {agent.name}", agent.description) for agent in engine.agents(principal)]
    return tools + agents


def _line(name: str, description: str) -> str:
    first = description.strip().partition("\n")[0]
    line = f"{name}: {first}" if first else name
    return line if len(line) <= _LONGEST_OFFER else f"{line[: _LONGEST_OFFER - 1]}…"
