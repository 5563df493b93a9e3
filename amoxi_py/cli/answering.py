"""What somebody types as the answer to a question of a tool: from lines of text to the JSON that its schema wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_YES = frozenset({"y", "yes", "true"})
_NO = frozenset({"n", "no", "false"})


def parts_of(schema: Mapping[str, Any] | None) -> Iterator[tuple[str, str, Any, bool]]:
    """Give what has to be typed: the field's name (empty for the whole answer), a prompt, its schema, if it is needed.

    An object with named fields is asked for field by field.
    """
    if schema is None:
        yield "", "answer: ", None, True
        return
    whole = resolved(schema, schema)
    properties = whole.get("properties")
    if whole.get("type") != "object" or not properties:
        yield "", f"answer{_hint(whole)}: ", whole, True
        return
    required = whole.get("required", ())
    for name, field in properties.items():
        one = resolved(field, schema)
        needed = name in required
        yield name, f"{name}{_hint(one)}{'' if needed else ' (Enter to leave it out)'}: ", one, needed


def resolved(field: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a field refers to; of a value that may be null, what it is else."""
    reference = field.get("$ref")
    found: Mapping[str, Any] = field
    if isinstance(reference, str):
        found = {**schema.get("$defs", {}).get(reference.rpartition("/")[2], {}), **field}
    others = [one for one in found.get("anyOf", ()) if one.get("type") != "null"]
    return {**found, **resolved(others[0], schema)} if len(others) == 1 else found


def read_answer(text: str, schema: Mapping[str, Any] | None) -> Any:
    """Return the value that a text is: the text itself where one is wanted, else JSON; yes and no are fine too."""
    if schema is None or schema.get("type") == "string":
        return text
    if schema.get("type") == "boolean" and text.strip().lower() in _YES | _NO:
        return text.strip().lower() in _YES
    for choice in schema.get("enum", ()):
        if text == choice:
            return choice
    import json

    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _hint(schema: Mapping[str, Any]) -> str:
    from amoxi_py.domain.encoding import encode_json_unicode

    choices = schema.get("enum")
    if choices:
        told = (choice if isinstance(choice, str) else encode_json_unicode(choice) for choice in choices)
        return f" ({' | '.join(told)})"
    kind = schema.get("type")
    if kind == "boolean":
        return " ([y]es or [n]o)"
    if kind in ("integer", "number"):
        return f" ({kind})"
    return "" if kind == "string" else " (JSON)"
