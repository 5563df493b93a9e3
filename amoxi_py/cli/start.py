"""`amoxi start`: the app in production."""

from __future__ import annotations

import os
import sys

import click

from amoxi_py.cli.address import bind, port_of, url_of
from amoxi_py.cli.serving import serve, serve_as_child
from amoxi_py.cli.supervisor import Supervisor
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings


@click.command()
@click.option("--workers", type=click.IntRange(min=1), help="Server processes; one a core by default.")
@click.option("--host", help="Listen here instead of 'server.host'.")
@click.option("--port", type=click.IntRange(0, 65535), help="Listen here instead of 'server.port'.")
def start(workers: int | None, host: str | None, port: int | None) -> None:
    """Run the app of the current folder in production.

    Each process serves the web and executes runs; all of them share the port and the store.
    """
    settings = load_settings()
    listener = bind(host or settings.server.host, settings.server.port if port is None else port)
    os.environ["SERVER_PORT"] = str(port_of(listener))
    count = workers or _cores()
    greeting = f"{settings.app_name} is ready: {url_of(listener)}"
    if count == 1:
        serve(listener, settings.profile, lambda: print(greeting, flush=True))
        return
    _divide_model_requests(settings, count)
    supervisor = Supervisor(
        count,
        serve_as_child,
        (listener, settings.profile),
        greeting=f"{greeting} ({count} processes)",
        grace=settings.server.stop_grace_s,
    )
    sys.exit(supervisor.run())


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _divide_model_requests(settings: Settings, count: int) -> None:
    """Give each process its share of what the provider's key allows."""
    if settings.ai.models.concurrency:
        share = max(1, settings.ai.models.concurrency // count)
        os.environ.pop("AI_MODELS_CONCURRENCY_FILE", None)
        os.environ["AI_MODELS_CONCURRENCY"] = str(share)
