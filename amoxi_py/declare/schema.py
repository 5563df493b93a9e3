"""Plain JSON Schema (draft 2020-12) out of pydantic's: no titles, nothing that providers refuse, clean texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from amoxi_py.domain.encoding import clean_json

Mode = Literal["validation", "serialization"]

ARGUMENT_CONFIG = ConfigDict(val_json_bytes="base64", allow_inf_nan=False)
RESULT_CONFIG = ConfigDict(ser_json_bytes="base64")
"""Bytes are base64 text in both directions; inside a pydantic model the model's own configuration decides."""

REFS = "#/$defs/{model}"
_FORMATS = frozenset({"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_MAPS = frozenset({"properties", "$defs", "patternProperties", "dependentSchemas"})
_DATA = frozenset({"const", "enum", "default", "examples", "required"})
_LOOKAROUND = ("(?=", "(?!", "(?<=", "(?<!")


class _Generator(GenerateJsonSchema):
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - pydantic's own attribute


def schemas_of(
    adapters: Iterable[tuple[str, TypeAdapter[Any]]], mode: Mode
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return a schema per name, and the definitions that they refer to.

    Raises:
        ValueNotStorable: what an app has put into a schema itself is no JSON.
    """
    inputs = [(name, mode, adapter) for name, adapter in adapters]
    if not inputs:
        return {}, {}
    found, rest = TypeAdapter.json_schemas(inputs, ref_template=REFS, schema_generator=_Generator)
    return (
        {name: clean_json(plain(schema, mode)) for (name, _), schema in found.items()},
        {name: clean_json(plain(schema, mode)) for name, schema in rest.get("$defs", {}).items()},
    )


def plain(schema: Any, mode: Mode) -> Any:
    """Return a schema without titles, formats of pydantic's own, lookarounds, and defaults of null."""
    if isinstance(schema, list):
        return [plain(item, mode) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    cleaned: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS:
            cleaned[key] = {name: plain(item, mode) for name, item in value.items()}
        elif key in _DATA:
            if not (key == "default" and value is None):
                cleaned[key] = value
        elif _keeps(key, value):
            cleaned[key] = plain(value, mode)
    if schema.get("format") in ("base64url", "base64"):
        cleaned["contentEncoding"] = "base64"
    if mode == "serialization" and cleaned.get("type") == "number" and "const" not in cleaned:
        cleaned["type"] = ["number", "null"]  # NaN and the infinities are stored as null
    return cleaned


def _keeps(key: str, value: Any) -> bool:
    if key in ("title", "discriminator"):
        return False
    if key == "format":
        return value in _FORMATS
    return not (key == "pattern" and isinstance(value, str) and any(mark in value for mark in _LOOKAROUND))
