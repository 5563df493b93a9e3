"""From a tool's parameters to their JSON Schema, and from a model's JSON object to Python values.

A value is read as JSON: `"2026-01-31"` is a date, `"5"` may be a number, `true` may not. An argument that was left out
is left out, so that the function's own default holds. An object or a list that came as a JSON text is read, where the
parameter takes no text. Whatever does not fit is told field by field, and the function is never reached.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, SchemaError

from amoxi_py.declare.json_kinds import kinds, misfits, sure_types
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.schema import ARGUMENT_CONFIG, schemas_of
from amoxi_py.declare.signature import ToolParameter
from amoxi_py.domain.encoding import clean_json, decode_json, encode_json
from amoxi_py.errors import ArgumentsInvalid, ValueNotStorable

CANNOT_BE_JSON = (
    PydanticUserError,
    PydanticUndefinedAnnotation,
    SchemaError,
    ValueNotStorable,
    ValueError,
    NameError,
    TypeError,
    RecursionError,
)
"""What is raised for a type that has no JSON Schema, or one with something in it that is no JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Argument:
    parameter: ToolParameter
    adapter: TypeAdapter[Any]
    schema: Mapping[str, Any]
    kinds: frozenset[str]
    sure: frozenset[type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """How a tool's arguments look to a model, and how they are read."""

    schema: Mapping[str, Any]
    read: Callable[[Mapping[str, Any]], dict[str, Any]]


def read_parameters(
    parameters: tuple[ToolParameter, ...], texts: Mapping[str, str], where: str, mistakes: Mistakes
) -> Arguments:
    """Make the schema and the reader; `texts` are the docstring's, which `Annotated` and `Field` go before."""
    adapters: dict[str, TypeAdapter[Any]] = {}
    for parameter in parameters:
        adapter = _adapter(parameter, f"{where}: parameter {parameter.name!r}", mistakes)
        if adapter is not None:
            adapters[parameter.name] = adapter
    properties, defs = schemas_of(adapters.items(), "validation")
    arguments: dict[str, _Argument] = {}
    for parameter in parameters:
        if parameter.name not in adapters:
            continue
        schema = properties[parameter.name]
        if texts.get(parameter.name) and not (parameter.field and parameter.field.description):
            schema["description"] = texts[parameter.name]
        _show_default(schema, parameter, adapters[parameter.name])
        arguments[parameter.name] = _Argument(
            parameter=parameter,
            adapter=adapters[parameter.name],
            schema=schema,
            kinds=kinds(schema, defs),
            sure=sure_types(schema, defs),
        )
    whole: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = [parameter.name for parameter in parameters if parameter.required]
    if required:
        whole["required"] = required
    if defs:
        whole["$defs"] = defs
    return Arguments(schema=whole, read=lambda given: _read(arguments, defs, given))


def _adapter(parameter: ToolParameter, at: str, mistakes: Mistakes) -> TypeAdapter[Any] | None:
    hint = parameter.hint
    if isinstance(parameter.field, FieldInfo) and parameter.field not in getattr(hint, "__metadata__", ()):
        hint = Annotated[hint, parameter.field]
    try:
        adapter = make_adapter(hint, ARGUMENT_CONFIG)
        clean_json(adapter.json_schema())
    except CANNOT_BE_JSON as error:
        mistakes.add(
            at,
            f"JSON cannot fill the type {shown_type(parameter.hint)} ({first_line(error)}); use a pydantic model, "
            "a dataclass or a plain type, and take services in the constructor of a @singleton class",
        )
        return None
    return adapter


def make_adapter(hint: Any, config: ConfigDict) -> TypeAdapter[Any]:
    """Return a finished adapter of a type; a pydantic model keeps its own configuration."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        adapter = TypeAdapter(hint)
    adapter.rebuild(raise_errors=True)
    return adapter


def shown_type(hint: Any) -> str:
    """Return a type as a developer wrote it, or nearly."""
    return repr(hint.__qualname__ if isinstance(hint, type) else str(hint).replace("typing.", ""))


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says, in lower case at its start."""
    line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
    return line[:1].lower() + line[1:]


def _show_default(schema: dict[str, Any], parameter: ToolParameter, adapter: TypeAdapter[Any]) -> None:
    schema.pop("default", None)
    if parameter.default is inspect.Parameter.empty or parameter.default is None:
        return
    try:
        shown = clean_json(adapter.dump_python(parameter.default, mode="json", warnings="error"))
    except (PydanticSerializationError, ValueNotStorable, ValueError):
        return
    if isinstance(shown, (str, int, float)):
        schema["default"] = shown


def _read(arguments: Mapping[str, _Argument], defs: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    errors: list[tuple[str, str]] = []
    for name, argument in arguments.items():
        if name in given:
            found = _read_one(name, argument, defs, given[name], values)
            errors += found
        elif argument.parameter.required:
            errors.append((name, "is required"))
        elif argument.parameter.default is inspect.Parameter.empty and argument.parameter.factory is not None:
            values[name] = argument.parameter.factory()
        elif argument.parameter.field is not None:
            values[name] = argument.parameter.default
    for name in given:
        if name not in arguments:
            known = ", ".join(arguments) or "none"
            errors.append((str(name), f"is not a field of this tool; its fields are: {known}"))
    if errors:
        raise ArgumentsInvalid(tuple(errors))
    return values


def _read_one(
    name: str, argument: _Argument, defs: Mapping[str, Any], value: Any, values: dict[str, Any]
) -> list[tuple[str, str]]:
    value = _unpack(value, argument.kinds)
    try:
        text = encode_json(value)
    except ValueNotStorable as error:
        return [(name, str(error))]
    if type(value) not in argument.sure:
        wrong = misfits(argument.schema, defs, value, name)
        if wrong:
            return wrong
    try:
        values[name] = argument.adapter.validate_json(text)
    except ValidationError as error:
        return [
            (".".join(str(part) for part in (name, *found["loc"])), found["msg"])
            for found in error.errors(include_url=False, include_context=False, include_input=False)
        ]
    return []


def _unpack(value: Any, accepted: frozenset[str]) -> Any:
    """Models sometimes send an object as a JSON text."""
    if not isinstance(value, str) or "string" in accepted or not accepted & {"object", "array"}:
        return value
    try:
        unpacked = decode_json(value)
    except ValueError:
        return value
    return unpacked if isinstance(unpacked, (dict, list)) else value
