"""Cookies of this server's own: what a browser sends of them, and how they are kept from others."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request


def cookie_values(request: Request, wanted: str) -> Iterator[str]:
    """Give all values that a browser sends under a name: a page of a neighbour's host may have added some."""
    for header in request.headers.getlist("cookie"):
        for part in header.split(";"):
            name, _, value = part.strip().partition("=")
            if name == wanted:
                yield value


def is_secure(request: Request, public_url: str | None) -> bool:
    """Whether browsers reach this server over https, so that a cookie need never go another way."""
    return request.url.scheme == "https" or (public_url or "").startswith("https://")
