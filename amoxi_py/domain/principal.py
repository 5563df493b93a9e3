"""Who asks: a principal, the channel it came by, and the isolation that hangs on its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Channel = Literal["web", "api", "mcp", "a2a", "code"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, stored with the run; it holds no secret.

    Attributes:
        id: `web:<visitor>`, `api:<name>`, `mcp:<name>`, `a2a:<name>`, `user:<id>` or `system:<name>`; the part before
            the colon is written by the framework. An app's own sign-in gives only its id, and `user:` is added.
        name: For people to read; may be empty.
        channel: The door: `web`, `api`, `mcp`, `a2a`, or `code` for the app's own.
        tenant: Of an app that has several.
        roles: What `approver="role:<name>"` and `allow` look at.
        claims: A small JSON object, of the app's own.
    """

    id: str
    name: str = ""
    channel: Channel = "code"
    tenant: str | None = None
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.roles, frozenset):
            object.__setattr__(self, "roles", frozenset(self.roles))


def principal_to_json(principal: Principal) -> dict[str, Any]:
    """Return what is stored of a principal beside its id; defaults are left out."""
    facts: dict[str, Any] = {"channel": principal.channel}
    if principal.name:
        facts["name"] = principal.name
    if principal.tenant is not None:
        facts["tenant"] = principal.tenant
    if principal.roles:
        facts["roles"] = sorted(principal.roles)
    if principal.claims:
        facts["claims"] = dict(principal.claims)
    return facts


def principal_from_json(id: str, facts: Mapping[str, Any]) -> Principal:
    """Return the principal that was stored."""
    return Principal(
        id=id,
        name=facts.get("name", ""),
        channel=facts.get("channel", "code"),
        tenant=facts.get("tenant"),
        roles=frozenset(facts.get("roles", ())),
        claims=facts.get("claims", {}),
    )
