"""The checks of results without a validator say what the validator would say."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter

from amoxi_py.surfaces.mcp import quick_checks
from amoxi_py.surfaces.mcp.quick_checks import check_of

PLAIN = ("string", "integer", "number", "boolean", "null", "array", "object")
NAMES = ("a", "b", "c")
VALUES = ("", "x", "y", 0, 1, -3, 1.0, 1.5, 2e30, True, False, None)


def schema_of(dice: random.Random, depth: int) -> dict[str, Any]:
    """Return some schema of the plain words."""
    kind = dice.choice(("plain", "object", "array", "any", "enum", "ref") if depth else ("plain", "enum"))
    about = dice.choice(({}, {"title": "T", "description": "It.", "default": None}))
    if kind == "object":
        properties = {name: schema_of(dice, depth - 1) for name in NAMES if dice.random() < 0.6}
        rest = {"required": [name for name in NAMES if dice.random() < 0.3]}
        others: Any = dice.choice((None, True, False, schema_of(dice, 0)))
        rest |= {} if others is None else {"additionalProperties": others}
        return {"type": "object", "properties": properties, **rest, **about}
    if kind == "array":
        return {"type": "array", "items": schema_of(dice, depth - 1), **about}
    if kind == "any":
        return {"anyOf": [schema_of(dice, depth - 1) for _ in range(dice.randint(1, 3))], **about}
    if kind == "enum":
        return dice.choice(({"enum": ["x", "y"], "type": "string"}, {"const": "x", "type": "string"}))
    return {"$ref": "#/$defs/D"} if kind == "ref" else {"type": dice.choice(PLAIN), **about}


def value_of(dice: random.Random, depth: int) -> Any:
    kind = dice.choice(("plain", "object", "array")) if depth else "plain"
    if kind == "object":
        return {name: value_of(dice, depth - 1) for name in (*NAMES, "d") if dice.random() < 0.5}
    if kind == "array":
        return [value_of(dice, depth - 1) for _ in range(dice.randint(0, 2))]
    return dice.choice(VALUES)


def test_what_fits_is_the_same_as_for_the_validator() -> None:
    dice = random.Random(7)
    fitting = 0
    for _ in range(400):
        schema = {**schema_of(dice, 3), "$defs": {"D": schema_of(dice, 0)}}
        check, validator = check_of(schema), Draft202012Validator(schema)
        assert check is not validator.is_valid
        for _ in range(12):
            value = value_of(dice, 3)
            fits = check(value)
            fitting += fits
            assert fits == validator.is_valid(value), (schema, value)
    assert 500 < fitting < 4000, "both answers are tried"


class Item(BaseModel):
    """A thing."""

    name: str
    kind: Literal["small", "large"]
    price: float | None = None
    tags: dict[str, list[int]] = {}


class Order(BaseModel):
    """Some of them."""

    id: int
    items: list[Item]
    more: Any = None


def test_ordinary_types_ask_no_validator_and_what_has_other_words_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise AssertionError("a validator was made")

    monkeypatch.setattr(quick_checks, "Draft202012Validator", refuse)
    plain = TypeAdapter(list[Item]).json_schema(mode="serialization")
    check = check_of(plain)
    assert check([{"name": "a", "kind": "small", "price": None, "tags": {"t": [1]}}])
    assert not check([{"name": "a", "kind": "tiny", "price": None, "tags": {}}])
    monkeypatch.undo()
    for schema, right, wrong in (
        ({"type": "integer", "minimum": 3}, 3, 2),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a"], ["a", "b"]),
        ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, {"a": None}, {"a": 1}),
        ({"properties": {"a": {"type": "string"}}}, 7, {"a": 1}),
        (Order.model_json_schema(), {"id": 1, "items": []}, {"id": 1, "items": [1]}),
    ):
        check = check_of(schema)
        assert (check(right), check(wrong)) == (True, False), schema


def test_a_type_that_holds_itself_is_checked_too() -> None:
    node = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}}
    check = check_of({"$ref": "#/$defs/N", "$defs": {"N": node}})
    assert check({"next": {"next": None}})
    assert not check({"next": {"next": 1}})
