"""How a command is told whose things it is about: an id as runs have it, and a tenant where the app has some."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from amoxi_py.domain.principal import Principal
    from amoxi_py.engine.operator import Operator

_CHANNELS = ("user", "web", "api", "mcp", "a2a", "system")

principal_id = click.argument("principal", metavar="PRINCIPAL")
tenant_option = click.option("--tenant", metavar="TENANT", help="The principal's tenant, in an app that has some.")


def read_principal(principal: str, tenant: str | None) -> Principal:
    """Return who is meant; what nobody can have is a wrong use."""
    from amoxi_py.domain.placing import signed_in
    from amoxi_py.domain.principal import Principal
    from amoxi_py.errors import InvalidRequest

    channel, colon, rest = principal.partition(":")
    if not colon or not rest or channel not in _CHANNELS:
        known = ", ".join(f"{one}:..." for one in _CHANNELS)
        raise click.UsageError(
            f"{principal!r} is nobody's id, which begins with its channel, such as user:42 ({known})"
        )
    try:
        signed_in(Principal(id=rest, tenant=tenant))
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from error
    return Principal(id=principal, tenant=tenant)


async def tenants_beside(operator: Operator, principal: Principal) -> tuple[str, ...]:
    """Return tenants in which somebody of this id has conversations, when no tenant was named."""
    return await operator.store.tenants_with(principal.id) if principal.tenant is None else ()


def tell_nothing_kept(principal: Principal, tenants: tuple[str, ...], profile: str | None) -> None:
    """Say on stderr that nothing is kept of somebody, and where there is something of the same id."""
    from amoxi_py.app.operating import which_store

    of = f"{principal.id!r}" if principal.tenant is None else f"{principal.id!r} of the tenant {principal.tenant!r}"
    print(f"nothing is kept of {of}: {which_store(profile)}", file=sys.stderr)
    if tenants:
        named = ", ".join(map(repr, tenants))
        print(f"somebody of this id is in the tenants {named}: name one with --tenant", file=sys.stderr)
