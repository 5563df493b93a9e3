"""`amoxi start`: the app in production."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import click

from amoxi_py.cli.address import bind, given_address, port_of, url_of
from amoxi_py.cli.cores import usable_cores
from amoxi_py.cli.serving import serve, serve_as_child
from amoxi_py.cli.supervisor import Supervisor
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings

_NUMBERS = "PROMETHEUS_MULTIPROC_DIR"  # as `app.numbers_folder` reads it, of which the supervisor loads nothing


@click.command()
@click.option("--workers", type=click.IntRange(min=1), help="Server processes; one a core by default.")
@click.option("--host", help="Listen here instead of 'server.host'.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here instead of 'server.port'.")
def start(workers: int | None, host: str | None, port: int | None) -> None:
    """Run the app of the current folder in production.

    Each process serves the web and executes runs; all of them share the port and the store.
    """
    settings = load_settings(given=given_address(host, port))
    listener = bind(settings.server.host, settings.server.port)
    given: dict[str, Any] = {"server.host": settings.server.host, "server.port": port_of(listener)}
    count = workers or usable_cores()
    greeting = f"{settings.app_name} is ready: {url_of(listener)}"
    if count == 1:
        serve(listener, load_settings(given=given), lambda: print(greeting, flush=True))
        return
    supervisor = Supervisor(
        count,
        serve_as_child,
        (listener, settings.profile, {**given, **_share_of_model_requests(settings, count)}),
        greeting=f"{greeting} ({count} processes)",
        grace=settings.server.stop_grace_s,
        on_stop=listener.close,  # else who connects now would be kept waiting until all have stopped
    )
    with _shared_numbers():
        code = supervisor.run()
    sys.exit(code)


@contextmanager
def _shared_numbers() -> Iterator[None]:
    """Give the processes a folder in which each finds the metrics of all, unless the environment names one."""
    if os.environ.get(_NUMBERS):
        yield
        return
    with TemporaryDirectory(prefix="amoxi-metrics-", ignore_cleanup_errors=True) as folder:
        os.environ[_NUMBERS] = folder
        with _locked(folder):
            yield


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """Keep systemd-tmpfiles out of a folder: it deletes what is old in places like `/tmp`, but nothing under a lock."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _share_of_model_requests(settings: Settings, count: int) -> dict[str, Any]:
    """Return the setting that gives each process its share of what the provider's key allows."""
    allowed = settings.ai.models.concurrency
    if not allowed:
        return {}
    if allowed < count:
        print(
            f"amoxi: 'ai.models.concurrency' is {allowed}, but each of the {count} processes makes one at once, "
            f"so there can be {count} in all; start fewer with --workers {allowed}",
            file=sys.stderr,
        )
    return {"ai.models.concurrency": max(1, allowed // count)}
