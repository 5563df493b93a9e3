"""What a model may send and what the function gets: schemas, instances of the declared types, and clear refusals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import jsonschema
import pytest
from pydantic import BaseModel, Field

from amoxi_py import SyncToolContext, ToolContext, tool
from amoxi_py.declare.definitions import ToolDefinition
from amoxi_py.errors import ArgumentsInvalid

ToolOf = Callable[[Any], ToolDefinition]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Item(BaseModel):
    """One line of an order."""

    title: str = Field(description="What it is")
    amount: int = 1
    price: float | None = None


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]

# A type, a value that a model sends, what the function gets, values that are refused.
TYPES: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "str": (str, "a", "a", [1, True, None, ["a"]]),
    "int": (int, 5, 5, [True, 1.5, "five", None, "NaN"]),
    "int as text": (int, "5", 5, []),
    "int of 19 digits": (int, 2512292042121000001, 2512292042121000001, []),
    "int of 31 digits": (int, 10**30, 10**30, []),
    "float": (float, 0.1, 0.1, [True, "NaN", "Infinity", "-inf", None, float("nan"), float("inf")]),
    "bool": (bool, True, True, [1, 0, "yes", None]),
    "bool as text": (bool, "true", True, []),
    "constraint": (Annotated[int, Field(ge=1)], 1, 1, [0, True]),
    "pattern": (Annotated[str, Field(pattern=r"^A-\d{4}$")], "A-1001", "A-1001", ["A-1", 1001]),
    "model": (Item, {"title": "Tent"}, Item(title="Tent"), [{"title": 1}, {}, None, {"title": "a", "amount": True}]),
    "model as text": (
        Item,
        '{"title": "Tent", "amount": 2}',
        Item(title="Tent", amount=2),
        ["Tent", "{", '"Tent"', "[]"],
    ),
    "list of models": (list[Item], [{"title": "Tent"}], [Item(title="Tent")], [{"title": "Tent"}, [{"titel": "T"}]]),
    "list as text": (list[int], "[1, 2]", [1, 2], ["1, 2", ["a"], [True]]),
    "dict of models": (dict[str, Item], {"a": {"title": "T"}}, {"a": Item(title="T")}, [{"a": 1}]),
    "optional model, no default": (Item | None, None, None, [[], "x"]),
    "optional model, given": (Item | None, {"title": "T"}, Item(title="T"), [{}]),
    "int | None": (int | None, None, None, [True, "x"]),
    "discriminated": (
        Pet,
        {"kind": "dog", "name": "Rex"},
        Dog(kind="dog", name="Rex"),
        [{"kind": "cow"}, {"kind": "cat", "lives": True}],
    ),
    "enum": (Color, "red", Color.RED, ["RED", "green", None]),
    "int enum": (Level, 2, Level.HIGH, [True, 3]),
    "literal": (Literal["a", "b"], "a", "a", ["c", None]),
    "date": (date, "2026-01-31", date(2026, 1, 31), [20260131, "20260131", "soon", True]),
    "datetime with zone": (
        datetime,
        "2026-01-31T10:00:00Z",
        datetime(2026, 1, 31, 10, tzinfo=UTC),
        [1769853600, "1769853600"],
    ),
    "timedelta": (timedelta, "PT90S", timedelta(seconds=90), [90, True, "long"]),
    "uuid": (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678123456781234567812345678"), ["12", 12]),
    "decimal as text": (Decimal, "0.10", Decimal("0.10"), ["NaN", True, "ten"]),
    "decimal as number": (Decimal, 3, Decimal(3), [None]),
    "bytes": (bytes, "aGk=", b"hi", ["h", 1]),
    "set": (set[int], [1, 2, 2], {1, 2}, [1, ["a"], [True]]),
    "tuple": (tuple[int, str], [1, "a"], (1, "a"), [[1], ["a", 1], [True, "a"]]),
    "tree": (
        Tree,
        {"value": 1, "children": [{"value": 2}]},
        Tree(value=1, children=[Tree(value=2)]),
        [{"value": 1, "children": [{"value": True}]}],
    ),
    "dataclass": (Point, {"x": 1, "tags": ["a"]}, Point(1, ["a"]), [{"x": False}, {"tags": []}]),
    "any": (Any, {"a": [1]}, {"a": [1]}, []),
    "number or truth": (int | bool, True, True, ["x"]),
}


@pytest.mark.parametrize(("hint", "sent", "received", "refused"), TYPES.values(), ids=TYPES.keys())
def test_the_function_gets_instances_of_its_types_and_never_a_wrong_value(
    tool_of: ToolOf, call: Callable[..., Any], hint: Any, sent: Any, received: Any, refused: list[Any]
) -> None:
    reached: list[Any] = []

    def take(value):  # type: ignore[no-untyped-def]
        reached.append(value)

    take.__annotations__ = {"value": hint, "return": None}
    definition = tool_of(tool(take))
    jsonschema.Draft202012Validator.check_schema(definition.parameters)
    assert definition.parameters["required"] == ["value"]
    call(definition, {"value": sent})
    assert reached == [received]
    assert type(reached[0]) is type(received)
    for wrong in refused:
        with pytest.raises(ArgumentsInvalid) as caught:
            definition.read_arguments({"value": wrong})
        assert all(name.split(".")[0] == "value" and reason for name, reason in caught.value.errors)
    with pytest.raises(ArgumentsInvalid) as caught:
        definition.read_arguments({})
    assert caught.value.errors == (("value", "is required"),)
    with pytest.raises(ArgumentsInvalid) as caught:
        definition.read_arguments({"value": sent, "more": 1})
    assert caught.value.errors == (("more", "is not a field of this tool; its fields are: value"),)


def no_titles(schema: Any, inside_properties: bool = False) -> bool:
    if isinstance(schema, dict):
        clean = inside_properties or "title" not in schema
        return clean and all(no_titles(value, key in ("properties", "$defs")) for key, value in schema.items())
    return not isinstance(schema, list) or all(no_titles(item) for item in schema)


@pytest.mark.parametrize("hint", [entry[0] for entry in TYPES.values()], ids=TYPES.keys())
def test_schemas_are_plain_json_schema_without_what_providers_refuse(tool_of: ToolOf, hint: Any) -> None:
    def take(value=None):  # type: ignore[no-untyped-def]
        pass

    take.__annotations__ = {"value": hint, "return": hint}
    definition = tool_of(tool(take))
    assert "required" not in definition.parameters
    assert definition.parameters["additionalProperties"] is False
    for schema in (definition.parameters, definition.output_schema or {}):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert no_titles(schema)
        text = repr(schema)
        assert "'default': None" not in text
        assert "discriminator" not in text
        assert "'format': 'base64url'" not in text
        assert "(?" not in text


def test_several_wrong_fields_are_told_all_at_once(tool_of: ToolOf) -> None:
    @tool
    def order(item: Item, count: int, color: Color) -> None: ...

    with pytest.raises(ArgumentsInvalid) as caught:
        tool_of(order).read_arguments({"item": {"title": 5, "amount": True}, "color": "green", "colour": 1})
    fields = [name for name, _ in caught.value.errors]
    assert fields == ["item.title", "item.amount", "count", "color", "colour"]
    with pytest.raises(ArgumentsInvalid) as caught:
        tool_of(order).read_arguments({"item": {}, "count": 1, "color": "red"})
    assert [name for name, _ in caught.value.errors] == ["item.title"]


def test_a_recursive_type_is_a_reference_that_ends(tool_of: ToolOf) -> None:
    @tool
    def plant(tree: Tree) -> None: ...

    schema = tool_of(plant).parameters
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree"}
    assert schema["$defs"]["Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Tree"}


def test_what_is_left_out_is_the_functions_own_default(tool_of: ToolOf, call: Callable[..., Any]) -> None:
    @tool
    def search(
        query: str,
        *,
        limit: int = 10,
        color: Color = Color.RED,
        since: date | None = None,
        tags: Annotated[list[str], Field(default_factory=lambda: ["new"])],
        depth: int = Field(3, ge=1, description="How deep"),
        strict: bool = Field(description="Whether it must match"),
    ) -> Any:
        return [query, limit, color, since, tags, depth, strict]

    definition = tool_of(search)
    assert definition.parameters["required"] == ["query", "strict"]
    properties = definition.parameters["properties"]
    assert properties["limit"]["default"] == 10
    assert properties["color"]["default"] == "red"
    assert "default" not in properties["since"]
    assert properties["depth"] == {"type": "integer", "minimum": 1, "description": "How deep", "default": 3}
    assert call(definition, {"query": "q", "strict": True}) == ["q", 10, Color.RED, None, ["new"], 3, True]
    assert call(definition, {"query": "q", "strict": True, "since": None, "depth": 1})[3:6] == [None, ["new"], 1]
    with pytest.raises(ArgumentsInvalid) as caught:
        definition.read_arguments({"query": "q", "strict": True, "limit": None, "depth": 0})
    assert [name for name, _ in caught.value.errors] == ["limit", "depth"]


def test_a_mutable_default_is_made_anew_for_every_call(tool_of: ToolOf, call: Callable[..., Any]) -> None:
    @tool
    def add(tags: Annotated[list[str], Field(default_factory=list)]) -> list[str]:
        tags.append("x")
        return tags

    definition = tool_of(add)
    assert call(definition, {}) == ["x"]
    assert call(definition, {}) == ["x"]


def test_texts_and_defaults_of_a_schema_are_cleaned_like_all_texts_of_declarations(tool_of: ToolOf) -> None:
    class Line(BaseModel):
        sku: Annotated[str, Field(description="a\x00b")]

    @tool
    def buy(
        line: Line,
        size: Annotated[str, Field(description="big\ud800", examples=["\x00"], json_schema_extra={"x\x00": "\x00"})],
        name: str = Field("c\x00d", description="\ud83d\ude00"),
    ) -> Line:
        return line

    definition = tool_of(buy)
    properties = definition.parameters["properties"]
    assert properties["size"] == {
        "type": "string",
        "description": "big\ufffd",
        "examples": ["\ufffd"],
        "x\ufffd": "\ufffd",
    }
    assert properties["name"] == {"type": "string", "description": "\U0001f600", "default": "c\ufffdd"}
    assert definition.parameters["$defs"]["Line"]["properties"]["sku"]["description"] == "a\ufffdb"
    assert definition.output_schema is not None
    assert definition.output_schema["properties"]["sku"]["description"] == "a\ufffdb"
    json.dumps([definition.parameters, definition.output_schema], ensure_ascii=False).encode()


def test_text_that_no_store_can_hold_is_cleaned_before_the_function_gets_it(tool_of: ToolOf) -> None:
    @tool
    def say(text: str) -> None: ...

    assert tool_of(say).read_arguments({"text": "a\x00b\ud800c"}) == {"text": "a\ufffdb\ufffdc"}


def test_the_context_is_found_by_its_type_whatever_its_name_and_is_in_no_schema(
    tool_of: ToolOf, call: Callable[..., Any]
) -> None:
    @tool
    async def one(where: ToolContext, x: int) -> Any:
        return where.call_id, x

    @tool
    async def two(x: int, context: ToolContext | None = None) -> Any:
        return context.call_id if context else None, x

    @tool
    def three(x: int, *, c: Annotated[SyncToolContext, "the context"]) -> Any:
        return c.call_id, x

    for declared in (one, two, three):
        definition = tool_of(declared)
        assert list(definition.parameters["properties"]) == ["x"]
        assert call(definition, {"x": 1}) == ("call-1", 1)
        assert definition.sync is (declared is three)


def test_the_context_cannot_be_sent_by_a_model(tool_of: ToolOf) -> None:
    @tool
    async def act(ctx: ToolContext) -> None: ...

    with pytest.raises(ArgumentsInvalid, match="ctx: is not a field of this tool; its fields are: none"):
        tool_of(act).read_arguments({"ctx": {}})


def test_annotated_text_wins_over_the_default_field_and_that_over_the_docstring(tool_of: ToolOf) -> None:
    @tool
    def send(
        a: Annotated[str, Field(description="by Annotated")],
        b: str = Field("x", description="by Field"),
        c: str = "x",
        d: Annotated[Item | None, Field(description="a thing")] = None,
    ) -> None:
        """Send.

        Args:
            a: by docstring
            b: by docstring
            c: by docstring
            d: by docstring
        """

    properties = tool_of(send).parameters["properties"]
    assert {name: schema["description"] for name, schema in properties.items()} == {
        "a": "by Annotated",
        "b": "by Field",
        "c": "by docstring",
        "d": "a thing",
    }


def test_a_decorated_function_stays_what_it_was() -> None:
    def add(x: int, y: int = 2) -> int:
        """Add."""
        return x + y

    before = (inspect.signature(add), add.__name__, add.__doc__)
    assert tool(add) is add
    assert tool(read_only=True)(add) is add
    assert (inspect.signature(add), add.__name__, add.__doc__) == before
    assert add(1) == 3
