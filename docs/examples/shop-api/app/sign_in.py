"""Who asks the agents: the people of the shop, by the same tokens as at the shop's own routes."""

from starlette.requests import Request

from amoxi_py import NotAuthenticated, Principal, authenticate

from .people import BadToken, read_token
from .settings import ShopSettings


@authenticate
async def who_asks(request: Request, settings: ShopSettings) -> Principal | None:
    """Read the token. One that is expired or forged is refused, and never makes anybody a visitor."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    try:
        person = read_token(token.strip(), settings)
    except BadToken as problem:
        raise NotAuthenticated(str(problem)) from problem
    return Principal(id=person.login, name=person.name, tenant=person.tenant, roles=frozenset(person.roles))
