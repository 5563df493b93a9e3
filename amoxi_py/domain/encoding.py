"""The one rule for text and the one rule for JSON that are stored, streamed or sent to a model.

Text: NUL and lone surrogates become U+FFFD, everything else stays. JSON: NaN and the infinities become null,
whole numbers keep all their digits, keys are text, output is one line of ASCII.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from amoxi_py.errors import ValueNotStorable

Json = dict[str, Any] | list[Any] | str | int | float | bool | None

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ENCODE = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_ENCODE_UNICODE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_ENCODE_ORDERED = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True).encode
_DEPTH = 200
_DEPTH_INSIDE = 250  # what was let in is told inside other values: a call in a message in a page
_CONTAINERS = (dict, list, tuple)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


_DECODE = json.JSONDecoder(parse_constant=_no_constant).decode


def clean_text(text: str) -> str:
    """Return the text with NUL and lone surrogates replaced by U+FFFD, and halves of a pair joined."""
    if _UNSTORABLE.search(text) is None:
        return text
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\x00", "\ufffd")


def encode_json(value: Any) -> str:
    """Return one line of strict ASCII JSON of plain values; raise `ValueNotStorable` for any other value.

    It has room for 50 levels around what `clean_json` lets in.
    """
    return _encode(_ENCODE, value)


def encode_json_unicode(value: Any) -> str:
    """Return the same as `encode_json`, with letters of other alphabets unescaped: shorter for a model to read."""
    return _encode(_ENCODE_UNICODE, value)


def readable_json(text: str) -> str:
    """Return what a model reads of a stored value: a text as it is, other values as JSON with readable letters."""
    if text[0] != '"' and "\\u" not in text:  # written by `encode_json`, and so it would be written again
        return text
    value = decode_json(text)
    return value if isinstance(value, str) else encode_json_unicode(value)


def ordered_json(text: str) -> str:
    """Return JSON text with the keys of its objects in order, so that what says the same is the same text."""
    return _encode(_ENCODE_ORDERED, decode_json(text))


def decode_json(text: str) -> Any:
    """Return the value of strict JSON; raise `ValueError` for anything else, NaN and Infinity included."""
    try:
        return _DECODE(text)
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None


def clean_json(value: Any) -> Any:
    """Return plain values with every text cleaned and NaN and the infinities as null.

    Raises:
        ValueNotStorable: for a value that JSON has no form for, or one nested deeper than 200 levels.
    """
    return _clean(value, _DEPTH)


def _encode(encode: Any, value: Any) -> str:
    _check_shape(value, _DEPTH_INSIDE)
    try:
        text: str = encode(value)
        if "\\u0000" not in text and "\\ud" not in text and text.isascii():
            return text
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        text = encode(_clean(value, _DEPTH_INSIDE))
    except ValueError as error:  # Python refuses to write numbers of thousands of digits
        raise ValueNotStorable(f"a value has no form in JSON: {error}") from None
    return text


def _check_shape(value: Any, levels: int) -> None:
    """Refuse what the encoder would let pass: keys that it makes text of, so that two could become one, and depth."""
    if levels < 0:
        raise _too_deep()
    if isinstance(value, dict):
        for key, item in value.items():
            if type(key) is not str:
                _key(key)
            if isinstance(item, _CONTAINERS):
                _check_shape(item, levels - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, _CONTAINERS):
                _check_shape(item, levels - 1)


def _clean(value: Any, levels: int) -> Any:
    if levels < 0:
        raise _too_deep()
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {_key(key): _clean(item, levels - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item, levels - 1) for item in value]
    raise ValueNotStorable(f"a value of type {type(value).__name__} has no form in JSON")


def _too_deep() -> ValueNotStorable:
    return ValueNotStorable(f"a value is nested deeper than {_DEPTH} levels, or contains itself")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ValueNotStorable(f"a key of type {type(key).__name__} has no form in JSON; use text as keys")
    return clean_text(key)
