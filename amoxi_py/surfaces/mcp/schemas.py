"""JSON Schemas as MCP clients take them: an object at the root, and nothing that is elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from amoxi_py.declare.definitions import JsonSchema

RESULT = "result"
"""The one property of what is wrapped because it is no object."""

_REFERENCES = ("$ref", "$dynamicRef")
_LONGEST_REASON = 300


def is_object(schema: JsonSchema) -> bool:
    """Whether a schema says at its root that it is of an object, as all clients want it."""
    return schema.get("type") == "object"


def wrapped(schema: JsonSchema) -> dict[str, Any]:
    """Return the schema of an object whose property `result` fits a schema."""
    inner, definitions = parted(schema)
    whole: dict[str, Any] = {"type": "object", "properties": {RESULT: inner}, "required": [RESULT]}
    return {**whole, "$defs": definitions} if definitions else whole


def parted(schema: JsonSchema) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a schema without its definitions, and these: they stay at the root of what it becomes a part of."""
    return {key: value for key, value in schema.items() if key != "$defs"}, dict(schema.get("$defs", {}))


def what_is_wrong(schema: JsonSchema) -> str | None:
    """Return why a schema of an object cannot be used by MCP clients, or None."""
    if not is_object(schema):
        return "it must be of an object: its root needs type 'object'"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        place = "/".join(str(part) for part in error.absolute_path)
        return f"it is no JSON Schema (2020-12): at {place or 'its root'}: {error.message[:_LONGEST_REASON]}"
    for key, target in _references(schema):
        if not target.startswith("#"):
            return f"its {key} {target!r} leads out of it; clients follow only references within a schema"
        if not _leads_somewhere(schema, target):
            return f"its {key} {target!r} leads nowhere"
    return None


def _references(part: Any) -> Iterator[tuple[str, str]]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key in _REFERENCES and isinstance(value, str):
                yield key, value
            elif key not in ("const", "enum", "default", "examples"):  # values, not schemas
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _leads_somewhere(schema: JsonSchema, target: str) -> bool:
    if not target.startswith("#/"):
        return target == "#" or any(anchor == target[1:] for anchor in _anchors(schema))
    place: Any = schema
    for step in target[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list):
            place = place[int(name)] if name.isdecimal() and int(name) < len(place) else None
        else:
            place = place.get(name) if isinstance(place, Mapping) else None
        if place is None:
            return False
    return True


def _anchors(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key in ("$anchor", "$dynamicAnchor") and isinstance(value, str):
                yield value
            yield from _anchors(value)
    elif isinstance(part, list):
        for value in part:
            yield from _anchors(value)
