"""What one process knows of the limits: refusals cost no look at the store, and a free place is found in a moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from amoxi_py.domain.limits import BUSY, DAILY_BUDGET_USED, TOO_MANY_REQUESTS, TOO_MANY_RUNS, Limits
from amoxi_py.engine.gate import LOOK_AGAIN_LATER_S, LOOK_AGAIN_S, Gate
from amoxi_py.errors import TooMany


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def gate(time: Time) -> Gate:
    return Gate(Limits(in_flight=8), time)


def refusal(code: str, retry_after: float = 3600.0) -> TooMany:
    return TooMany("no", code=code, retry_after=retry_after)


def code_of(ask: Callable[..., None], principal: str, **more: bool) -> str | None:
    try:
        ask(principal, **more)
    except TooMany as error:
        return error.code
    return None


def test_a_gate_that_knows_of_nothing_lets_everybody_in(gate: Gate) -> None:
    assert [code_of(gate.enter, "ann") for _ in range(3)] == [None] * 3
    assert not gate.is_shut("ann")


def test_a_shut_gate_refuses_all_and_then_lets_one_look_again(gate: Gate, time: Time) -> None:
    gate.heard("ann", refusal(BUSY, 1.0))
    assert [code_of(gate.enter, who) for who in ("ann", "bob")] == [BUSY, BUSY]
    time.now += LOOK_AGAIN_S
    assert code_of(gate.refuse, "bob") is None, "who only asks whether it is shut is not the one that looks"
    assert code_of(gate.enter, "bob") is None
    assert [code_of(gate.enter, who) for who in ("ann", "bob")] == [BUSY, BUSY], "they wait for what that one finds"
    gate.passed("bob")
    assert [code_of(gate.enter, who) for who in ("ann", "bob")] == [None, None]


def test_who_looked_and_never_came_back_keeps_nobody_out_for_long(gate: Gate, time: Time) -> None:
    gate.heard("ann", refusal(BUSY, 1.0))
    for _ in range(3):
        time.now += LOOK_AGAIN_S
        assert code_of(gate.enter, "ann") is None


@pytest.mark.parametrize(
    ("code", "known_for"),
    [
        (TOO_MANY_RUNS, LOOK_AGAIN_S),
        (TOO_MANY_REQUESTS, LOOK_AGAIN_LATER_S),
        (DAILY_BUDGET_USED, LOOK_AGAIN_LATER_S),
    ],
)
def test_what_one_principal_may_not_says_nothing_of_others(gate: Gate, time: Time, code: str, known_for: float) -> None:
    gate.heard("ann", refusal(code))
    assert (code_of(gate.refuse, "ann"), code_of(gate.refuse, "bob")) == (code, None)
    time.now += known_for
    assert code_of(gate.refuse, "ann") is None


def test_what_is_over_sooner_is_not_believed_longer(gate: Gate, time: Time) -> None:
    gate.heard("ann", refusal(TOO_MANY_REQUESTS, 0.2))
    time.now += 0.2
    assert code_of(gate.refuse, "ann") is None


def test_what_is_over_keeps_nobody_out_though_one_has_just_looked(gate: Gate, time: Time) -> None:
    gate.heard("ann", refusal(TOO_MANY_REQUESTS, 2.0))
    time.now += 1.99
    assert code_of(gate.enter, "ann") is None, "it looks"
    assert code_of(gate.enter, "ann") == TOO_MANY_REQUESTS
    time.now += 0.01
    for run in (False, True, False):
        assert code_of(gate.enter, "ann", run=run) is None
    assert not gate.is_shut("ann")


def test_what_may_replace_a_run_is_kept_out_by_all_but_too_many_runs(gate: Gate) -> None:
    gate.heard("ann", refusal(TOO_MANY_RUNS))
    assert code_of(gate.enter, "ann", may_replace=True) is None
    assert not gate.is_shut("ann", may_replace=True)
    assert code_of(gate.enter, "ann") == TOO_MANY_RUNS
    for code in (DAILY_BUDGET_USED, TOO_MANY_REQUESTS, BUSY):
        gate.heard("ann", refusal(code))
        assert code_of(gate.enter, "ann", may_replace=True) == code


def test_only_too_many_requests_keep_out_what_becomes_no_run(gate: Gate) -> None:
    gate.heard("ann", refusal(BUSY))
    gate.heard("ann", refusal(TOO_MANY_RUNS))
    assert code_of(gate.enter, "ann", run=False) is None
    gate.heard("ann", refusal(TOO_MANY_REQUESTS))
    assert code_of(gate.enter, "ann", run=False) == TOO_MANY_REQUESTS


def test_refusals_are_counted_by_their_reason(gate: Gate) -> None:
    gate.heard("ann", refusal(BUSY))
    for _ in range(3):
        code_of(gate.refuse, "bob")
    gate.heard("ann", refusal(DAILY_BUDGET_USED))
    assert gate.refused == {BUSY: 4, TOO_MANY_RUNS: 0, TOO_MANY_REQUESTS: 0, DAILY_BUDGET_USED: 1}


def test_what_is_known_of_principals_does_not_grow_without_end(gate: Gate) -> None:
    for n in range(10_001):
        gate.heard(f"web:{n}", refusal(DAILY_BUDGET_USED))
    assert code_of(gate.refuse, "web:10000") == DAILY_BUDGET_USED
    assert len(gate._known) <= 10_000
