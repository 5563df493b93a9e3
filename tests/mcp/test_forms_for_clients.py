"""What a question is as a form of MCP: flat fields that every client can show, read back as what was meant."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, Literal, Optional

import pytest
from mcp_types import ElicitRequest, ElicitRequestFormParams
from mcp_types.methods import serialize_server_result
from pydantic import BaseModel, Field

from amoxi_py.declare.answer_type import answer_type
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.fitting_answers import fitting_answer
from amoxi_py.surfaces.mcp.forms import Form, form_of


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Address(BaseModel):
    street: str
    city: str


class Parcel(BaseModel):
    """Where it goes."""

    name: str = Field(min_length=1, max_length=40, description="As on the door")
    mail: str = Field(json_schema_extra={"format": "email"})
    day: date
    size: Size = Size.SMALL
    weight: float = Field(ge=0, le=30)
    pieces: int = 1
    insured: bool
    wishes: list[Literal["gift", "fast"]] = []
    level: Literal[1, 2, 3] = 1
    note: Optional[str]  # noqa: UP045 - as many write it
    address: Address


def form(kind: Any) -> Form:
    schema = answer_type(kind).schema
    return form_of(None if schema is None else decode_json(schema))


def accepted(kind: Any, content: dict[str, Any]) -> Any:
    """Return what a form's content comes to, when the engine accepts it as an answer of the type."""
    answer = answer_type(kind)
    value = form(kind).read(content)
    fitting_answer(Wait(k=1, kind="question", name="?", schema=answer.schema, created_at=0), value)
    return value


def test_a_text_is_asked_for_in_one_field() -> None:
    asked = form(None)
    assert asked.schema == {
        "type": "object",
        "properties": {"answer": {"type": "string", "title": "Answer", "minLength": 1}},
        "required": ["answer"],
    }
    assert asked.read({"answer": "Ann", "other": 1}) == "Ann"


@pytest.mark.parametrize(
    ("kind", "field", "entry", "value"),
    [
        (bool, {"type": "boolean"}, True, True),
        (int, {"type": "integer"}, 3.0, 3),
        (float, {"type": "number"}, 2.5, 2.5),
        (Literal["red", "blue"], {"type": "string", "enum": ["red", "blue"]}, "red", "red"),
        (Literal[1, 2], {"type": "integer", "description": "One of: 1, 2"}, 2, 2),
        (date, {"type": "string", "format": "date"}, "2026-11-30", "2026-11-30"),
        (
            list[Literal["a", "b"]],
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            ["a"],
            ["a"],
        ),
    ],
)
def test_a_value_that_is_no_object_is_one_field(kind: Any, field: dict[str, Any], entry: Any, value: Any) -> None:
    shown = form(kind).schema["properties"]["answer"]
    assert {key: shown[key] for key in field} == field
    assert accepted(kind, {"answer": entry}) == value


def test_a_model_is_flat_and_what_is_nested_in_it_is_json_text() -> None:
    shown = form(Parcel).schema
    fields = shown["properties"]
    assert fields["name"] == {
        "type": "string",
        "description": "As on the door",
        "minLength": 1,
        "maxLength": 40,
    }
    assert fields["mail"]["format"] == "email"
    assert fields["day"]["format"] == "date"
    assert fields["size"]["enum"] == ["s", "l"]
    assert fields["size"]["default"] == "s"
    assert (fields["weight"]["minimum"], fields["weight"]["maximum"]) == (0, 30)
    assert fields["pieces"] == {"type": "integer", "default": 1}
    assert fields["insured"]["type"] == "boolean"
    assert fields["wishes"]["items"] == {"type": "string", "enum": ["gift", "fast"]}
    assert fields["level"]["type"] == "integer"
    assert fields["note"]["type"] == "string"
    assert fields["address"]["type"] == "string"
    assert "street" in fields["address"]["description"]
    assert shown["required"] == ["name", "mail", "day", "weight", "insured", "address"]

    entered = {
        "name": "Ann",
        "mail": "ann@example.com",
        "day": "2026-12-01",
        "size": "l",
        "weight": 2,
        "pieces": 2.0,
        "insured": False,
        "wishes": ["gift"],
        "note": "",
        "address": '{"street": "Road 1", "city": "Town"}',
        "something": "that no field is for",
    }
    value = accepted(Parcel, entered)
    assert value["note"] is None
    assert value["address"] == {"street": "Road 1", "city": "Town"}
    assert value["pieces"] == 2
    assert "something" not in value
    assert "level" not in value


@pytest.mark.parametrize("kind", [Parcel, Address, dict[str, int], list[Address], Address | Size, Literal[1, "a"], Any])
def test_every_form_is_one_that_a_client_of_the_newest_version_takes(kind: Any) -> None:
    asked = ElicitRequest(params=ElicitRequestFormParams(message="?", requested_schema=form(kind).schema))
    result = {"resultType": "input_required", "inputRequests": {"a": asked.model_dump(by_alias=True, mode="json")}}
    told = serialize_server_result("tools/call", "2026-07-28", result)
    shown = told["inputRequests"]["a"]["params"]["requestedSchema"]
    assert shown == form(kind).schema
    for field in shown["properties"].values():
        assert field["type"] in {"string", "number", "integer", "boolean", "array"}
        assert "$ref" not in field


def test_what_has_no_form_is_entered_as_json_and_refused_when_it_does_not_fit() -> None:
    assert accepted(dict[str, int], {"answer": '{"a": 1}'}) == {"a": 1}
    assert form(dict[str, int]).read({"answer": "no json"}) == "no json"
    assert form(Address).read({"street": "Road 1"}) == {"street": "Road 1"}
    assert form(bool).read({}) is None
