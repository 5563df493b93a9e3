"""The address a server listens on: bound once, by the process that the operator started."""

from __future__ import annotations

import errno
import socket
import sys
from typing import Any

from amoxi_py.errors import AddressUnusable

_BACKLOG = 2048


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        AddressUnusable: that cannot be; with the reason and the way out.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise AddressUnusable(f"'server.host' is {host!r}, which is no address of this machine: {error}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressUnusable(_refusal(host, port, error)) from error
    listener.set_inheritable(True)
    return listener


def given_address(host: str | None, port: int | None) -> dict[str, Any]:
    """Return what the options of a command say, as settings."""
    options = {"server.host": host, "server.port": port}
    return {key: value for key, value in options.items() if value is not None}


def port_of(listener: socket.socket) -> int:
    """Return the port that was given, also when any was asked for."""
    return int(listener.getsockname()[1])


def url_of(listener: socket.socket) -> str:
    """Return the address to open on this machine."""
    host, port = listener.getsockname()[:2]
    return local_url(host, port)


def local_url(host: str, port: int) -> str:
    """Return the address by which a server that listens there is opened on this machine."""
    if host in ("127.0.0.1", "0.0.0.0", "::", "::1"):  # noqa: S104 - compared, not bound
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host!r} is in use: stop what uses it, or choose another with SERVER_PORT"
    if error.errno == errno.EACCES:
        return f"port {port} of {host!r} is not allowed to this user: choose one above 1023 with SERVER_PORT"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"'server.host' is {host!r}, which is no address of this machine: choose one of its own"
    return f"port {port} of {host!r} cannot be listened on: {error.strerror or error}"
