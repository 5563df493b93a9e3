"""`amoxi token`: a random token for a program that calls, as a setting that is ready to paste."""

from __future__ import annotations

import json
import re
import secrets

import click

_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")
_BYTES = 32
_LATER = {"mcp": "MCP", "a2a": "A2A"}


@click.command()
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(["api", "mcp", "a2a"]), default="api", show_default=True, help="The door it opens."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def token(name: str, kind: str, as_json: bool) -> None:
    """Make a token for the program NAME, and print the setting that lets it in.

    Nothing is written: put the setting into the environment of the server, or into .env for amoxi dev. The program
    sends the token with each request, as `Authorization: Bearer ...`.
    """
    if kind in _LATER:
        raise click.UsageError(
            f"callers by {_LATER[kind]} are not in this version, so a token of the kind {kind!r} would open nothing; "
            "--kind api opens the HTTP routes"
        )
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} is no name for a caller: letters and digits, with single - or _ between them, such as acme-eu"
        )
    from amoxi_py.config.sections import variable_of

    plain = name.lower().replace("_", "-")
    variable = variable_of(f"ai.{kind}.callers.{plain}")
    principal = f"{kind}:{plain}"
    made = secrets.token_urlsafe(_BYTES)
    if as_json:
        told = {"name": plain, "kind": kind, "principal": principal, "variable": variable, "token": made}
        click.echo(json.dumps(told))
        return
    click.echo(f"{variable}={made}")
    click.echo(
        f"\nThis is a setting of the server: put it into its environment (or .env for amoxi dev), start it again.\n"
        f"Who sends `Authorization: Bearer <the token>` is then {principal!r}: it may use the HTTP routes, owns\n"
        f"the runs that it starts, and sees no others. To change the token later without a gap, set the old and\n"
        f"the new one with a comma between them. Nothing was written: it is not shown again.",
        err=True,
    )
