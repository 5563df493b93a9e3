"""Public ids: what they say, how they sort, and that one call has one id."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoxi_py.domain.ids import call_id, child_message_id, child_run_id, is_child_run_id, new_id, parse_call_id

RUN = "run_" + "0f" * 13


def test_an_id_says_what_it_names_and_is_safe_in_a_path() -> None:
    assert re.fullmatch(r"run_[0-9a-f]{26}", new_id("run"))


def test_a_call_has_one_child_run_whose_ids_say_when_its_parent_began() -> None:
    parent = new_id("run")
    calls = [call_id(parent, turn, n) for turn in range(20) for n in range(20)]
    assert all(re.fullmatch(rf"run_8{parent[5:16]}[0-9a-f]{{14}}", child_run_id(call)) for call in calls)
    below = child_run_id(call_id(child_run_id(calls[0]), 1, 0))
    assert [is_child_run_id(one) for one in (parent, child_run_id(calls[0]), below)] == [False, True, True]
    assert all(re.fullmatch(rf"msg_{parent[4:16]}[0-9a-f]{{14}}", child_message_id(call)) for call in calls)
    ids = {child_run_id(call)[4:] for call in calls} | {child_message_id(call)[4:] for call in calls}
    assert len(ids | {parent[4:]}) == 2 * len(calls) + 1
    assert child_run_id(calls[0]) == child_run_id(calls[0])
    assert parse_call_id(call_id(child_run_id(calls[0]), 1, 0)) == (child_run_id(calls[0]), 1, 0)


def test_ids_do_not_repeat() -> None:
    assert len({new_id("run") for _ in range(20_000)}) == 20_000


def test_ids_sort_by_the_time_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1, 255, 256, 10**6, 1_800_000_000_000, 2**47]
    made = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment * 1_000_000)
        made.append(new_id("run"))
    assert made == sorted(made)


@settings(deadline=None)
@given(turn=st.integers(0, 999_999_999), n=st.integers(0, 999_999_999))
def test_a_call_id_gives_back_its_run_and_its_place(turn: int, n: int) -> None:
    run_id = new_id("run")
    assert parse_call_id(call_id(run_id, turn, n)) == (run_id, turn, n)


def test_the_id_of_a_call_is_the_same_each_time_and_other_for_each_place_and_run() -> None:
    other = new_id("run")
    ids = [call_id(run, turn, n) for run in (RUN, other) for turn in (1, 11) for n in (1, 11)]
    assert ids == [call_id(run, turn, n) for run in (RUN, other) for turn in (1, 11) for n in (1, 11)]
    assert len(set(ids)) == len(ids)


def test_a_call_id_is_one_that_every_provider_takes() -> None:
    assert len(call_id(RUN, 999, 127)) <= 40
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", call_id(RUN, 999, 127))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "call_",
        RUN,
        "call_" + "0f" * 13,
        "call_" + "0f" * 13 + "_1",
        "call_" + "0F" * 13 + "_1_0",
        "call_" + "0f" * 12 + "_1_0",
        "call_" + "0f" * 13 + "_1_0\n",
        "call_" + "0f" * 13 + "_-1_0",
        "call_" + "0f" * 13 + "_1_0_0",
        "call_" + "0f" * 13 + "_1_9999999999",
        "tool_" + "0f" * 13 + "_1_0",
    ],
)
def test_any_other_text_is_no_call_id(text: str) -> None:
    assert parse_call_id(text) is None


@pytest.mark.parametrize("place", ["01_0", "1_00", "\u0661_0", "1_\u0660", "\uff11_0"])
def test_a_call_has_no_second_spelling(place: str) -> None:
    assert parse_call_id("call_" + "0f" * 13 + "_" + place) is None


@settings(deadline=None)
@given(st.text() | st.from_regex(r"call_[0-9a-f]{26}_\d{1,3}_\d{1,3}", fullmatch=True))
def test_what_parses_is_what_would_be_written(text: str) -> None:
    parsed = parse_call_id(text)
    assert parsed is None or call_id(*parsed) == text
