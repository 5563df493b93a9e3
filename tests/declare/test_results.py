"""Whatever a tool returns becomes plain JSON by one rule, or one clear refusal; never something quietly else."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Optional
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel

from amoxi_py import tool
from amoxi_py.declare.definitions import ToolDefinition
from amoxi_py.errors import ValueNotStorable

ToolOf = Callable[[Any], ToolDefinition]
NOTHING = object()


class Kind(Enum):
    ONE = "one"


@dataclass
class Point:
    x: int
    at: datetime


class Refund(BaseModel):
    id: str
    amount: Decimal
    rate: float = 0.5


class Box(BaseModel):
    content: Any


def returning(hint: Any) -> Any:
    def give():  # type: ignore[no-untyped-def]
        """Give it."""

    if hint is not NOTHING:
        give.__annotations__ = {"return": hint}
    return tool(give)


MOMENT = datetime(2026, 1, 31, 10, tzinfo=UTC)
# A return type, a value, its JSON.
STORABLE: dict[str, tuple[Any, Any, Any]] = {
    "decimal": (Decimal, Decimal("0.10"), "0.10"),
    "decimal, untyped": (NOTHING, [Decimal("0.10")], ["0.10"]),
    "datetime": (datetime, MOMENT, "2026-01-31T10:00:00Z"),
    "datetime, untyped": (NOTHING, {"at": MOMENT}, {"at": "2026-01-31T10:00:00Z"}),
    "date as key": (NOTHING, {date(2026, 1, 31): 1}, {"2026-01-31": 1}),
    "timedelta": (NOTHING, timedelta(seconds=90), "PT1M30S"),
    "uuid": (UUID, UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    "set": (set[int], {1}, [1]),
    "set, untyped": (NOTHING, {1}, [1]),
    "bytes": (bytes, b"\xfb\xffhi", "-_9oaQ=="),
    "bytes, untyped": (NOTHING, [b"\xfb\xffhi"], ["-_9oaQ=="]),
    "bytes in a dict": (dict[str, Any], {"b": b"\xfb\xffhi"}, {"b": "-_9oaQ=="}),
    "dataclass": (Point, Point(1, MOMENT), {"x": 1, "at": "2026-01-31T10:00:00Z"}),
    "dataclass, untyped": (NOTHING, Point(1, MOMENT), {"x": 1, "at": "2026-01-31T10:00:00Z"}),
    "model": (Refund, Refund(id="a", amount=Decimal("1.5")), {"id": "a", "amount": "1.5", "rate": 0.5}),
    "model, untyped": (NOTHING, Refund(id="a", amount=Decimal("1.5")), {"id": "a", "amount": "1.5", "rate": 0.5}),
    "model from a dict": (Refund, {"id": "a", "amount": "1.5"}, {"id": "a", "amount": "1.5", "rate": 0.5}),
    "list of models": (list[Refund], [Refund(id="a", amount=Decimal(1))], [{"id": "a", "amount": "1", "rate": 0.5}]),
    "optional": (Optional[Refund], None, None),  # noqa: UP045 - the older form is what is tried
    "union": (int | str, "a", "a"),
    "enum": (Kind, Kind.ONE, "one"),
    "enum, untyped": (NOTHING, [Kind.ONE], ["one"]),
    "tuple": (tuple[int, str], (1, "a"), [1, "a"]),
    "none": (None, None, None),
    "nan": (float, float("nan"), None),
    "nan, untyped": (NOTHING, [float("nan"), float("inf"), float("-inf")], [None, None, None]),
    "nan in a model": (
        Refund,
        Refund(id="a", amount=Decimal(1), rate=float("inf")),
        {"id": "a", "amount": "1", "rate": None},
    ),
    "minus zero": (float, -0.0, -0.0),
    "a tenth": (float, 0.1, 0.1),
    "big": (int, 10**30, 10**30),
    "big, untyped": (NOTHING, {"id": 2512292042121000001}, {"id": 2512292042121000001}),
    "nul and a surrogate": (str, "a\x00\ud800b", "a\ufffd\ufffdb"),
    "nul in a key, untyped": (NOTHING, {"a\x00": "\x00"}, {"a\ufffd": "\ufffd"}),
    "any": (Any, [1, "a", None], [1, "a", None]),
    "bare dict": (dict, {"a": Decimal(1)}, {"a": "1"}),
    "awaitable": (Awaitable[int], 5, 5),
}


@pytest.mark.parametrize(("hint", "value", "expected"), STORABLE.values(), ids=STORABLE.keys())
def test_a_value_becomes_strict_json_that_fits_the_output_schema(
    tool_of: ToolOf, hint: Any, value: Any, expected: Any
) -> None:
    definition = tool_of(returning(hint))
    encoded = definition.encode_result(value)
    assert encoded == expected
    assert json.loads(json.dumps(encoded, allow_nan=False)) == encoded
    if definition.output_schema is not None:
        jsonschema.Draft202012Validator.check_schema(definition.output_schema)
        jsonschema.validate(encoded, definition.output_schema, cls=jsonschema.Draft202012Validator)


def loop() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


def broken_refund() -> Refund:
    refund = Refund(id="a", amount=Decimal(1))
    refund.id = 5  # type: ignore[assignment]
    return refund


# A return type, a value, and parts of the refusal.
REFUSED: dict[str, tuple[Any, Any, list[str]]] = {
    "generator": (NOTHING, (x for x in [1]), ["'generator'", "return plain values"]),
    "generator for a list": (list[int], (x for x in [1]), ["'generator'"]),
    "generator inside": (dict[str, Any], {"a": [(x for x in [1])]}, ["['a'][0]", "'generator'"]),
    "object": (NOTHING, object(), ["object"]),
    "object inside": (list[Any], [object()], ["object"]),
    "exception": (NOTHING, ValueError("x"), ["'ValueError'"]),
    "exception inside": (dict, {"error": KeyError("x")}, ["['error']", "'KeyError'"]),
    "class": (NOTHING, [Refund], ["'ModelMetaclass'"]),
    "function": (NOTHING, {"f": loop}, ["'function'"]),
    "tuple keys": (NOTHING, {(1, 2): 3}, ["key of type 'tuple'", "text as keys"]),
    "tuple keys, typed": (dict[Any, int], {(1, 2): 3}, ["key of type 'tuple'"]),
    "tuple keys in a model": (Box, Box(content={(1, 2): 3}), ["content", "key of type 'tuple'"]),
    "none as a key": (NOTHING, {None: 1}, ["key of type 'NoneType'"]),
    "keys that become one": (NOTHING, {1: "a", "1": "b"}, ["different keys that are the same text"]),
    "itself": (NOTHING, loop(), ["contains itself"]),
    "itself, typed": (list[Any], loop(), ["contains itself"]),
    "wrong type": (int, "five", ["return type 'int'", "valid integer"]),
    "wrong field": (Refund, {"id": 5, "amount": 1}, ["return type 'Refund'", "id:", "valid string"]),
    "field that was broken later": (Refund, broken_refund(), ["return type 'Refund'"]),
    "wrong item": (list[Refund], [{"id": "a"}], ["0.amount:"]),
    "something for none": (None, 5, ["return type 'NoneType'"]),
    "none for something": (Refund, None, ["return type 'Refund'"]),
    "huge number": (int, 10**5000, ["digits"]),
}


@pytest.mark.parametrize(("hint", "value", "parts"), REFUSED.values(), ids=REFUSED.keys())
def test_a_value_that_cannot_be_stored_as_it_is_is_refused_by_name(
    tool_of: ToolOf, hint: Any, value: Any, parts: list[str]
) -> None:
    with pytest.raises(ValueNotStorable) as caught:
        tool_of(returning(hint)).encode_result(value)
    for part in parts:
        assert part in str(caught.value), str(caught.value)


@pytest.mark.parametrize("hint", [NOTHING, Any, object, None])
def test_a_return_type_that_says_nothing_gives_no_output_schema(tool_of: ToolOf, hint: Any) -> None:
    assert tool_of(returning(hint)).output_schema is None


def test_an_output_schema_shows_its_object_at_the_top_and_says_that_nan_is_null(tool_of: ToolOf) -> None:
    schema = tool_of(returning(Refund)).output_schema
    assert schema is not None
    assert schema["type"] == "object"
    assert schema["properties"]["rate"]["type"] == ["number", "null"]
    assert schema["properties"]["amount"]["type"] == "string"
    assert "$defs" not in schema
