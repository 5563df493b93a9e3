"""`amoxi erase`: the end of all that is kept of one principal; it works beside running servers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from amoxi_py.cli.operating import json_option, operate, profile_option
from amoxi_py.cli.principal import principal_id, read_principal, tell_nothing_kept, tenant_option, tenants_beside
from amoxi_py.cli.progress import Progress
from amoxi_py.cli.tables import print_fields, print_json

if TYPE_CHECKING:
    from amoxi_py.app.erasing import Erased
    from amoxi_py.engine.operator import Operator


@click.command()
@principal_id
@tenant_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@profile_option
@json_option
def erase(principal: str, tenant: str | None, yes: bool, profile: str | None, as_json: bool) -> None:
    """Delete all that is kept of a principal, for good.

    PRINCIPAL is user:42, web:..., api:NAME, mcp:NAME or a2a:NAME. Its open runs are cancelled; its conversations,
    files, keys and connections are deleted. What it has decided about runs of others stays, without its name. Take its
    sign-in or token away before: what it sends after this is kept again.
    """
    who = read_principal(principal, tenant)
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"this deletes all that is kept of {principal!r}: say --yes")
        click.confirm(f"Delete all that is kept of {principal!r}?", abort=True, err=True)

    async def erase_all(operator: Operator) -> tuple[Erased, tuple[str, ...]]:
        from amoxi_py.app.erasing import erase_principal

        with Progress("erasing conversations", None) as progress:
            erased = await erase_principal(operator, who, on_conversation=progress.advance)
        return erased, await tenants_beside(operator, who) if erased.nothing else ()

    erased, tenants = operate(erase_all, profile=profile)
    counts = {name: getattr(erased, name) for name in erased.__struct_fields__}
    if as_json:
        print_json(counts)
    elif not erased.nothing:
        print_fields([(name.replace("_", " "), str(count)) for name, count in counts.items()])
    if erased.nothing:
        tell_nothing_kept(who, tenants, profile)
