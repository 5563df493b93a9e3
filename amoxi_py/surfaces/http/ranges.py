"""Which part of a file a client wants (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re

from msgspec import Struct
from starlette.requests import Request

_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


class Part(Struct, frozen=True):
    """Bytes from `start` up to `end`."""

    start: int
    end: int


class NoSuchPart(Exception):
    """The range begins after the end of the file."""


def wanted_part(request: Request, size: int, etag: str) -> Part | None:
    """Return the part that is asked for, or None for the whole file.

    Several ranges at once, units that are not known and a range of another version (`If-Range`) mean the whole file.

    Raises:
        NoSuchPart: there is nothing in the range.
    """
    match = _RANGE.fullmatch(request.headers.get("range", ""))
    if match is None or match[1] == match[2] == "":
        return None
    if request.headers.get("if-range", etag) != etag:
        return None
    if match[1] == "":
        length = int(match[2])
        if length == 0 or size == 0:
            raise NoSuchPart
        return Part(max(size - length, 0), size)
    start = int(match[1])
    end = size if match[2] == "" else min(int(match[2]) + 1, size)
    if match[2] != "" and int(match[2]) < start:
        return None
    if start >= size:
        raise NoSuchPart
    return Part(start, end)


def is_known(request: Request, etag: str) -> bool:
    """Whether the client has this version already (`If-None-Match`)."""
    known = [one.strip().removeprefix("W/") for one in ",".join(request.headers.getlist("if-none-match")).split(",")]
    return etag in known or "*" in known
