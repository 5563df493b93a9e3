"""Forms that a client shows to its person: what MCP lets a form hold of a JSON Schema, and how it is read again.

A form is flat: texts, numbers, yes or no, and choices. What a schema has beside that is asked for as JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amoxi_py.declare.definitions import JsonSchema
from amoxi_py.domain.encoding import decode_json, encode_json_unicode

ANSWER = "answer"
"""The one field of a form for a value that is no object."""

_DEFINITIONS = "#/$defs/"
_MOST_REFERENCES = 10
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
_LIMITS = {
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}
_KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
}
_LONGEST_SHOWN = 2000
_TEXT: dict[str, Any] = {"type": "string", "title": "Answer", "minLength": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a form.

    Attributes:
        name: Its name.
        schema: Of its value, as MCP allows it.
        as_json: Whether it holds JSON text.
        required: Whether it must be filled in.
        null: Whether left out it means null.
    """

    name: str
    schema: Mapping[str, Any]
    as_json: bool = False
    required: bool = True
    null: bool = False

    def read(self, value: Any) -> Any:
        """Return the value that a person's entry means; what does not fit is returned as it is, to be refused."""
        if self.as_json and isinstance(value, str):
            try:
                return decode_json(value)
            except ValueError:
                return value
        if self.schema["type"] == "integer" and isinstance(value, float) and value.is_integer():
            return int(value)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form for one value: `whole` when it is the value of the form's one field, and not an object of all fields."""

    fields: tuple[Field, ...]
    whole: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """What the client is told."""
        required = [field.name for field in self.fields if field.required]
        told: dict[str, Any] = {"type": "object", "properties": {field.name: field.schema for field in self.fields}}
        return {**told, "required": required} if required else told

    def read(self, content: Mapping[str, Any]) -> Any:
        """Return the value that was entered; what the form does not have is left out."""
        given: dict[str, Any] = {}
        for field in self.fields:
            entry = content.get(field.name)
            if entry == "" and not field.required:  # how many clients send a field that was left empty
                entry = None
            if entry is not None:
                given[field.name] = field.read(entry)
            elif field.null:
                given[field.name] = None
        return given.get(self.fields[0].name) if self.whole else given


def form_of(schema: JsonSchema | None) -> Form:
    """Return the form for a value that fits a schema, or, without one, for a text."""
    if schema is None:
        return Form(fields=(Field(name=ANSWER, schema=_TEXT),), whole=True)
    root = _resolved(schema, schema)
    properties = root.get("properties")
    if root.get("type") == "object" and isinstance(properties, Mapping) and properties:
        required = root.get("required", ())
        fields = (_field(name, part, schema, required=name in required) for name, part in properties.items())
        return Form(fields=tuple(fields))
    return Form(fields=(_field(ANSWER, schema, schema, required=True),), whole=True)


def _field(name: str, schema: JsonSchema, root: JsonSchema, *, required: bool) -> Field:
    part = _resolved(schema, root)
    part, nullable = _without_null(part, root)
    told = _told_of(part)
    flat = _flat(part)
    if flat is None:
        return Field(
            name=name,
            schema={"type": "string", **told, "description": _as_json_text(part, root)},
            as_json=True,
            required=required,
        )
    default = part.get("default")
    if default is not None and _is_of(default, flat["type"]):
        told["default"] = default
    return Field(name=name, schema={**flat, **told}, required=required and not nullable, null=required and nullable)


def _resolved(schema: JsonSchema, root: JsonSchema) -> JsonSchema:
    """Return a schema with what its reference leads to, so far as that is among the definitions of the root."""
    for _ in range(_MOST_REFERENCES):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith(_DEFINITIONS):
            break
        target = root.get("$defs", {}).get(reference.removeprefix(_DEFINITIONS))
        if not isinstance(target, Mapping):
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _without_null(schema: JsonSchema, root: JsonSchema) -> tuple[JsonSchema, bool]:
    """Return what a schema allows beside null, and whether it allows null."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list) or {"type": "null"} not in choices:
        return schema, False
    others = [choice for choice in choices if choice != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if len(others) == 1:
        return {**_resolved(others[0], root), **rest}, True
    return {**rest, "anyOf": others}, True


def _flat(schema: JsonSchema) -> dict[str, Any] | None:
    """Return what MCP lets a field be that is meant by a schema, or None when it has no such form."""
    choice = _choice(schema)
    if choice is not None:
        return {"type": "string", **choice}
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        choice = _choice(items) if isinstance(items, Mapping) else None
        if choice is None:
            return None
        several = {"type": "string", **choice} if "enum" in choice else {"anyOf": choice["oneOf"]}
        return {"type": "array", "items": several, **_taken(schema, ("minItems", "maxItems"))}
    if not isinstance(kind, str) or kind not in _LIMITS or not _plain_values(schema, kind):
        return None
    flat = {"type": kind, **_taken(schema, _LIMITS[kind])}
    if kind == "string" and schema.get("format") in _FORMATS:
        flat["format"] = schema["format"]
    return flat


def _choice(schema: JsonSchema) -> dict[str, Any] | None:
    """Return the texts that a schema lets one choose from, or None when it is no choice of texts."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return {"enum": values} if values and _all_texts(values) else None
    for key in ("oneOf", "anyOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and parts and all(isinstance(part, Mapping) and "const" in part for part in parts):
            if not _all_texts([part["const"] for part in parts]):
                return None
            return {"oneOf": [{"const": part["const"], "title": part.get("title", part["const"])} for part in parts]}
    return None


def _plain_values(schema: JsonSchema, kind: str) -> bool:
    """Whether the values of an enumeration, where it is one, can be entered in a field of this kind."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else ())
    return all(_is_of(value, kind) for value in values)


def _told_of(schema: JsonSchema) -> dict[str, Any]:
    told = {key: schema[key] for key in ("title", "description") if isinstance(schema.get(key), str)}
    values = schema.get("enum")
    if isinstance(values, list) and values and not _all_texts(values):
        choices = f"One of: {', '.join(encode_json_unicode(value) for value in values)}"
        told["description"] = f"{told['description']} {choices}" if "description" in told else choices
    return told


def _as_json_text(schema: JsonSchema, root: JsonSchema) -> str:
    whole = dict(schema)
    if "$defs" in root and '"$ref"' in encode_json_unicode(whole):
        whole["$defs"] = root["$defs"]
    shown = encode_json_unicode(whole)
    cut = shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."
    description = schema.get("description")
    asked = f"As JSON text that fits this schema: {cut}"
    return f"{description} {asked}" if isinstance(description, str) else asked


def _taken(schema: JsonSchema, keys: Sequence[str]) -> dict[str, Any]:
    return {key: schema[key] for key in keys if key in schema}


def _all_texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _KINDS[kind])
