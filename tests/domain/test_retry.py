"""When a failed try is tried again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoxi_py.domain.retry import RetryPolicy, patient_for, retry_delay

POLICY = RetryPolicy(tries=5, first=0.5, longest=3.0, jitter=0.25, longest_asked=60.0)


def test_pauses_double_up_to_the_longest_and_then_it_gives_up() -> None:
    assert [retry_delay(POLICY, failures, chance=0.0) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, None]


def test_a_policy_of_one_try_gives_up_at_once() -> None:
    assert retry_delay(RetryPolicy(tries=1), 1, chance=0.0) is None


def test_chance_makes_a_pause_longer_by_its_share() -> None:
    assert retry_delay(POLICY, 2, chance=1.0) == pytest.approx(1.25)


def test_what_the_other_side_asked_for_is_a_lower_bound() -> None:
    assert retry_delay(POLICY, 1, chance=0.0, asked=20.0) == 20.0
    assert retry_delay(POLICY, 3, chance=0.0, asked=0.1) == 2.0


@pytest.mark.parametrize("asked", [1e9, math.inf])
def test_what_the_other_side_asked_for_is_capped(asked: float) -> None:
    assert retry_delay(POLICY, 1, chance=0.0, asked=asked) == POLICY.longest_asked


@pytest.mark.parametrize("asked", [0.0, -5.0, -math.inf, math.nan])
def test_a_senseless_pause_that_the_other_side_asked_for_is_passed_over(asked: float) -> None:
    assert retry_delay(POLICY, 1, chance=0.0, asked=asked) == 0.5


def test_being_asked_to_wait_gives_no_tries_more() -> None:
    assert retry_delay(POLICY, 5, chance=0.0, asked=1.0) is None


@settings(deadline=None)
@given(
    tries=st.integers(1, 10**9),
    failures=st.integers(1, 10**9),
    chance=st.floats(0, 1),
    asked=st.none() | st.floats(),
)
def test_a_pause_is_always_a_bounded_number_or_the_end(
    tries: int, failures: int, chance: float, asked: float | None
) -> None:
    policy = RetryPolicy(tries=tries)
    pause = retry_delay(policy, failures, chance=chance, asked=asked)
    assert (pause is None) == (failures >= tries)
    if pause is not None:
        assert policy.first <= pause <= policy.longest_asked * (1 + policy.jitter)


def test_patience_is_a_number_of_tries_whose_pauses_take_that_long() -> None:
    for seconds in (0.0, 0.5, 5.0, 300.0, 3600.0):
        policy = patient_for(seconds)
        pauses = [retry_delay(policy, failures, chance=0.0) or 0.0 for failures in range(1, policy.tries)]
        assert sum(pauses) >= seconds > sum(pauses[:-1]) - (not pauses)
        assert retry_delay(policy, policy.tries, chance=0.0) is None
    assert [patient_for(seconds).tries for seconds in (0.0, 5.0, 300.0)] == [1, 5, 16]
