"""Bearer tokens of callers: known by their digests, compared in constant time, and never told or logged."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from starlette.types import Scope

Callers = Mapping[str, tuple[bytes, ...]]
"""By a caller's name, the digests of its tokens: two while one is rotated."""

_LONGEST_TOKEN = 16 * 1024  # a JWT of an issuer that names all groups of a person is long


def authorizations(scope: Scope) -> list[bytes]:
    """Return the values of all Authorization headers of a request."""
    return [value for name, value in scope["headers"] if name == b"authorization"]


def is_bearer(header: bytes) -> bool:
    """Whether an Authorization header says that it holds a bearer token."""
    return header.partition(b" ")[0].lower() == b"bearer"


def bearer_token(headers: list[bytes]) -> bytes | None:
    """Return the token of a request's Authorization headers; None when there is none, or more than one header."""
    if len(headers) != 1 or not is_bearer(headers[0]):
        return None
    token = headers[0].partition(b" ")[2].strip()
    return token if 0 < len(token) <= _LONGEST_TOKEN else None


def caller_of_token(token: bytes, callers: Callers) -> str | None:
    """Return the name of the caller whose token this is."""
    digest = hashlib.sha256(token).digest()
    found = None
    for name, known in callers.items():
        for each in known:  # all of them, so that the time tells nothing
            if hmac.compare_digest(each, digest):
                found = name
    return found
