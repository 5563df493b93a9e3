"""Who asks: a principal, the channel it came by, and the isolation that hangs on its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Channel = Literal["web", "api", "mcp", "a2a", "code"]


_SEPARATOR = "\x1f"  # no id and no tenant holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, stored with the run; it holds no secret.

    Attributes:
        id: `web:<visitor>`, `api:<name>`, `mcp:<name>`, `a2a:<name>`, `user:<id>` or `system:<name>`; the part before
            the colon is written by the framework. An app's own sign-in gives only its id, and `user:` is added.
        name: For people to read; may be empty.
        channel: The door: `web`, `api`, `mcp`, `a2a`, or `code` for the app's own. None until the framework has placed
            it: then `user:` goes before the id, whatever that says.
        tenant: Of an app that has several; the same id in another tenant is somebody else.
        roles: What `approver="role:<name>"` and `allow` look at.
        claims: A small JSON object, of the app's own.
    """

    id: str
    name: str = ""
    channel: Channel | None = None
    tenant: str | None = None
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict)

    @property
    def owner_key(self) -> str:
        """What is stored with a thing of this principal: the id and the tenant, for one id may be in two tenants."""
        return self.id + self.tenant_key

    @property
    def tenant_key(self) -> str:
        """The part of `owner_key` that all principals of a tenant share; empty without a tenant."""
        return "" if self.tenant is None else _SEPARATOR + self.tenant

    def __post_init__(self) -> None:
        if isinstance(self.roles, str):  # its letters would become roles
            raise TypeError(f"the roles {self.roles!r} of a principal must be a set, such as {{{self.roles!r}}}")
        if not isinstance(self.roles, frozenset):
            object.__setattr__(self, "roles", frozenset(self.roles))


def principal_to_json(principal: Principal) -> dict[str, Any]:
    """Return what is stored of a principal beside its id; defaults are left out."""
    facts: dict[str, Any] = {} if principal.channel is None else {"channel": principal.channel}
    if principal.name:
        facts["name"] = principal.name
    if principal.tenant is not None:
        facts["tenant"] = principal.tenant
    if principal.roles:
        facts["roles"] = sorted(principal.roles)
    if principal.claims:
        facts["claims"] = dict(principal.claims)
    return facts


def id_of_owner(owner_key: str) -> str:
    """Return the id of the principal that has this `owner_key`."""
    return owner_key.partition(_SEPARATOR)[0]


def principal_from_json(id: str, facts: Mapping[str, Any]) -> Principal:
    """Return the principal that was stored."""
    return Principal(
        id=id,
        name=facts.get("name", ""),
        channel=facts.get("channel"),
        tenant=facts.get("tenant"),
        roles=frozenset(facts.get("roles", ())),
        claims=facts.get("claims", {}),
    )
