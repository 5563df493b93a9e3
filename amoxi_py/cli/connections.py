"""`amoxi connections`: what people have allowed programs by OAuth, and its end; it works beside running servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from amoxi_py.cli.operating import json_option, operate, profile_option, short_time, tell_nothing
from amoxi_py.cli.principal import principal_id, tenant_option
from amoxi_py.cli.tables import print_json, print_table
from amoxi_py.cli.visible_text import one_line

if TYPE_CHECKING:
    from amoxi_py.domain.principal import Principal
    from amoxi_py.engine.operator import Operator
    from amoxi_py.surfaces.mcp.oauth.grants import Connection, Grants


@click.group()
def connections() -> None:
    """See and end what people have allowed programs at /mcp, such as those of somebody who has left.

    PRINCIPAL is user:42 for a person, or mcp:NAME for those who pasted that caller's token.
    """


@connections.command("list")
@principal_id
@tenant_option
@profile_option
@json_option
def list_connections(principal: str, tenant: str | None, profile: str | None, as_json: bool) -> None:
    """List a person's connections, oldest first."""

    async def read(operator: Operator) -> list[Connection]:
        return await _grants(operator).connections(_person(principal, tenant))

    found = operate(read, profile=profile)
    if as_json:
        from amoxi_py.domain.event import time_text

        rows = [(one.client_name, one.target, time_text(one.created_at)) for one in found]
        print_json({"items": [dict(zip(("program", "target", "created_at"), row, strict=True)) for row in rows]})
    elif found:
        rows = [(one_line(one.client_name), one_line(one.target), short_time(one.created_at)) for one in found]
        print_table(("program", "where it goes", "since"), rows, whole=("since",))
    else:
        tell_nothing("no connections", profile)


@connections.command()
@principal_id
@tenant_option
@profile_option
@json_option
def end(principal: str, tenant: str | None, profile: str | None, as_json: bool) -> None:
    """End all of a person's connections, for all servers from their next request on."""

    async def end_all(operator: Operator) -> int:
        return await _grants(operator).end_all_of(_person(principal, tenant))

    count = operate(end_all, profile=profile)
    if as_json:
        print_json({"ended": count})
    elif count:
        click.echo(f"ended: {count}")
    else:
        tell_nothing("no connections", profile)


def _grants(operator: Operator) -> Grants:
    from amoxi_py.app.oauth import grants_of

    return grants_of(lambda: operator.store)


def _person(principal: str, tenant: str | None) -> Principal:
    from amoxi_py.domain.principal import Principal

    return Principal(id=principal, tenant=tenant)
