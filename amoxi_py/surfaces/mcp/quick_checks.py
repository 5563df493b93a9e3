"""Whether a value fits a schema, for the plain words of JSON Schema, which most types come to; else by a validator.

Each result of a tool is checked against what is advertised. A validator takes as long for that as the engine does for
a call that only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator

Check = Callable[[Any], bool]

_ABOUT = frozenset({"$defs", "title", "description", "default", "examples", "deprecated", "format", "$comment"})
"""Words that no value can fail: what they say is for people, or for other schemas to name."""
_OF_OBJECTS = frozenset({"type", "properties", "required", "additionalProperties"})
_TEXTS = ({"enum", "type"}, {"const", "type"})
_LOCAL = "#/$defs/"


def check_of(schema: Mapping[str, Any]) -> Check:
    """Return whether a value fits a schema of the draft of 2020-12, as its validator would say."""
    check = _Checks(schema).of(schema)
    return Draft202012Validator(schema).is_valid if check is None else check


class _Checks:
    """Makes checks that ask no validator; None where a schema has a word that is not known here."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._definitions = root.get("$defs", {})
        self._named: dict[str, Check | None] = {}

    def of(self, schema: Any) -> Check | None:
        """Return the check of a schema within the root."""
        if not isinstance(schema, Mapping):
            return None
        words, kind = schema.keys() - _ABOUT, schema.get("type")
        if words == {"$ref"}:
            return self._definition(schema["$ref"])
        if words == {"anyOf"}:
            return _any_of(self._all(schema["anyOf"]))
        if words in _TEXTS and kind == "string":
            return _one_of(schema.get("enum", [schema.get("const")]))
        if words == {"type"} and isinstance(kind, str):
            return _KINDS.get(kind)
        if words == {"type", "items"} and kind == "array":
            return _array_of(self.of(schema["items"]))
        if words <= _OF_OBJECTS and kind == "object":
            return self._object(schema)
        return None

    def _definition(self, reference: str) -> Check | None:
        name = reference.removeprefix(_LOCAL)
        if not reference.startswith(_LOCAL) or name not in self._definitions:
            return None
        if name not in self._named:
            self._named[name] = None  # of one that names itself there is no check yet
            self._named[name] = self.of(self._definitions[name])
        return self._named[name]

    def _all(self, schemas: Sequence[Any]) -> list[Check] | None:
        checks = [self.of(schema) for schema in schemas]
        known = [check for check in checks if check is not None]
        return known if len(known) == len(checks) else None

    def _object(self, schema: Mapping[str, Any]) -> Check | None:
        properties = schema.get("properties", {})
        checks = self._all(list(properties.values()))
        if checks is None:
            return None
        others = schema.get("additionalProperties", True)
        of_others = None if isinstance(others, bool) else self.of(others)
        if of_others is None and not isinstance(others, bool):
            return None
        by_name = dict(zip(properties, checks, strict=True))
        return _object_of(by_name, tuple(schema.get("required", ())), closed=others is False, of_others=of_others)


def _object_of(
    properties: dict[str, Check], required: tuple[str, ...], *, closed: bool, of_others: Check | None
) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        for name in required:
            if name not in value:
                return False
        for name, found in value.items():
            of_property = properties.get(name, of_others)
            if of_property is None:
                if closed:
                    return False
            elif not of_property(found):
                return False
        return True

    return check


def _array_of(item: Check | None) -> Check | None:
    return None if item is None else lambda value: isinstance(value, list) and all(map(item, value))


def _any_of(checks: list[Check] | None) -> Check | None:
    return None if checks is None else lambda value: any(check(value) for check in checks)


def _one_of(texts: Sequence[Any]) -> Check | None:
    if not all(isinstance(text, str) for text in texts):
        return None
    known = frozenset(texts)
    return lambda value: isinstance(value, str) and value in known


def _is_integer(value: Any) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KINDS: dict[str, Check] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
