"""Who is who: an identity-aware proxy signs people in, and says who sends a request.

Its headers are believed only together with the secret that it shares with this app, because whoever reaches the app's
port past the proxy can send any header. The proxy must drop what a client sends under these names.
"""

import hmac
from pathlib import Path

from pydantic import BaseModel, Field, SecretStr
from starlette.requests import Request

from amoxi_py import NotAuthenticated, Principal, authenticate, settings

SECRET, USER, NAME, GROUPS = "x-proxy-secret", "x-auth-user", "x-auth-name", "x-auth-groups"


@settings("ops")
class OpsSettings(BaseModel):
    """What an operator sets; OPS_PROXY_SECRET, or the file that OPS_PROXY_SECRET_FILE names, is the proxy's."""

    proxy_secret: SecretStr = Field(min_length=32)
    production: list[str]
    releases: Path = Path("data/releases")


@authenticate
async def who_asks(request: Request, settings: OpsSettings) -> Principal:
    """Believe the proxy and nobody else: there are no visitors here."""
    given = _only(request, SECRET).encode("latin-1")  # as the bytes came
    if not hmac.compare_digest(given, settings.proxy_secret.get_secret_value().encode()):
        raise NotAuthenticated("come by the proxy")
    user = _only(request, USER)
    if not user:
        raise NotAuthenticated("the proxy says nobody's name")
    groups = (group.strip() for group in _only(request, GROUPS).split(","))
    return Principal(id=user, name=_only(request, NAME), roles=frozenset(filter(None, groups)))


def _only(request: Request, name: str) -> str:
    """Return a header's value; one that came twice is not the proxy's alone."""
    values = request.headers.getlist(name)
    if len(values) > 1:
        raise NotAuthenticated(f"the header {name} came twice")
    return values[0] if values else ""
