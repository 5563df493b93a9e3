"""From what a tool returns to plain JSON values, by one rule.

With a return type, the value must fit it. Decimal, UUID, dates and times become text, bytes become URL-safe base64
text (in a pydantic model, its own configuration decides), sets and tuples become lists, models and dataclasses become
objects, NaN and the infinities become null, whole numbers keep all their digits. Anything else is refused, by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import types
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from datetime import date, datetime
from enum import Enum
from typing import Any, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from amoxi_py.declare.annotations import strip_annotated
from amoxi_py.declare.arguments import CANNOT_BE_JSON, first_line, make_adapter, shown_type
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.schema import RESULT_CONFIG, schemas_of
from amoxi_py.domain.encoding import clean_json, clean_text
from amoxi_py.errors import ValueNotStorable

_DEPTH = 200
_BITS = 14_000  # Python writes and reads numbers of up to 4,300 digits
_LEAVES = frozenset({type(None), bool, int, float, str, bytes})
_KEYS = (str, int, UUID, date, datetime)
_REFUSED = (
    BaseException,
    Iterator,
    AsyncIterator,
    Awaitable,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type,
)
_AWAITABLES = (Awaitable, Coroutine)
_STREAMS = (Iterable, Iterator, Generator, AsyncIterable, AsyncIterator, AsyncGenerator)
_OUT = "return plain values, a dataclass or a pydantic model"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The schema of a tool's result, or None, and how its value becomes plain JSON."""

    schema: Mapping[str, Any] | None
    encode: Callable[[Any], Any]


def read_result(hint: Any, where: str, mistakes: Mistakes) -> Result:
    """Make the schema and the encoder of what a function says that it returns."""
    if get_origin(hint) in _AWAITABLES:
        hint = get_args(hint)[-1]
    bare = strip_annotated(hint)
    if get_origin(bare) in _STREAMS or bare in _STREAMS:
        mistakes.add(where, f"it returns the type {shown_type(hint)}, but a tool has one result; return a list")
        return Result(schema=None, encode=_encode_untyped)
    if bare in (inspect.Signature.empty, Any, object):
        return Result(schema=None, encode=_encode_untyped)
    try:
        adapter = make_adapter(hint, RESULT_CONFIG)
        schema = None if bare is type(None) else _schema(adapter)
    except CANNOT_BE_JSON as error:
        mistakes.add(
            where, f"it returns the type {shown_type(hint)}, which JSON has no form for ({first_line(error)}); {_OUT}"
        )
        return Result(schema=None, encode=_encode_untyped)
    return Result(schema=schema, encode=lambda value: _encode_typed(adapter, shown_type(hint), value))


def _schema(adapter: TypeAdapter[Any]) -> dict[str, Any]:
    schemas, defs = schemas_of([("result", adapter)], "serialization")
    schema = schemas["result"]
    if "$ref" in schema:  # readers of results want to see the object at the top
        schema = {**defs[schema["$ref"].rsplit("/", 1)[1]], **{k: v for k, v in schema.items() if k != "$ref"}}
        defs = {name: part for name, part in defs.items() if f'#/$defs/{name}"' in json.dumps([schema, defs])}
    return {**schema, "$defs": defs} if defs else schema


def _encode_typed(adapter: TypeAdapter[Any], shown: str, value: Any) -> Any:
    value = _writable(value)
    try:
        fitting = adapter.validate_python(value)
        return clean_json(adapter.dump_python(fitting, mode="json", by_alias=True, warnings="error"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        at = ".".join(str(part) for part in first["loc"])
        raise ValueNotStorable(
            f"the result does not fit the return type {shown}: {at + ': ' if at else ''}{first['msg']}"
        ) from None
    except (PydanticSerializationError, ValueError) as error:
        raise ValueNotStorable(f"the result does not fit the return type {shown}: {_short(error)}") from None


def _encode_untyped(value: Any) -> Any:
    value = _writable(value)
    try:
        return clean_json(to_jsonable_python(value, bytes_mode="base64", by_alias=True))
    except (PydanticSerializationError, ValueError) as error:
        raise ValueNotStorable(f"the result has no form in JSON: {_short(error)}; {_OUT}") from None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _writable(value: Any) -> Any:
    """Return the value with keys that pydantic can write: its own rule for half a character is another than ours."""
    return _with_whole_keys(value) if _refuse(value) else value


def _with_whole_keys(value: Any) -> Any:
    if type(value) is dict:
        whole = {clean_text(key) if type(key) is str else key: _with_whole_keys(part) for key, part in value.items()}
        if len(whole) != len(value):
            raise _Odd("has different keys that are the same text in JSON")
        return whole
    return type(value)(map(_with_whole_keys, value)) if type(value) in (list, tuple) else value


def _refuse(value: Any, depth: int = 0) -> bool:
    """Raise for what pydantic would quietly change: generators, exceptions, odd keys, a value in itself.

    Return whether a key in there has half a character.
    """
    kind = type(value)
    if kind in _LEAVES:
        if kind is int and value.bit_length() > _BITS:
            raise _Odd("is a number of too many digits; return it as text")
        return False
    if depth > _DEPTH:
        raise ValueNotStorable(f"the result is nested deeper than {_DEPTH} levels, or contains itself")
    half = False
    if isinstance(value, Mapping):
        half = _refuse_keys(value)
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        parts = enumerate(value)
    elif isinstance(value, BaseModel):
        parts = value
    elif isinstance(value, _REFUSED):
        raise _Odd(f"is of type {kind.__qualname__!r}, which has no form in JSON; {_OUT}")
    elif dataclasses.is_dataclass(value):
        parts = ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    else:
        return False
    for name, part in parts:
        if type(part) is not str:
            try:
                half = _refuse(part, depth + 1) or half
            except _Odd as odd:
                odd.path.insert(0, name)
                raise
    return half


def _refuse_keys(value: Mapping[Any, Any]) -> bool:
    if all(type(key) is str for key in value):
        return any(not key.isascii() and clean_text(key) != key for key in value)
    texts = set()
    for key in value:
        plain = key.value if isinstance(key, Enum) else key
        if not isinstance(plain, _KEYS) or isinstance(plain, bool):
            raise _Odd(f"has a key of type {type(key).__qualname__!r}; JSON has only text as keys")
        texts.add(str(plain))
    if len(texts) != len(value):
        raise _Odd("has different keys that are the same text in JSON")
    return False


class _Odd(ValueNotStorable):
    """Something in a value cannot be stored; `path` leads to it and grows on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.path: list[Any] = []

    def __str__(self) -> str:
        return f"the result{''.join(f'[{part!r}]' for part in self.path)} {self.args[0]}"
