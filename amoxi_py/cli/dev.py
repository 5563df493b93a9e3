"""`amoxi dev`: the app on a developer's machine, started again on each save."""

from __future__ import annotations

import os
import sys

import click

from amoxi_py.cli.address import bind, given_address, port_of, url_of
from amoxi_py.cli.reloader import Reloader
from amoxi_py.cli.saves import watch_saves
from amoxi_py.cli.serving import serve_as_child
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import DEV


@click.command()
@click.option("--host", help="Listen here instead of 'server.host'.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here instead of 'server.port'.")
@click.option("--no-reload", is_flag=True, help="Do not start again on each save.")
def dev(host: str | None, port: int | None, no_reload: bool) -> None:
    """Run the app of the current folder for development.

    The profile is dev: visitors need no token, .env is read, /docs exists. Without a key of a model provider the
    offline model answers.

    A save of a source (.py, .md, .txt, .toml, .yaml, .sql, templates of Jinja) or of the settings starts the app anew.
    Runs in their middle go on in the new process at once; a thread, and a tool that must not run twice, may end
    in the old one first, for at most server.stop-grace-s. While the new version cannot start, the one before goes on.
    Folders named data, static and tests are not looked at.
    """
    settings = load_settings(profile=DEV, given=given_address(host, port))
    listener = bind(settings.server.host, settings.server.port)
    reloader = Reloader(
        serve_as_child,
        (listener, DEV, {"server.host": settings.server.host, "server.port": port_of(listener)}),
        greeting=f"{settings.app_name} is ready: {url_of(listener)}",
        way_to_kill=_way_to_kill,
        grace=settings.server.stop_grace_s,
        saves=None if no_reload else watch_saves(settings),
    )
    sys.exit(reloader.run())


def _way_to_kill(server: int) -> str | None:
    """Return how this process and the server end at once as in a power cut; None where no command can do that."""
    own = os.getpid()
    if sys.platform == "win32":
        return f"to kill it in the middle of its work: taskkill /F /T /PID {own}"
    if own == 1:  # nothing inside of a container can kill its first process
        return None
    if os.getpgrp() != own:  # the group is of what started this one: a script, make, or nobody's in this container
        return f"to kill it in the middle of its work: kill -9 {own} {server}"
    return f"to kill it in the middle of its work: kill -9 -{own}"
