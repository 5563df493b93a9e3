"""Finds JSON values of another kind than the schema says, where pydantic would quietly turn one into the other.

`true` is no number, `1` is no boolean, a number is no date, the text `NaN` is no number; the text `5` may be a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Misfit = tuple[str, str]

_MOMENTS = frozenset({"date", "date-time", "time"})
_NUMERIC = re.compile(r"\s*[+-]?\d+(\.\d*)?\s*")
_NOT_FINITE = re.compile(r"\s*[+-]?(nan|inf|infinity)\s*", re.IGNORECASE)
_EVERYTHING = frozenset({"boolean", "number", "string", "object", "array", "null"})


def misfits(schema: Mapping[str, Any], defs: Mapping[str, Any], value: Any, field: str) -> list[Misfit]:
    """Return `(field, reason)` for every value in there that is of the wrong kind."""
    branches = list(_branches(schema, defs))
    if isinstance(value, (dict, list)):
        return _inside(branches, defs, value, field)
    reason = _scalar(branches, value)
    return [(field, reason)] if reason else []


def kinds(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of JSON values that a schema lets in; `integer` counts as `number`."""
    return frozenset().union(*(_kinds(branch) for branch in _branches(schema, defs)))


def sure_types(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> frozenset[type]:
    """Return the types of which no value is a misfit at the top, so that most arguments need no look."""
    allowed = kinds(schema, defs)
    sure: set[type] = {type(None)}
    if "boolean" in allowed:
        sure.add(bool)
    if "number" in allowed:
        sure |= {int, float}
    if "string" in allowed and not any(branch.get("format") in _MOMENTS for branch in _branches(schema, defs)):
        sure.add(str)
    return frozenset(sure)


def _branches(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    reference = schema.get("$ref")
    if reference is not None:
        yield from _branches(defs[reference.rsplit("/", 1)[1]], defs)
        return
    for key in ("anyOf", "oneOf"):
        if key in schema:
            for branch in schema[key]:
                yield from _branches(branch, defs)
            return
    yield schema


def _kinds(branch: Mapping[str, Any]) -> frozenset[str]:
    if "const" in branch or "enum" in branch:
        return frozenset(_kind(value) for value in branch.get("enum", [branch.get("const")]))
    named = branch.get("type")
    if named is None:
        return _EVERYTHING
    names = [named] if isinstance(named, str) else named
    return frozenset("number" if name == "integer" else name for name in names)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if value is None:
        return "null"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _scalar(branches: list[Mapping[str, Any]], value: Any) -> str | None:
    allowed: frozenset[str] = frozenset().union(*(_kinds(branch) for branch in branches))
    if isinstance(value, bool):
        return None if "boolean" in allowed else f"should be {_named(allowed)}, not {str(value).lower()}"
    if isinstance(value, (int, float)):
        return None if "number" in allowed else f"should be {_named(allowed)}, not a number"
    if isinstance(value, str):
        return _text(branches, allowed, value)
    return None


def _text(branches: list[Mapping[str, Any]], allowed: frozenset[str], value: str) -> str | None:
    if "string" in allowed:
        formats = {branch.get("format") for branch in branches if "string" in _kinds(branch)}
        if "number" not in allowed and formats and formats <= _MOMENTS and _NUMERIC.fullmatch(value):
            return "should be a date or time in ISO 8601, such as 2026-01-31"
        return None
    if allowed <= {"boolean", "null"} and value.strip().lower() not in ("true", "false"):
        return "should be true or false"
    if "number" in allowed and _NOT_FINITE.fullmatch(value):
        return "should be a finite number"
    return None


def _inside(
    branches: list[Mapping[str, Any]], defs: Mapping[str, Any], value: dict[str, Any] | list[Any], field: str
) -> list[Misfit]:
    kind = "object" if isinstance(value, dict) else "array"
    outcomes = []
    for branch in branches:
        if kind not in _kinds(branch) or not _meant(branch, value):
            continue
        found: list[Misfit] = []
        for name, part, item in _parts(branch, value):
            found += misfits(part, defs, item, f"{field}.{name}" if field else str(name))
        if not found:
            return []
        outcomes.append(found)
    return min(outcomes, key=len, default=[])


def _meant(branch: Mapping[str, Any], value: dict[str, Any] | list[Any]) -> bool:
    """Whether a value may be of this branch: it has what the branch requires, and its constants."""
    if not isinstance(value, dict):
        return True
    if not set(branch.get("required", ())) <= value.keys():
        return False
    constants = {name: part["const"] for name, part in branch.get("properties", {}).items() if "const" in part}
    return all(value.get(name, constant) == constant for name, constant in constants.items())


def _parts(
    branch: Mapping[str, Any], value: dict[str, Any] | list[Any]
) -> Iterator[tuple[Any, Mapping[str, Any], Any]]:
    if isinstance(value, dict):
        known, others = branch.get("properties", {}), branch.get("additionalProperties")
        for name, item in value.items():
            part = known.get(name, others)
            if isinstance(part, Mapping):
                yield name, part, item
        return
    first, others = branch.get("prefixItems", []), branch.get("items")
    for index, item in enumerate(value):
        part = first[index] if index < len(first) else others
        if isinstance(part, Mapping):
            yield index, part, item


def _named(allowed: frozenset[str]) -> str:
    words = {
        "boolean": "true or false",
        "number": "a number",
        "string": "text",
        "object": "an object",
        "array": "a list",
        "null": "null",
    }
    return " or ".join(words[kind] for kind in sorted(allowed))
