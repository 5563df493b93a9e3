"""Cursors of lists: opaque to callers, and only good for the list that gave them."""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode

from amoxi_py.errors import InvalidRequest

_LARGEST = 2**62


def encode_cursor(kind: str, *place: int) -> str:
    """Return a cursor that stands for a place in lists of this kind."""
    text = ":".join([kind, *map(str, place)])
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None, size: int) -> tuple[int, ...]:
    """Return the place, or one after everything for no cursor; raise `InvalidRequest` for what is no such cursor."""
    if cursor is None:
        return (_LARGEST,) * size
    try:
        found, *place = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)).decode("ascii").split(":")
        numbers = tuple(int(number) for number in place)
    except (ValueError, binascii.Error):
        found, numbers = "", ()
    if found != kind or len(numbers) != size or not all(0 <= number <= _LARGEST for number in numbers):
        raise InvalidRequest(
            f"{cursor!r} is not a cursor of this list; take `next_cursor` of the page before, or leave it out",
            code="bad_cursor",
        )
    return numbers
