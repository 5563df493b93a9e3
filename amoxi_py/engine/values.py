"""Values of steps as JSON text, and back in the same type; a value that would not come back the same is refused.

Plain JSON values stand as they are; anything else is `{"$": kind, "v": ...}`. Objects of classes are `value_objects`'.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic_core import TzInfo

from amoxi_py.engine.value_objects import pack_object, unpack_object
from amoxi_py.errors import ValueNotStorable

_TAG = "$"
_TAGGED = '"$"'
_DUMP = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_PLAIN = (int, bool, type(None))
_BETWEEN_HALVES = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
_DEPTH = 100


def encode_value(value: Any) -> str:
    """Return the value as JSON text.

    Raises:
        ValueNotStorable: it would not come back with the same type and content.
    """
    kind = type(value)
    if kind in _PLAIN or (kind is str and value.isascii()):
        return _dump(value)
    try:
        text = _dump(_pack(value, 0))
        if _TAGGED not in text:
            return text
        back = _unpack(json.loads(text))
        same = type(back) is kind and _dump(_pack(back, 0)) == text
    except ValueNotStorable:
        raise
    except RecursionError:
        raise ValueNotStorable("a value contains itself, or is nested too deeply") from None
    except Exception as error:  # classes of the app run code of their own here, and may raise anything
        raise _raised(kind, error) from error
    if not same:
        raise ValueNotStorable(f"a value of type {kind.__qualname__} does not come back the same")
    return text


def decode_value(text: str) -> Any:
    """Return the value that was encoded.

    Raises:
        ValueNotStorable: a class of the value is no longer where it was, or has other fields now.
    """
    try:
        return _unpack(json.loads(text))
    except ValueNotStorable:
        raise
    except Exception as error:  # as in `encode_value`
        raise ValueNotStorable(f"a stored value cannot be read: it raised {type(error).__qualname__}") from error


def _dump(packed: Any) -> str:
    try:
        return _DUMP(packed)
    except ValueError as error:  # Python refuses to write numbers of thousands of digits
        raise ValueNotStorable(f"a value cannot be stored: {error}") from None


def _raised(kind: type[Any], error: Exception) -> ValueNotStorable:
    return ValueNotStorable(
        f"a value of type {kind.__qualname__} cannot be stored: it raised {type(error).__qualname__}"
    )


def _pack(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is float and math.isfinite(value)):
        return value
    if kind is str:
        return _pack_text(value)
    if depth >= _DEPTH:
        raise ValueNotStorable(f"a value contains itself, or is nested deeper than {_DEPTH} levels")
    if kind is list:
        return _pack_items(value, depth)
    if kind is dict and _TAG not in value and all(type(key) is str and _whole(key) for key in value):
        return {key: _pack(item, depth + 1) for key, item in value.items()}
    if kind in _PACKERS:
        tag, pack = _PACKERS[kind]
        return {_TAG: tag, "v": pack(value, depth)}
    try:
        tag, reference, packed = pack_object(value, lambda item: _pack(item, depth + 1))
    except (ValueNotStorable, RecursionError):
        raise
    except Exception as error:  # as in `encode_value`, and here its class can be named
        raise _raised(kind, error) from error
    return {_TAG: tag, "c": reference, "v": packed}


def _pack_items(items: Iterable[Any], depth: int) -> list[Any]:
    return [_pack(item, depth + 1) for item in items]


def _whole(text: str) -> bool:
    """Whether JSON gives the text back: it joins two halves of a character that stand side by side."""
    return text.isascii() or _BETWEEN_HALVES.search(text) is None


def _pack_text(text: str) -> Any:
    return text if _whole(text) else {_TAG: "str", "v": _BETWEEN_HALVES.split(text)}


def _pack_zone(zone: tzinfo | None) -> Any:
    kind = type(zone)
    if zone is None:
        return None
    if isinstance(zone, ZoneInfo) and kind is ZoneInfo and zone.key is not None:
        return zone.key
    offset = zone.utcoffset(None)
    if kind is TzInfo and offset is not None:  # of every time that pydantic has read from text
        return ["pydantic", *_pack_timedelta(offset)]
    if kind is timezone and offset is not None:
        name = zone.tzname(None)
        named = [] if name is None or name == timezone(offset).tzname(None) else [_pack_text(name)]
        return ["fixed", *_pack_timedelta(offset), *named]
    raise ValueNotStorable(
        f"a time zone of type {kind.__qualname__} cannot be stored; use zoneinfo.ZoneInfo or datetime.timezone"
    )


def _unpack_zone(packed: Any) -> tzinfo | None:
    if packed is None:
        return None
    if isinstance(packed, str):
        try:
            return ZoneInfo(packed)
        except (ZoneInfoNotFoundError, ValueError):
            raise ValueNotStorable(f"the time zone {packed!r} is not known on this machine") from None
    kind, days, seconds, microseconds, *name = packed
    offset = timedelta(days, seconds, microseconds)
    return TzInfo(offset.total_seconds()) if kind == "pydantic" else timezone(offset, *map(_unpack, name))


def _pack_moment(value: datetime | time) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), _pack_zone(value.tzinfo), value.fold]


def _unpack_datetime(packed: list[Any]) -> datetime:
    text, zone, fold = packed
    return datetime.fromisoformat(text).replace(tzinfo=_unpack_zone(zone), fold=fold)


def _unpack_time(packed: list[Any]) -> time:
    text, zone, fold = packed
    return time.fromisoformat(text).replace(tzinfo=_unpack_zone(zone), fold=fold)


def _pack_timedelta(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


_PATHS = {kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)}

_PACKERS: dict[type[Any], tuple[str, Callable[[Any, int], Any]]] = {
    float: ("float", lambda value, _: repr(value)),
    dict: ("dict", lambda value, depth: [_pack_items(pair, depth) for pair in value.items()]),
    tuple: ("tuple", _pack_items),
    set: ("set", lambda value, depth: sorted(_pack_items(value, depth), key=_dump)),
    frozenset: ("frozenset", lambda value, depth: sorted(_pack_items(value, depth), key=_dump)),
    bytes: ("bytes", lambda value, _: base64.b64encode(value).decode()),
    bytearray: ("bytearray", lambda value, _: base64.b64encode(value).decode()),
    datetime: ("datetime", lambda value, _: _pack_moment(value)),
    date: ("date", lambda value, _: value.isoformat()),
    time: ("time", lambda value, _: _pack_moment(value)),
    timedelta: ("timedelta", lambda value, _: _pack_timedelta(value)),
    Decimal: ("decimal", lambda value, _: str(value)),
    UUID: ("uuid", lambda value, _: str(value)),
    complex: ("complex", lambda value, _: [repr(value.real), repr(value.imag)]),
    **{kind: ("path", lambda value, _: [type(value).__name__, _pack_text(str(value))]) for kind in _PATHS.values()},
}

_UNPACKERS: dict[str, Callable[[Any], Any]] = {
    "str": "".join,
    "float": float,
    "dict": lambda items: {_unpack(key): _unpack(item) for key, item in items},
    "tuple": lambda items: tuple([_unpack(item) for item in items]),
    "set": lambda items: {_unpack(item) for item in items},
    "frozenset": lambda items: frozenset([_unpack(item) for item in items]),
    "bytes": base64.b64decode,
    "bytearray": lambda text: bytearray(base64.b64decode(text)),
    "datetime": _unpack_datetime,
    "date": date.fromisoformat,
    "time": _unpack_time,
    "timedelta": lambda parts: timedelta(*parts),
    "decimal": Decimal,
    "uuid": UUID,
    "complex": lambda parts: complex(float(parts[0]), float(parts[1])),
    "path": lambda parts: _PATHS[parts[0]](_unpack(parts[1])),
}


def _unpack(packed: Any) -> Any:
    if isinstance(packed, list):
        return [_unpack(item) for item in packed]
    if not isinstance(packed, dict):
        return packed
    tag = packed.get(_TAG)
    if tag is None:
        return {key: _unpack(item) for key, item in packed.items()}
    if tag in _UNPACKERS:
        return _UNPACKERS[tag](packed["v"])
    return unpack_object(tag, packed["c"], packed["v"], _unpack)
