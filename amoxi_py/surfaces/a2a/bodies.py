"""What the body of a request may hold, and how it becomes values: where it is long in a thread, one at a time.

What is made of a body costs by the number of its values, and holds up whatever else its process does. So that number
is bounded before anything is made, and a server that makes much of one body answers others in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from a2a.utils.errors import InvalidParamsError, InvalidRequestError, JSONParseError
from google.protobuf.message import Message

from amoxi_py.domain.encoding import clean_json, decode_json
from amoxi_py.errors import ValueNotStorable
from amoxi_py.surfaces.a2a.serving import Asked

T = TypeVar("T")

MOST_VALUES = 20_000
"""The most JSON values of a body: those in lists and objects, and these themselves."""

MOST_PARTS = 256
"""The most parts of a message."""

_SHORT = 8 << 10
_BEFORE_VALUES = (b",", b"[", b"{")
_LISTS_OF_PARTS = ("parts", "content")
_FILES = ("bytes", "fileWithBytes", "file_with_bytes")


async def read_json(asked: Asked) -> Any:
    """Return the JSON of a request's body, with clean texts.

    Raises:
        InvalidRequestError: it holds too many values.
        JSONParseError: it is no JSON.
    """
    return await _apart(asked, lambda: _json_of(asked.body, asked.serving.settings.max_json))


async def read_params(asked: Asked, params: Any, read: Callable[[Any], T]) -> T:
    """Return what `read` makes of the params of a request; raise `InvalidParamsError` when they hold too much."""

    def checked() -> T:
        _check(params, len(asked.body), asked.serving.settings.max_json)
        return read(params)

    return await _apart(asked, checked)


async def made_of(message: Message, make: Callable[[], T]) -> T:
    """Return what is made of a message, by a thread where it is long: its data may be thousands of values."""
    return make() if message.ByteSize() <= _SHORT else await asyncio.to_thread(make)


async def _apart(asked: Asked, make: Callable[[], T]) -> T:
    if len(asked.body) <= _SHORT:
        return make()
    async with asked.serving.reading:
        return await asyncio.to_thread(make)


def _json_of(body: bytes, most_beside_files: int) -> Any:
    if _has_more_values(body, most_beside_files):
        raise InvalidRequestError(f"the body holds more than {MOST_VALUES} JSON values: send a file instead")
    try:
        return clean_json(decode_json(body.decode()))
    except (ValueError, ValueNotStorable):
        raise JSONParseError("the body is no JSON") from None


def _has_more_values(body: bytes, most_quotes: int) -> bool:
    """Whether a body that is JSON has more values than it may; nothing is built, so that no body costs much."""
    if _marks_in(body) < MOST_VALUES:
        return False
    if body.count(b'"') > most_quotes:  # there are none in files
        return True
    without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    beside_texts = b"".join(without_escapes.split(b'"')[::2])
    return _marks_in(beside_texts) >= MOST_VALUES


def _marks_in(body: bytes) -> int:
    return sum(body.count(mark) for mark in _BEFORE_VALUES)


def _check(params: Any, size: int, most_beside_files: int) -> None:
    parts = list(_parts_of(params))
    if len(parts) > MOST_PARTS:
        raise InvalidParamsError(f"message.parts: there are more than {MOST_PARTS}")
    if size - sum(map(_size_of_file, parts)) > most_beside_files:
        raise InvalidParamsError(
            f"the request has more than {most_beside_files} bytes beside files: send what is long as a file"
        )


def _parts_of(params: Any) -> Iterator[Any]:
    message = params.get("message") if isinstance(params, dict) else None
    if isinstance(message, dict):
        for name in _LISTS_OF_PARTS:
            parts = message.get(name)
            if isinstance(parts, list):
                yield from parts


def _size_of_file(part: Any) -> int:
    """Return how long the bytes are that a part has as base64, in either version."""
    if not isinstance(part, dict):
        return 0
    file = part.get("file")
    found = [part.get("raw"), *(file.get(name) for name in _FILES if isinstance(file, dict))]
    return sum(len(each) for each in found if isinstance(each, str))
