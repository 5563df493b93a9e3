"""`amoxi token`: a random token for a program that calls, as a setting and as what its client wants to have."""

from __future__ import annotations

import json
import re
import secrets
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from amoxi_py.cli.mcp_snippets import Place, Snippet
    from amoxi_py.config.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")
_BYTES = 32


@click.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["api", "mcp", "a2a"]),
    help="The door it opens. Default: mcp where 'ai.mcp.enabled' is set, a2a where 'ai.a2a.enabled' is, else api.",
)
@click.option("--url", help="The address of the endpoint that clients are told, such as https://example.com/ai/mcp.")
@click.option("--only-setting", is_flag=True, help="Print the setting alone, as for >> .env.")
@click.option(
    "--profile",
    help="Look at this profile's settings. Default: AMOXI_PROFILE, else production, and dev for MCP and A2A.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def token(name: str, kind: str | None, url: str | None, only_setting: bool, profile: str | None, as_json: bool) -> None:
    """Make a token for the program NAME, and print the setting that lets it in.

    For MCP it prints what Claude Code, Claude Desktop, Cursor, VS Code and the APIs of Anthropic and OpenAI want to
    have, too; for A2A a first message. Nothing is written: put the setting into the environment of the server, or into
    .env for amoxi dev.
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(
            f"{name!r} is no name for a caller: letters and digits, with single - or _ between them, such as acme-eu"
        )
    if url is not None and not re.fullmatch(r"https?://[^/\s]+/\S*", url):
        raise click.UsageError(f"{url!r} is no address of an endpoint: write it whole, such as https://example.com/mcp")
    from amoxi_py.config.sections import variable_of

    settings = _settings(profile)
    chosen = kind or _kind_of(settings)
    if url is not None and chosen == "api":
        raise click.UsageError("--url is for MCP and A2A: say --kind mcp or --kind a2a too, or set 'ai.mcp.enabled'")
    plain = name.lower().replace("_", "-")
    variable = variable_of(f"ai.{chosen}.callers.{plain}")
    made = secrets.token_urlsafe(_BYTES)
    place = _place(settings, chosen, url, made)
    if as_json:
        told: dict[str, Any] = {
            "name": plain,
            "kind": chosen,
            "principal": f"{chosen}:{plain}",
            "variable": variable,
            "token": made,
            "setting": f"{variable}={made}",
        }
        if place is not None:
            texts = {one.client: {"title": one.title, "text": one.text} for one in _snippets(place)}
            told |= {"url": place.url, "client_variable": place.variable, "snippets": texts}
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    click.echo(f"{variable}={made}")
    if place is not None and not only_setting:
        click.echo(_to_paste(place))
    for line in _told(settings, plain, chosen, place, chose=kind is None):
        click.echo(line, err=True)


def _settings(profile: str | None) -> Settings:
    """Return the settings that say where the app is; mistakes in them are others' concern.

    A developer opens doors in `.env`, which is read in dev alone, so those are looked at too.
    """
    from amoxi_py.config.load import examine_settings
    from amoxi_py.config.settings import DEV

    settings, _ = examine_settings(profile=profile)
    if profile is None and _kind_of(settings) == "api":
        of_dev, _ = examine_settings(profile=DEV)
        return settings if _kind_of(of_dev) == "api" else of_dev
    return settings


def _kind_of(settings: Settings) -> str:
    """Return the door that a token is for when nobody says it."""
    if settings.ai.mcp.enabled:
        return "mcp"
    return "a2a" if settings.ai.a2a.enabled else "api"


def _place(settings: Settings, kind: str, url: str | None, made: str) -> Place | None:
    from amoxi_py.cli.a2a_snippets import A2aPlace, a2a_url_of, with_skill
    from amoxi_py.cli.mcp_snippets import Place, endpoint_of

    name = settings.app_name
    if kind == "mcp":
        return Place(app=name, url=url or endpoint_of(settings), token=made)
    if kind == "a2a":
        return with_skill(A2aPlace(app=name, url=url or a2a_url_of(settings), token=made), settings)
    return None


def _snippets(place: Place) -> tuple[Snippet, ...]:
    from amoxi_py.cli.a2a_snippets import A2aPlace, a2a_snippets_for
    from amoxi_py.cli.mcp_snippets import snippets_for

    return a2a_snippets_for(place) if isinstance(place, A2aPlace) else snippets_for(place)


def _to_paste(place: Place) -> str:
    parts = [
        f"\n# The app is at {place.url}. Clients that read the token from their environment want:",
        f"export {place.variable}={place.token}",
    ]
    for snippet in _snippets(place):
        parts += [f"\n# {snippet.title}", snippet.text]
    return "\n".join(parts)


def _told(settings: Settings, name: str, kind: str, place: Place | None, *, chose: bool) -> list[str]:
    principal = f"{kind}:{name}"
    door = {"api": "the HTTP routes", "mcp": "what /mcp offers", "a2a": "the agents at /a2a"}[kind]
    lines = [
        "",
        "The first line is a setting of the server: put it into its environment (or .env for amoxi dev), and start it",
        f"again. Who sends `Authorization: Bearer <the token>` is then {principal!r}: it may use {door},",
        "owns the runs that it starts, and sees no others. To change the token later without a gap, set the old and",
        "the new one with a comma between them. Nothing was written: it is not shown again.",
    ]
    if any(caller.door == kind and caller.name == name for caller in settings.callers):
        lines.append(
            f"There is a token of {principal!r} already: keep it beside the new one until its client has changed."
        )
    if place is None and chose:
        lines.append(
            "It is for the HTTP routes, because neither 'ai.mcp.enabled' nor 'ai.a2a.enabled' is set here; --kind mcp "
            "makes one for /mcp,\n--kind a2a one for /a2a."
        )
    enabled = {"mcp": settings.ai.mcp.enabled, "a2a": settings.ai.a2a.enabled}
    if not enabled.get(kind, True):
        lines.append(f"'ai.{kind}.enabled' is not set here, so /{kind} answers 404: set it to true for the server.")
    if kind == "a2a" and place is not None and not place.is_public:
        lines.append("Partners need an https address that the internet reaches: set 'server.public-url', or say --url.")
    if kind == "mcp" and place is not None and not place.is_public:
        lines.append(
            "The APIs of Anthropic and OpenAI, and claude.ai, call from their own servers, so they need an https\n"
            "address that the internet reaches: set 'server.public-url', or say --url."
        )
    return lines
