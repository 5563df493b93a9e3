"""Requests to addresses that others named: what may be reached, and how a request goes to the address that was checked.

A name is resolved once for a request, and connected to as it was resolved: one that points to another address a moment
later (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeVar
from urllib.parse import SplitResult

import httpx2

_MOST_ADDRESSES = 3
"""Of one name that are tried."""

_NOT_PUBLIC = tuple(
    ip_network(net)
    for net in (
        *("64:ff9b::/96", "64:ff9b:1::/48"),  # they lead to another address
        *("fec0::/10", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24"),  # public for some versions of Python
        "168.63.129.16/32",  # a cloud's own services
    )
)

T = TypeVar("T")
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the addresses of a host for a port; raises `OSError` or `UnicodeError` where there are none."""


def is_public(text: str) -> bool:
    """Whether an address is one of the public internet, and hides no other one in itself."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        hidden: IPv4Address | None = address.ipv4_mapped or address.sixtofour
        if hidden is not None or address.teredo is not None:
            return False
    if any(address in net for net in _NOT_PUBLIC if net.version == address.version):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def pinned(parts: SplitResult, address: str, port: int) -> str:
    """Return the URL with an address in place of its host; the request's `Host` and TLS name stay the host's."""
    host = f"[{address}]" if ":" in address else address
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return f"{parts.scheme}://{host}:{port}{target}"


async def to_first_open(
    addresses: Sequence[str],
    send: Callable[[str, float | None], Awaitable[T]],
    *,
    next_after: float,
    shut: type[Exception] | tuple[type[Exception], ...],
) -> T:
    """Return what sending to one of a name's addresses brings: a server may have no way to those of one kind.

    Args:
        addresses: In the order in which they are tried.
        send: Sends to an address, which has so many seconds to be connected to; None for as many as the request has.
        next_after: The seconds that an address has which is not the last one.
        shut: What is raised where nothing answers.
    """
    *first, last = addresses[:_MOST_ADDRESSES]
    for address in first:
        try:
            return await send(address, next_after)
        except shut:
            continue
    return await send(last, None)


def addresses_of(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as `Resolve` does; a name server that does not answer holds the thread."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the certificates that are trusted; reading them takes long enough to be noticed, so it is done once."""
    return httpx2.create_ssl_context(trust_env=False)
