"""What the HTTP surface is told: who may call, and its limits. It holds digests of tokens, never tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request

from amoxi_py.domain.principal import Principal

Authenticate = Callable[[Request], Awaitable[Principal | None]]
MetricsPage = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Gives the page and its media type, for what a scraper accepts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Times are in seconds, sizes in bytes.

    Attributes:
        callers: By a caller's name, the digests (`token_digest`) of its tokens; the caller is `api:<name>`.
        authenticate: The app's own sign-in, asked when no caller's token was given; None when it has none.
        anonymous: Whether everybody else is a visitor, known by a signed cookie.
        prefix: Comes before every path, such as `/ai`; empty for none.
        host: Where the server listens, or None when that is not known.
        public_url: Where people find this server, when a proxy is in front of it.
        cors_origins: Foreign pages that may call and read the answers. Browsers send them the visitor's cookie only
            where they are of the same site (SameSite=Lax).
        docs: Whether `/openapi.json` and `/docs` exist.
        heartbeat: The longest silence on an event stream.
        max_body: The longest body of a request.
        metrics: What `/metrics` tells; None where nothing is counted.
    """

    callers: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    authenticate: Authenticate | None = None
    anonymous: bool = False
    prefix: str = ""
    host: str | None = None
    public_url: str | None = None
    cors_origins: tuple[str, ...] = ()
    docs: bool = False
    heartbeat: float = 15.0
    max_body: int = 1 << 20
    metrics: MetricsPage | None = None


def token_digest(token: str) -> bytes:
    """Return what is kept of a caller's token: its SHA-256."""
    return hashlib.sha256(token.encode()).digest()
