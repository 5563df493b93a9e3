"""One server process: the app behind uvicorn on a socket that is bound already, ended in an orderly way by a signal."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from amoxi_py.cli.leaving import end_in_time
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError


def serve(listener: socket.socket, settings: Settings, on_ready: Callable[[], None]) -> None:
    """Serve the app of the current folder until a signal ends it.

    Args:
        listener: The bound socket.
        settings: Of the app.
        on_ready: Called when the server takes traffic.

    Raises:
        AmoxiError: the app cannot start.
    """
    import uvicorn  # here, so that the supervisor does not load it

    from amoxi_py.app.logs import configure_logging
    from amoxi_py.app.web import create_app

    configure_logging(settings)
    app = create_app(settings)
    serving = app.state.amoxi
    serving.on_ready = on_ready
    serving.on_stop = lambda grace: end_in_time(grace, lambda: serving.runtime.stopped)
    logging.getLogger("uvicorn.error").addFilter(lambda _: not isinstance(serving.failure, AmoxiError))
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=settings.dev,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(settings.server.stop_grace_s),
        forwarded_allow_ips=list(settings.server.trusted_proxies),
        proxy_headers=bool(settings.server.trusted_proxies),
        server_header=False,
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except SystemExit as leaving:
        if isinstance(serving.failure, AmoxiError):
            raise serving.failure from None
        if leaving.code:
            raise


def serve_as_child(link: Connection, listener: socket.socket, profile: str, given: Mapping[str, Any]) -> None:
    """Do the same as `serve`, as a process of the supervisor at the other end of `link`.

    The settings are read anew, because files may have changed; what the command says, `given`, holds.
    """
    from amoxi_py.cli.supervisor import READY

    threading.Thread(target=_stop_with_supervisor, args=(link,), name="amoxi-supervisor", daemon=True).start()
    try:
        serve(listener, load_settings(profile=profile, given=given), lambda: link.send_bytes(READY))
    except AmoxiError as error:
        print(f"amoxi: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def _stop_with_supervisor(link: Connection) -> None:
    """Stop this process when the supervisor is gone: it would keep the port, and nobody could stop it."""
    try:
        link.recv_bytes()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
