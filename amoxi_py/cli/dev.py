"""`amoxi dev`: the app on a developer's machine, started again on each save."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from amoxi_py.cli.address import bind, given_address, port_of, url_of
from amoxi_py.cli.serving import serve_as_child
from amoxi_py.cli.supervisor import Supervisor
from amoxi_py.config.load import SETTINGS_FILE, load_settings
from amoxi_py.config.settings import DEV, Settings


@click.command()
@click.option("--host", help="Listen here instead of 'server.host'.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here instead of 'server.port'.")
@click.option("--no-reload", is_flag=True, help="Do not start again on each save.")
def dev(host: str | None, port: int | None, no_reload: bool) -> None:
    """Run the app of the current folder for development.

    The profile is dev: visitors need no token, .env is read, /docs exists. Without a key of a model provider the
    offline model answers.
    """
    settings = load_settings(profile=DEV, given=given_address(host, port))
    listener = bind(settings.server.host, settings.server.port)
    supervisor = Supervisor(
        1,
        serve_as_child,
        (listener, DEV, {"server.host": settings.server.host, "server.port": port_of(listener)}),
        greeting=f"{settings.app_name} is ready: {url_of(listener)}\n{_way_to_kill()}",
        grace=settings.server.stop_grace_s,
    )
    changes = None if no_reload else _changes(settings)
    sys.exit(supervisor.run(changes))


def _way_to_kill() -> str:
    """Say how all processes end at once as in a power cut; what started this one (make, uv) is of the same group."""
    if sys.platform == "win32":
        return f"to kill it in the middle of its work: taskkill /F /T /PID {os.getpid()}"
    return f"to kill it in the middle of its work: kill -9 -{os.getpgrp()}"


def _changes(settings: Settings) -> Iterator[bool]:
    """Say again and again, about four times a second, whether a file of the app or of its settings was saved."""
    from watchfiles import DefaultFilter, PythonFilter, watch

    package = settings.folder / settings.app.package.split(".")[0]
    is_package = package.is_dir()  # else it may be one module, and what else is in the folder may be a log of this
    before = _settings_files(settings.folder)
    for changed in watch(
        package if is_package else settings.folder,
        watch_filter=DefaultFilter() if is_package else PythonFilter(),
        recursive=is_package,
        yield_on_timeout=True,
        rust_timeout=250,
        step=50,
        raise_interrupt=False,
    ):
        now = _settings_files(settings.folder)
        yield bool(changed) or now != before
        before = now


def _settings_files(folder: Path) -> dict[str, int]:
    files = [*folder.glob(SETTINGS_FILE.replace(".json", "*.json")), *folder.glob(".env")]
    return {file.name: file.stat().st_mtime_ns for file in files if file.exists()}
