"""One server process: the app behind uvicorn on a socket that is bound already, ended in an orderly way by a signal."""

from __future__ import annotations

import logging
import math
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from amoxi_py.cli.child import Lead
from amoxi_py.cli.leaving import end_in_time
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError

_IDLE_S = 75
"""Longer than proxies keep an idle connection (60 s is usual): who closes first must not be the server, whose end of
it can cross the next request."""


def serve(listener: socket.socket, settings: Settings, on_ready: Callable[[], None], lead: Lead | None = None) -> None:
    """Serve the app of the current folder until a signal ends it.

    Args:
        listener: The bound socket.
        settings: Of the app.
        on_ready: Called when the server takes traffic.
        lead: Says when it is this process's turn; None for at once.

    Raises:
        AmoxiError: the app cannot start, or something of it cannot be closed.
    """
    from asyncio import CancelledError  # here, so that the supervisor loads none of it

    import uvicorn

    from amoxi_py.app.logs import configure_logging
    from amoxi_py.app.memory_watch import watch_memory
    from amoxi_py.app.process import tune_memory
    from amoxi_py.app.web import create_app

    configure_logging(settings)
    app = create_app(settings)
    tune_memory()
    serving = app.state.amoxi

    def ready() -> None:
        watch_memory(lambda: serving.runtime.engine.executing)
        on_ready()

    serving.on_ready = ready
    serving.on_stop = lambda grace: end_in_time(grace, lambda: serving.runtime.stopped)
    if lead is not None:
        lead.on_hand_over = serving.hand_over
        lead.on_dead = serving.take_over
        serving.runtime.on_enrolled = lead.say_worker
        lead.wait_to_begin()
    told_elsewhere = (AmoxiError, CancelledError)
    logging.getLogger("uvicorn.error").addFilter(lambda _: not isinstance(serving.failure, told_elsewhere))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # ours tells no query, and has the id of the request
        lifespan="on",
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=math.ceil(settings.server.stop_grace_s),
        forwarded_allow_ips=list(settings.server.trusted_proxies),
        proxy_headers=bool(settings.server.trusted_proxies),
        server_header=False,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except SystemExit as leaving:
        if leaving.code and not isinstance(serving.failure, told_elsewhere):
            raise
    if isinstance(serving.failure, AmoxiError):
        raise serving.failure from None


def serve_as_child(
    lead: Lead, listener: socket.socket, profile: str, given: Mapping[str, Any], processes: int = 1
) -> None:
    """Do the same as `serve`, as a process of a supervisor.

    The settings are read anew, because files may have changed; what the command says, `given`, holds. The first
    process is told how many `processes` there will be, and warns when the database has too few connections for them.
    """
    try:
        settings = load_settings(profile=profile, given=given)
        if processes > 1:
            _compare_connections(settings, processes)
        serve(listener, settings, lead.say_ready, lead)
    except AmoxiError as error:
        print(f"amoxi: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def _compare_connections(settings: Settings, processes: int) -> None:
    """Say so when the database has too few connections for all processes; a pooler before it has its own number."""
    store = settings.ai.store
    if store.type != "postgres" or settings.listen_url is not None:
        return
    from amoxi_py.cli.checks.postgres_store import connections_in_words
    from amoxi_py.stores.postgres.inspection import look_at_places

    try:
        found = look_at_places(settings.database_url)
    except AmoxiError:  # opening the store says it, with its place
        return
    fit = found.places // store.connections
    if fit < processes:
        print(
            f"amoxi: {connections_in_words(found, store.connections)}: enough for {fit} of the {processes} processes; "
            f"raise max_connections, lower 'ai.store.connections', or start fewer with --workers {max(1, fit)}",
            file=sys.stderr,
            flush=True,
        )
