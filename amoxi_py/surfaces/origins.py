"""Whether the page that makes a browser ask is of another origin than this server and those that it knows."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.requests import Request

DEFAULT_PORTS = {"http": 80, "https": 443}


def is_foreign(request: Request, origin: str, known: Iterable[str | None]) -> bool:
    """Whether an Origin is neither the server's own, by the Host that was asked, nor that of a known address."""
    own = {_place(f"{request.url.scheme}://{host}", origin) for host in request.headers.getlist("host")}
    own |= {_place(url, url) for url in known if url}
    return _place(origin, origin) not in own - {None}


def _place(url: str, scheme_of: str) -> tuple[str, int | None] | None:
    """Return host and port, or None when there are none.

    The scheme of the page counts, not ours: a proxy that ends TLS leaves `http` here.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORTS.get(urlsplit(scheme_of).scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname else None
