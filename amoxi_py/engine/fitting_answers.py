"""Whether an answer fits its question, by the question's JSON Schema, before a tool reads it by the type.

Patterns and formats are looked at as pydantic does, because its types are what they come from. What cannot be looked at
here is left to the type.
"""

from __future__ import annotations

import datetime
import ipaddress
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from functools import cache, lru_cache, partial
from typing import Annotated, Any

from amoxi_py.domain.encoding import clean_json, decode_json, encode_json, encode_json_unicode
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import InvalidRequest, ValueNotStorable

log = logging.getLogger("amoxi_py.engine")

LONGEST_ANSWER = 64 * 1024
"""In bytes of JSON text in UTF-8, for an answer and for the payload of a signal."""
_MOST_ERRORS = 20
_FORMATS = {
    "date-time": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "duration": datetime.timedelta,
    "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
}


def fitting_answer(wait: Wait, value: Any) -> str:
    """Return the JSON text of an answer that fits its question; raise `InvalidRequest` for one that does not."""
    text = storable_json(value, "answer")
    if wait.schema is None:
        if not isinstance(value, str):
            raise _misfit(({"field": "answer", "message": "it must be a text"},))
        if not value.strip():
            raise _misfit(({"field": "answer", "message": "it must not be empty"},))
        return text
    errors = _misfits(wait.schema, decode_json(text))
    if errors:
        raise _misfit(errors)
    return text


def storable_json(value: Any, what: str) -> str:
    """Return the JSON text of what is told from outside; raise `InvalidRequest` for what is too long or is no JSON."""
    try:
        cleaned = clean_json(value)
        text, size = encode_json(cleaned), len(encode_json_unicode(cleaned).encode())
    except ValueNotStorable as error:
        raise InvalidRequest(f"the {what} cannot be stored: {error}", code="value_not_storable") from None
    if size > LONGEST_ANSWER:
        raise InvalidRequest(
            f"the {what} has {size:,} bytes as JSON in UTF-8; the limit is {LONGEST_ANSWER:,}", code=f"{what}_too_long"
        )
    return text


def _misfits(schema: str, value: Any) -> tuple[dict[str, Any], ...]:
    from referencing.exceptions import Unresolvable

    found: list[dict[str, Any]] = []
    try:
        for error in _checker()(decode_json(schema)).iter_errors(value):
            field = ".".join(("answer", *(str(part) for part in error.absolute_path)))
            found.append({"field": field[:200], "message": error.message[:500]})
            if len(found) == _MOST_ERRORS:
                break
    except (Unresolvable, re.error, OverflowError, RecursionError):
        log.warning("a question's JSON Schema cannot be looked at here, so its answer is left to the tool's type")
    return tuple(found)


@cache
def _checker() -> Callable[[Any], Any]:
    from jsonschema import Draft202012Validator, FormatChecker  # not before it is needed: commands start without it
    from jsonschema.exceptions import ValidationError
    from jsonschema.validators import extend

    def pattern(_validator: Any, wanted: Any, instance: Any, _schema: Any) -> Iterator[Any]:
        if isinstance(instance, str) and not _matcher(wanted)(instance):
            yield ValidationError(f"{instance!r} does not match {wanted!r}")

    formats = FormatChecker(())
    for name in (*_FORMATS, "email"):
        formats.checks(name)(_format(name))
    return partial(extend(Draft202012Validator, {"pattern": pattern}), format_checker=formats)


@cache
def _format(name: str) -> Callable[[Any], bool]:
    """Return what says of a value whether it has a format; of one that is no text it says yes."""
    if name == "email":
        return lambda value: not isinstance(value, str) or "@" in value
    return _reader(_FORMATS[name])


@lru_cache(maxsize=256)
def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return what says of a text whether it has a pattern, by pydantic's engine or else Python's; without both, yes."""
    from pydantic import Field
    from pydantic_core import SchemaError

    try:
        return _reader(Annotated[str, Field(pattern=pattern)])
    except SchemaError:
        pass
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return lambda text: True
    return lambda text: compiled.search(text) is not None


def _reader(kind: Any) -> Callable[[Any], bool]:
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def reads(value: Any) -> bool:
        if not isinstance(value, str):
            return True
        try:
            adapter.validate_python(value)
        except ValidationError:
            return False
        return True

    return reads


def _misfit(errors: tuple[dict[str, Any], ...]) -> InvalidRequest:
    return InvalidRequest("the answer does not fit the question", code="answer_does_not_fit", errors=errors)
