"""Which names a server answers to: a page of a foreign site must not reach it by pointing its own name here.

A browser takes `http://shop.evil.example:8080` for one origin whatever address stands behind the name; once that is
a loopback address (DNS rebinding), the site's scripts talk to a developer's server as if it were their own.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from amoxi_py.surfaces.http.settings import HttpSettings
from amoxi_py.surfaces.problem import problem
from amoxi_py.surfaces.tokens import authorizations

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s\[\]:/?#@]+)(?::[0-9]*)?", re.ASCII | re.IGNORECASE)
_LONGEST = 300
_LONGEST_TOLD = 100
_POLICY_VIOLATION = 1008


class HostCheck:
    """Answers 421 to requests for a host that is not this server. Probes are exempt: they come by an address.

    So do scrapers of the metrics; with a token, which no foreign page has, they are exempt too.

    With a public address its host and the loopback names are known. Without one a server that listens on loopback
    knows the loopback names, for what comes in over loopback; any other one has no way to know its names.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        self._public = urlsplit(settings.public_url).hostname if settings.public_url else None
        self._on_loopback = is_loopback(settings.host)
        self._metrics = f"{settings.prefix}/metrics"
        self._probes = {f"{settings.prefix}/health/{probe}" for probe in ("live", "ready")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._knows(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
        else:
            await self._refusal(scope)(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        if self._public is None and not (self._on_loopback and _came_over_loopback(scope)):
            return True
        if scope["path"] in self._probes or (scope["path"] == self._metrics and authorizations(scope)):
            return True
        hosts = [_name_in(text) if len(text) <= _LONGEST else None for text in _texts(scope)]  # names read are kept
        return bool(hosts) and all(host is not None and (host == self._public or is_loopback(host)) for host in hosts)

    def _refusal(self, scope: Scope) -> ASGIApp:
        told = ", ".join(repr(host[:_LONGEST_TOLD]) for host in _texts(scope)) or "none"
        names = "localhost" if self._public is None else self._public
        return problem(
            421,
            "host_unknown",
            f"this server is {names!r}, and the request's Host is {told}: ask it by its name, "
            "or set 'server.public-url' to where people find it; a proxy in front must pass the Host on",
        )


@lru_cache(maxsize=256)
def is_loopback(host: str | None) -> bool:
    """Whether a name or an address, as text, is one of this machine's own."""
    if host is None:
        return False
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _came_over_loopback(scope: Scope) -> bool:
    server = scope.get("server")
    return server is not None and is_loopback(server[0])


def _texts(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]


@lru_cache(maxsize=64)
def _name_in(host: str) -> str | None:
    """Return the name in a Host header in small letters, without its port; None for one that holds no name."""
    match = _HOST.fullmatch(host)
    return None if match is None else match[1].lower().removesuffix(".")
