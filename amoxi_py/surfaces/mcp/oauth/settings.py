"""What OAuth is told: who signs people in, where they find the server, and whose tokens it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.tokens import Callers

SCOPE = "mcp"
"""The one scope: what a person may do is what the app lets that person do."""

SignIn = Callable[[Request], Awaitable[Principal | None]]


class SignInBroken(Exception):
    """The app's own sign-in failed; it has been logged where it came up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalIssuer:
    """An authorization server of somebody else, whose signed tokens are taken.

    Attributes:
        issuer: As its tokens name it in `iss`, such as `https://login.example.com/realms/shop`.
        audience: What its tokens must have in `aud`; None for the address of `/mcp`.
        name_claim: Where a token holds the person's name; a dot leads into an object, also below.
        roles_claim: Where it holds the roles: a list, or one text with spaces.
        tenant_claim: Where it holds the tenant; None for an app that has none.
        scopes: What clients are told to ask it for.
    """

    issuer: str
    audience: str | None = None
    name_claim: str = "name"
    roles_claim: str = "roles"
    tenant_claim: str | None = None
    scopes: tuple[str, ...] = ()


def _offers_nothing(_principal: Principal) -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuthSettings:
    """How people connect.

    Attributes:
        app_name: Shown to the person.
        public_url: Where people find this server; None in development: then the request says it.
        prefix: Comes before `/mcp` and `/oauth`; empty for none.
        sign_in: The app's own sign-in, or None when it has none; it raises `SignInBroken`.
        sign_in_url: Where a person signs in to the app; it gets `?next=` with the way back.
        callers: Those of `/mcp`: a person may paste such a token in place of a sign-in.
        offers: What a person's program will be able to do, one line each.
        external: Whose tokens are taken in place of the app's own; the app is no authorization server then.
    """

    app_name: str
    public_url: str | None = None
    prefix: str = ""
    sign_in: SignIn | None = None
    sign_in_url: str | None = None
    callers: Callers = field(default_factory=dict, repr=False)
    offers: Callable[[Principal], Sequence[str]] = _offers_nothing
    external: ExternalIssuer | None = None
