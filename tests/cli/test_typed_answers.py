"""What is typed for a part of an answer is read as what its schema wants."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel

from amoxi_py.cli.answering import parts_of, read_answer
from amoxi_py.declare.answer_type import answer_type
from amoxi_py.domain.encoding import decode_json


class Size(BaseModel):
    width: int


class Form(BaseModel):
    zip: str | None = None
    floor: int | None = None
    lift: bool | None = None
    country: Literal["NL", "BE"] | None = None
    size: Size | None = None
    code: str | int | None = None


def parts(kind: Any) -> dict[str, Any]:
    return {name: (prompt, schema) for name, prompt, schema, _ in parts_of(decode_json(answer_type(kind).schema or ""))}


@pytest.mark.parametrize(
    ("name", "prompt", "text", "value"),
    [
        ("zip", "zip (Enter to leave it out): ", "12345", "12345"),
        ("floor", "floor (integer) (Enter to leave it out): ", "3", 3),
        ("lift", "lift ([y]es or [n]o) (Enter to leave it out): ", "y", True),
        ("country", "country (NL | BE) (Enter to leave it out): ", "BE", "BE"),
        ("size", "size (JSON) (Enter to leave it out): ", '{"width": 2}', {"width": 2}),
        ("code", "code (JSON) (Enter to leave it out): ", "12", 12),
    ],
)
def test_a_part_that_may_be_left_out_is_asked_for_as_what_it_is_else(
    name: str, prompt: str, text: str, value: Any
) -> None:
    asked, schema = parts(Form)[name]
    assert (asked, read_answer(text, schema)) == (prompt, value)


def test_a_whole_answer_that_may_be_null_is_asked_for_so_too() -> None:
    asked, schema = parts(str | None)[""]
    assert (asked, read_answer("12345", schema)) == ("answer: ", "12345")
