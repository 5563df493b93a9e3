"""An answer is refused at the door when it does not fit its question, as the type in the tool would refuse it."""

from __future__ import annotations

import datetime
import uuid
from ipaddress import IPv4Address
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from amoxi_py.declare.answer_type import answer_type
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.fitting_answers import fitting_answer
from amoxi_py.errors import InvalidRequest


class Echo(BaseModel):
    """A pattern that only Python's own engine knows."""

    model_config = ConfigDict(regex_engine="python-re")
    word: Annotated[str, Field(pattern=r"^(a+)-\1$")]


def question(kind: Any) -> Wait:
    return Wait(k=1, kind="question", name="?", schema=answer_type(kind).schema, created_at=0.0)


def fits(kind: Any, value: Any) -> bool:
    try:
        fitting_answer(question(kind), value)
    except InvalidRequest as error:
        if error.code != "answer_does_not_fit":
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (datetime.datetime, "2026-11-30T10:00:00Z", "tomorrow"),
        (datetime.date, "2026-11-30", "20261130"),
        (datetime.time, "10:30", "noon"),
        (datetime.timedelta, "P1DT2H", "a while"),
        (datetime.datetime | None, None, "tomorrow"),
        (uuid.UUID, "a6cc5730-2261-11ee-9c43-2eb5a363657c", "me"),
        (IPv4Address, "127.0.0.1", "localhost"),
        (Annotated[str, Field(pattern=r"^\p{L}+$")], "Zoë", "R2D2"),
        (Annotated[str, Field(pattern=r"^[[:alpha:]]+$")], "Ann", "7"),
        (Echo, {"word": "aa-aa"}, {"word": "aa-a"}),
        (list[datetime.date], ["2026-11-30"], ["2026-11-30", "x"]),
    ],
)
def test_formats_and_patterns_are_looked_at_as_the_type_does(kind: Any, good: Any, bad: Any) -> None:
    assert (fits(kind, good), fits(kind, bad)) == (True, False)


def test_what_cannot_be_looked_at_is_left_to_the_type() -> None:
    assert fits(dict[Annotated[str, Field(pattern=r"^\p{L}+$")], int], {"a": 1})
    assert fits(Annotated[float, Field(multiple_of=0.5)], 10**400)
    assert fits(Annotated[str, WithJsonSchema({"$ref": "#/nowhere"})], "x")


def test_a_schema_that_is_none_is_a_mistake_that_the_tool_is_told() -> None:
    with pytest.raises(TypeError, match=r"an answer cannot be of the type .*put into its JSON Schema by hand is none"):
        answer_type(Annotated[str, WithJsonSchema({"type": "strin"})])


def test_the_limit_of_an_answer_is_in_bytes_of_its_text_in_utf8() -> None:
    assert fits(str, "中" * 21_844)  # 65,532 bytes and two quotation marks
    with pytest.raises(InvalidRequest, match="65,537 bytes as JSON in UTF-8; the limit is 65,536") as refused:
        fitting_answer(question(str), "中" * 21_845)
    assert refused.value.code == "answer_too_long"
