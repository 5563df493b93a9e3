"""Objects of classes as parts of stored values: enums, models, dataclasses and named tuples, by class and field names.

What an object holds beside its fields would be lost, so it is refused; what a class no longer has is named.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, Flag
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic_core import PydanticUndefined

from amoxi_py.errors import ValueNotStorable

Recode = Callable[[Any], Any]


def pack_object(value: Any, pack: Recode) -> tuple[str, Any, Any]:
    """Return an object's tag, the reference to its class, and its content; `pack` does the parts.

    Raises:
        ValueNotStorable: no object of its class can be stored, or this one holds more than its fields.
    """
    kind = type(value)
    if issubclass(kind, Flag):
        return "flag", _reference(kind), _flag_names(value, kind)
    if issubclass(kind, Enum):
        return "enum", _reference(kind), value._name_
    if issubclass(kind, BaseModel):
        return "model", _reference(kind), _pack_model(value, kind, pack)
    if dataclasses.is_dataclass(kind):
        return "dataclass", _reference(kind), _pack_dataclass(value, kind, pack)
    if issubclass(kind, tuple) and hasattr(kind, "_field_defaults"):
        _refuse_hidden(kind, _attributes(value))
        fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]  # seen one line above
        return "namedtuple", _reference(kind), {name: pack(item) for name, item in zip(fields, value, strict=True)}
    raise ValueNotStorable(
        f"a value of type {kind.__qualname__} cannot be stored; return plain data, a dataclass or a pydantic model"
    )


def unpack_object(tag: str, reference: Any, packed: Any, unpack: Recode) -> Any:
    """Return the object that was packed.

    Raises:
        ValueNotStorable: its class is no longer where it was, or has other fields or members now.
    """
    kind = _find(reference)
    if tag == "flag" and issubclass(kind, Flag):
        return functools.reduce(operator.or_, (_member(kind, name) for name in packed), kind(0))
    if tag == "enum" and issubclass(kind, Enum):
        return _member(kind, packed)
    if tag == "model" and issubclass(kind, BaseModel):
        return _unpack_model(kind, packed, unpack)
    if tag == "dataclass" and dataclasses.is_dataclass(kind):
        return _unpack_dataclass(kind, packed, unpack)
    if tag == "namedtuple" and issubclass(kind, tuple) and hasattr(kind, "_field_defaults"):
        return _unpack_namedtuple(kind, packed, unpack)
    raise ValueNotStorable(f"{kind.__qualname__} is no {tag} any more")


# -- models


def _pack_model(value: BaseModel, kind: type[BaseModel], pack: Recode) -> list[Any]:
    beside = {name for name in _attributes(value) if name not in kind.model_fields}
    _refuse_hidden(kind, {name for name in beside if not name.startswith("__pydantic_")})
    fields = {name: pack(item) for name, item in value.__dict__.items() if name in kind.model_fields}
    extra, private = value.__pydantic_extra__, value.__pydantic_private__
    hidden = None if private is None else {k: pack(v) for k, v in private.items() if v is not PydanticUndefined}
    return [fields, None if extra is None else pack(extra), hidden, sorted(value.__pydantic_fields_set__)]


def _unpack_model(kind: type[BaseModel], packed: Any, unpack: Recode) -> BaseModel:
    values, extra, private, fields_set = packed
    known = {name: unpack(item) for name, item in values.items()}
    _refuse_unknown(kind, known, kind.model_fields)
    for name, field in kind.model_fields.items():
        if name not in known:
            if field.is_required():
                raise _missing(kind, name)
            known[name] = field.get_default(call_default_factory=True, validated_data=known)
    model = object.__new__(kind)
    object.__setattr__(model, "__dict__", known)
    object.__setattr__(model, "__pydantic_fields_set__", set(fields_set))
    parts = {
        "__pydantic_extra__": _unpack_extra(kind, extra, unpack),
        "__pydantic_private__": _unpack_private(kind, private, unpack),
    }
    for name, part in parts.items():
        if part is not None or not issubclass(kind, RootModel):  # where the class itself says None
            object.__setattr__(model, name, part)
    return model


def _unpack_extra(kind: type[BaseModel], packed: Any, unpack: Recode) -> dict[str, Any] | None:
    extra: dict[str, Any] = {} if packed is None else unpack(packed)
    if kind.model_config.get("extra") != "allow":
        _refuse_unknown(kind, extra, ())
        return None
    taken = extra.keys() & kind.model_fields.keys()
    if taken:
        raise ValueNotStorable(f"{kind.__qualname__} has {min(taken)!r} as a field now, it was an extra value")
    return extra


def _unpack_private(kind: type[BaseModel], packed: Any, unpack: Recode) -> dict[str, Any] | None:
    attributes = kind.__private_attributes__
    known = {} if packed is None else {name: unpack(item) for name, item in packed.items()}
    _refuse_unknown(kind, known, attributes)
    for name, attribute in attributes.items():
        if name not in known and (default := attribute.get_default()) is not PydanticUndefined:
            known[name] = default
    return known if attributes else None


# -- dataclasses and named tuples


def _pack_dataclass(value: Any, kind: type[Any], pack: Recode) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(value)]
    _refuse_hidden(kind, _attributes(value) - set(names))
    for name in names:
        if not hasattr(value, name):
            raise ValueNotStorable(f"a value of type {kind.__qualname__} cannot be stored: its field {name!r} is unset")
    return {name: pack(getattr(value, name)) for name in names}


def _unpack_dataclass(kind: type[Any], packed: dict[str, Any], unpack: Recode) -> Any:
    known = {name: unpack(item) for name, item in packed.items()}
    fields = dataclasses.fields(kind)
    _refuse_unknown(kind, known, [field.name for field in fields])
    try:
        value = object.__new__(kind)
    except TypeError:  # what a dict, a list or an exception holds by itself is in no field
        raise ValueNotStorable(f"a value of type {kind.__qualname__} cannot be stored: it is not only fields") from None
    for field in fields:
        if field.name in known:
            item = known[field.name]
        elif field.default is not dataclasses.MISSING:
            item = field.default
        elif field.default_factory is not dataclasses.MISSING:
            item = field.default_factory()
        else:
            raise _missing(kind, field.name)
        object.__setattr__(value, field.name, item)
    return value


def _unpack_namedtuple(kind: type[Any], packed: dict[str, Any], unpack: Recode) -> Any:
    known = kind._field_defaults | {name: unpack(item) for name, item in packed.items()}
    _refuse_unknown(kind, known, kind._fields)
    for name in kind._fields:
        if name not in known:
            raise _missing(kind, name)
    return tuple.__new__(kind, [known[name] for name in kind._fields])


# -- what an object holds


def _attributes(value: Any) -> set[str]:
    """Return the names of all that an object holds in its dict and its slots."""
    state = object.__getstate__(value)
    parts = state if isinstance(state, tuple) else (state,)
    return {name for part in parts if part for name in part}


def _refuse_hidden(kind: type[Any], names: Iterable[str]) -> None:
    for name in sorted(names):
        again = isinstance(getattr(kind, name, None), functools.cached_property)
        if not again and name != "__orig_class__":  # what a generic class notes of its parameters
            raise ValueNotStorable(
                f"a value of type {kind.__qualname__} cannot be stored: its attribute {name!r} is no field"
            )


def _refuse_unknown(kind: type[Any], names: Iterable[str], known: Iterable[str]) -> None:
    unknown = set(names).difference(known)
    if unknown:
        raise ValueNotStorable(f"{kind.__qualname__} has no field {min(unknown)!r} any more")


def _missing(kind: type[Any], name: str) -> ValueNotStorable:
    return ValueNotStorable(f"{kind.__qualname__} has a new field {name!r} without a default")


def _member(kind: type[Enum], name: str) -> Any:
    member = kind.__members__.get(name)
    if member is None:
        raise ValueNotStorable(f"{kind.__qualname__} has no member {name!r}")
    return member


def _flag_names(value: Flag, kind: type[Flag]) -> list[str]:
    names = [name for name, member in kind.__members__.items() if member is value]
    names = names[:1] or [str(member._name_) for member in value]
    if functools.reduce(operator.or_, (_member(kind, name) for name in names), kind(0)) != value:
        raise ValueNotStorable(f"a value of type {kind.__qualname__} cannot be stored: not all of its bits have names")
    return names


# -- classes


def _reference(kind: type[Any]) -> Any:
    """Return the place of a class as text, or a list of a generic model's place and those of its arguments."""
    generic: Mapping[str, Any] = getattr(kind, "__pydantic_generic_metadata__", {})
    if generic.get("args"):
        if not all(type(argument) is type or isinstance(argument, type) for argument in generic["args"]):
            raise ValueNotStorable(
                f"a value of type {kind.__qualname__} cannot be stored; give it a name: class ...({kind.__qualname__})"
            )
        return [_reference(generic["origin"]), *map(_reference, generic["args"])]
    place = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in kind.__qualname__ or _look_up(place) is not kind:
        raise ValueNotStorable(
            f"a value of type {kind.__qualname__} cannot be stored: its class must be at the top of a module"
        )
    return place


def _find(reference: Any) -> type[Any]:
    if isinstance(reference, list):
        origin, *arguments = map(_find, reference)
        found: Any = origin[tuple(arguments)]
    else:
        found = _look_up(reference)
    if not isinstance(found, type):
        raise ValueNotStorable(f"the class {reference} is not there any more; keep it, or an alias of it, in its place")
    return found


def _look_up(place: str) -> Any:
    module, _, name = place.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found
