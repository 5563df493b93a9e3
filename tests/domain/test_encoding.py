"""The one rule for text and the one rule for JSON."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoxi_py.domain.encoding import clean_json, clean_text, decode_json, encode_json, encode_json_unicode
from amoxi_py.errors import ValueNotStorable
from whole import some_of

odd_letters = st.sampled_from("\x00\ud83d\ude00\ud800\udfff\u2028a")
any_text = st.lists(st.characters() | odd_letters, max_size=8).map("".join)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda items: st.lists(items, max_size=4) | st.dictionaries(any_text, items, max_size=4),
    max_leaves=20,
)


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


def cleaned_by_hand(text: str) -> str:
    joined = re.sub(
        "[\ud800-\udbff][\udc00-\udfff]",
        lambda pair: chr(0x10000 + ((ord(pair[0][0]) - 0xD800) << 10) + ord(pair[0][1]) - 0xDC00),
        text,
    )
    return re.sub("[\x00\ud800-\udfff]", "\ufffd", joined)


def nested(depth: int, leaf: Any = 0) -> Any:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


# -- text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("", ""),
        ("Grüße, 東京 😀", "Grüße, 東京 😀"),
        ("a\x00b", "a\ufffdb"),
        ("\ud800", "\ufffd"),
        ("x\udfffy", "x\ufffdy"),
        ("\ud83d\ude00", "😀"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00", "\ufffd😀"),
        ("tab\tand\nnewline\x1f", "tab\tand\nnewline\x1f"),
    ],
)
def test_only_what_cannot_be_stored_is_replaced_in_a_text(text: str, clean: str) -> None:
    assert clean_text(text) == clean


@settings(deadline=None, max_examples=some_of(300))
@given(any_text)
def test_a_clean_text_can_be_stored_everywhere_and_cleaning_it_again_changes_nothing(text: str) -> None:
    clean = clean_text(text)
    assert clean == cleaned_by_hand(text)
    assert "\x00" not in clean.encode("utf-8").decode("utf-8")
    assert clean_text(clean) == clean


# -- JSON


def test_nul_and_lone_surrogates_are_replaced_in_values_and_in_keys() -> None:
    value = {"k\x00": ["\ud800", {"\udfff": "\ud83d\ude00"}]}
    assert decode_json(encode_json(value)) == {"k\ufffd": ["\ufffd", {"\ufffd": "😀"}]}


@pytest.mark.parametrize(("text", "clean"), [("\x00", "\ufffd"), ("\ud800", "\ufffd"), ("\ud83d\ude00", "😀")])
def test_each_of_them_is_replaced_where_it_is_the_only_one(text: str, clean: str) -> None:
    for encode in (encode_json, encode_json_unicode):
        assert decode_json(encode([text])) == [clean]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_has_not_becomes_null(number: float) -> None:
    assert encode_json({"a": [number]}) == '{"a":[null]}'
    assert encode_json(number) == "null"


@pytest.mark.parametrize("number", [10**30, -(10**300), 2**63, 2**53 + 1])
def test_a_whole_number_keeps_all_its_digits(number: int) -> None:
    assert decode_json(encode_json([number])) == [number]


def test_minus_zero_stays_minus_zero() -> None:
    assert math.copysign(1, decode_json(encode_json(-0.0))) == -1


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(ValueNotStorable, match="no form in JSON"):
        encode_json({"n": 10**5000})
    with pytest.raises(ValueError):
        decode_json("1" + "0" * 5000)


@pytest.mark.parametrize("spoiler", ["", "\x00"])  # a text to clean takes another way through the code
def test_a_value_of_200_levels_is_let_in_and_can_be_told_inside_others_and_a_deeper_one_is_refused(
    spoiler: str,
) -> None:
    let_in = clean_json(nested(200, spoiler))
    for encode in (encode_json, encode_json_unicode):
        text = encode({"items": [{"calls": [{"arguments": let_in, "other": spoiler}]}]})
        assert encode(decode_json(text)) == text
    for depth in (201, 100_000):
        with pytest.raises(ValueNotStorable, match="deeper than 200 levels"):
            clean_json(nested(depth, spoiler))
    for encode in (encode_json, encode_json_unicode):
        with pytest.raises(ValueNotStorable, match="deeper than 200 levels"):
            encode({"a": nested(100_000, spoiler)})


def test_a_value_that_contains_itself_is_refused() -> None:
    looped: list[Any] = ["\x00"]
    looped += [looped, looped]
    mapped: dict[str, Any] = {}
    mapped["self"] = {"deeper": mapped}
    for value in (looped, mapped):
        for encode in (encode_json, encode_json_unicode, clean_json):
            with pytest.raises(ValueNotStorable, match="contains itself"):
                encode(value)


def test_json_that_is_nested_too_deeply_to_read_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        decode_json("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize("key", [1, 1.5, True, None, (1, 2), b"k"])
@pytest.mark.parametrize("sibling", ["", "\x00"])
def test_a_key_that_is_no_text_is_refused_because_it_could_meet_another(key: object, sibling: str) -> None:
    for value in ({key: sibling}, [{"a": {"b": ({key: sibling},)}}]):
        with pytest.raises(ValueNotStorable, match=f"key of type {type(key).__name__} has no form in JSON"):
            encode_json(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", datetime(2026, 1, 1), Exception("x"), iter([])])  # noqa: DTZ001 - any value
def test_a_value_without_a_form_in_json_is_refused_by_its_type(value: object) -> None:
    with pytest.raises(ValueNotStorable, match=type(value).__name__):
        encode_json({"a": [value]})


@pytest.mark.parametrize("sibling", ["", "\x00"])
def test_members_of_number_and_text_enums_are_their_values(sibling: str) -> None:
    assert decode_json(encode_json([Level.HIGH, Word.YES, {Word.YES: 1}, sibling]))[:3] == [3, "yes", {"yes": 1}]


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a":-Infinity}', "", "{", "'a'", "\ufeff{}", '{"a":1}x'])
def test_only_strict_json_is_read(text: str) -> None:
    with pytest.raises(ValueError):
        decode_json(text)


@settings(deadline=None, max_examples=some_of(150), suppress_health_check=[HealthCheck.too_slow])
@given(plain)
def test_output_is_one_line_of_ascii_that_any_strict_reader_takes_back_clean(value: Any) -> None:
    text = encode_json(value)
    assert text.isascii()
    assert min(text) >= " ", "a newline would end a line of a stream"
    assert "\\u0000" not in text.replace("\\\\", "")
    back = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert back == clean_json(value)
    json.dumps(back, ensure_ascii=False).encode("utf-8")
    assert decode_json(encode_json_unicode(value)) == back
    assert encode_json(back) == text


def test_the_shorter_form_for_models_leaves_letters_as_they_are() -> None:
    assert encode_json_unicode({"Stadt": "Köln\x00"}) == '{"Stadt":"Köln\ufffd"}'
    assert encode_json({"Stadt": "Köln"}) == '{"Stadt":"K\\u00f6ln"}'
