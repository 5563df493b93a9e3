"""Where webhooks may go: to the public internet over https, and to what the operator has named.

It is asked when a webhook is set and again at each delivery, for a name may lead elsewhere by then.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from amoxi_py.surfaces.a2a.push_allowed import Allowed
from amoxi_py.surfaces.outgoing import Resolve, is_public

_LONGEST_URL = 2048
_FOUND_WITHIN_S = 5.0
NOT_FOUND = "its host is not on the public internet"
"""Also for a host that is not found at all: nobody is told which names there are inside."""
_NO_HTTP = "it must be an https URL"
_PORTS = {"https": 443, "http": 80}
_UNKNOWN = frozenset(
    getattr(socket, name)
    for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY", "EAI_FAIL")
    if hasattr(socket, name)
)
"""What name servers say of a host that is not there; any other failure passes."""
_URL = re.compile(r"[!-\[\]-~]+")  # visible ASCII without the backslash, which programs read in two ways


class TargetRefused(Exception):
    """No webhook may go there; the text may be told to who named it."""


class NotFoundNow(OSError):
    """A host could not be looked up for now; it may be there."""


def read_target(url: str, allowed: Allowed) -> SplitResult:
    """Return the parts of a webhook's URL, as far as it can be judged without asking for its addresses.

    Raises:
        TargetRefused: no webhook may go there, wherever the host leads.
    """
    if len(url) > _LONGEST_URL or not _URL.fullmatch(url):
        raise TargetRefused(
            f"it must be of at most {_LONGEST_URL} visible ASCII characters without a backslash (encode the others)"
        )
    try:
        parts = urlsplit(url)
        host, port = host_of(parts), port_of(parts)
    except ValueError as error:
        raise TargetRefused("it is not a URL") from error
    if parts.scheme not in _PORTS or not host or not 0 < port < 65536:
        raise TargetRefused("it must be an https URL, such as 'https://agent.example.com/updates'")
    if "@" in parts.netloc:
        raise TargetRefused("it must hold no user name; use `authentication`")
    if parts.scheme == "http" and not allowed.names(host, port) and not allowed.networks:
        raise TargetRefused(_NO_HTTP)
    return parts


async def find_addresses(parts: SplitResult, allowed: Allowed, resolve: Resolve) -> Sequence[str]:
    """Return the addresses that a webhook may be sent to.

    Raises:
        TargetRefused: one of them is not public, and not allowed by the operator.
        NotFoundNow: they could not be looked up in time.
        OSError: there are none.
    """
    host, port = host_of(parts), port_of(parts)
    try:
        async with asyncio.timeout(_FOUND_WITHIN_S):
            addresses = await resolve(host, port)
    except TimeoutError as error:
        raise NotFoundNow("its host is not found in time") from error
    except socket.gaierror as error:
        if error.errno in _UNKNOWN:
            raise
        raise NotFoundNow("its host cannot be looked up now") from error
    except UnicodeError as error:
        raise OSError("its host is not found") from error
    if not addresses:
        raise OSError("its host has no address")
    if not allowed.names(host, port):
        for address in addresses:
            if not allowed.holds(address) and (parts.scheme == "http" or not is_public(address)):
                raise TargetRefused(NOT_FOUND if parts.scheme == "https" else _NO_HTTP)
    return addresses


def host_of(parts: SplitResult) -> str:
    """Return the host, as `Allowed` names it."""
    host = (parts.hostname or "").rstrip(".")
    try:
        return ip_address(host).compressed
    except ValueError:
        return host


def port_of(parts: SplitResult) -> int:
    """Return the port; raise `ValueError` where it is none."""
    return _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
