"""What becomes of calls when their run is ended from outside."""

from __future__ import annotations

import json

import pytest

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.message import Message
from amoxi_py.domain.settle import settle
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall


def message(*calls: ToolCall, turn: int = 1) -> Message:
    return Message(id=f"msg_{turn}", run_id="run_1", turn=turn, role="assistant", text="", calls=calls)


def call(status: CallStatus, effect: Effect = Effect.UNSAFE, turn: int = 1, n: int = 0) -> ToolCall:
    return ToolCall(id=f"call_{turn}_{n}", turn=turn, n=n, tool="pay", arguments="{}", effect=effect, status=status)


@pytest.mark.parametrize("effect", Effect)
def test_a_call_that_never_started_is_stopped_and_says_that_nothing_was_done(effect: Effect) -> None:
    (settled,) = settle((message(call(CallStatus.OPEN, effect)),))
    assert settled.status is CallStatus.STOPPED
    assert "nothing was done" in json.loads(settled.result)


@pytest.mark.parametrize("effect", [Effect.READ_ONLY, Effect.IDEMPOTENT])
def test_a_started_call_that_may_be_repeated_is_stopped(effect: Effect) -> None:
    (settled,) = settle((message(call(CallStatus.STARTED, effect)),))
    assert settled.status is CallStatus.STOPPED
    assert "nothing was done" not in json.loads(settled.result)


def test_a_started_unsafe_call_has_an_unknown_outcome_and_says_so() -> None:
    (settled,) = settle((message(call(CallStatus.STARTED)),))
    assert settled.status is CallStatus.UNKNOWN
    assert "outcome is unknown" in json.loads(settled.result)


@pytest.mark.parametrize("status", [status for status in CallStatus if status.settled])
def test_a_call_that_has_its_result_keeps_it(status: CallStatus) -> None:
    assert settle((message(call(status)),)) == ()


def test_a_call_that_waits_for_a_person_is_stopped() -> None:
    waiting = ToolCall(
        id="c", turn=1, n=0, tool="pay", arguments="{}", effect=Effect.UNSAFE, approval=Approval(created_at=0.0)
    )
    (settled,) = settle((message(waiting),))
    assert settled.status is CallStatus.STOPPED


def test_each_unsettled_call_of_all_messages_gets_exactly_one_result_in_its_own_place() -> None:
    first = message(call(CallStatus.DONE, n=0), call(CallStatus.STARTED, n=1), turn=1)
    second = message(call(CallStatus.OPEN, turn=2, n=0), call(CallStatus.FAILED, turn=2, n=1), turn=2)
    person = Message(id="msg_0", run_id="run_1", turn=0, role="user", text="hi")
    settled = settle((person, first, second))
    assert [(each.turn, each.n, each.status) for each in settled] == [
        (1, 1, CallStatus.UNKNOWN),
        (2, 0, CallStatus.STOPPED),
    ]
    assert all(each.status.settled for each in settled)
