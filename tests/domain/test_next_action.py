"""What a run does next, for every state its rows can be in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import AskModel, Finish, Limits, Pause, Work, next_action
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.wait import Wait
from whole import some_of

NOW = 1000.0
LIMITS = Limits(max_turns=3, max_attempts=2)
SETTLED = [status for status in CallStatus if status.settled]
PERSON = Message(id="msg_0", run_id="run_1", turn=0, role="user", text="Refund A-1001")


def call(n: int = 0, status: CallStatus = CallStatus.OPEN, approval: Approval | None = None) -> ToolCall:
    return ToolCall(
        id=f"call_{n}",
        turn=1,
        n=n,
        tool="refund",
        arguments="{}",
        effect=Effect.UNSAFE,
        status=status,
        result='"x"' if status.settled else None,
        approval=approval,
    )


def reply(*calls: ToolCall, turn: int = 1) -> Message:
    return Message(id=f"msg_{turn}", run_id="run_1", turn=turn, role="assistant", text="", calls=calls)


def after(*calls: ToolCall, turn: int = 1) -> object:
    return next_action((PERSON, reply(*calls, turn=turn)), 0, LIMITS, NOW)


def asked(decision: str | None = None, expires_at: float | None = None) -> Approval:
    return Approval(created_at=0.0, decision=decision, expires_at=expires_at)  # type: ignore[arg-type]  # one of three


def test_a_persons_message_asks_the_model_for_the_next_turn() -> None:
    assert next_action((PERSON,), 0, LIMITS, NOW) == AskModel(turn=1)


def test_a_reply_without_calls_completes_the_run() -> None:
    assert after() == Finish()


def test_a_reply_without_calls_completes_the_run_at_the_turn_limit_too() -> None:
    assert after(turn=LIMITS.max_turns) == Finish()


@pytest.mark.parametrize("status", SETTLED)
def test_the_model_is_asked_when_all_calls_have_a_result(status: CallStatus) -> None:
    assert after(call(0, CallStatus.DONE), call(1, status)) == AskModel(turn=2)


@pytest.mark.parametrize("status", [status for status in CallStatus if status.settled])
def test_a_run_of_one_tool_ends_when_its_call_has_a_result(status: CallStatus) -> None:
    assert next_action((reply(call(status=status)),), 0, Limits(direct=True), 1.0) == Finish()
    assert isinstance(next_action((reply(call()),), 0, Limits(direct=True), 1.0), Work)


def test_a_run_that_wants_one_turn_too_many_fails() -> None:
    ended = after(call(0, CallStatus.DONE), turn=LIMITS.max_turns)
    assert isinstance(ended, Finish)
    assert ended.failure is not None
    assert ended.failure.code == "max_turns"
    assert "3" in ended.failure.message


def test_the_calls_of_the_last_allowed_turn_are_still_done() -> None:
    assert after(call(), turn=LIMITS.max_turns) == Work(start=(call(),))


@pytest.mark.parametrize("crashes", [2, 3])
def test_a_run_that_was_interrupted_too_often_fails_whatever_else_is_open(crashes: int) -> None:
    for messages in ((PERSON,), (PERSON, reply(call())), (PERSON, reply(call(status=CallStatus.STARTED)))):
        ended = next_action(messages, crashes, LIMITS, NOW)
        assert isinstance(ended, Finish)
        assert ended.failure is not None
        assert ended.failure.code == "max_attempts"


def test_one_interruption_less_than_the_limit_goes_on() -> None:
    assert next_action((PERSON,), 1, LIMITS, NOW) == AskModel(turn=1)


def test_an_open_call_that_nobody_has_to_decide_starts() -> None:
    assert after(call()) == Work(start=(call(),))


def test_a_started_call_is_resumed_even_when_a_person_had_to_decide_it() -> None:
    started = call(status=CallStatus.STARTED)
    approved = call(1, CallStatus.STARTED, asked("approve"))
    assert after(started, approved) == Work(resume=(started, approved))


def test_an_approved_call_starts_also_after_its_approval_would_have_expired() -> None:
    approved = call(approval=asked("approve", expires_at=NOW - 1))
    assert after(approved) == Work(start=(approved,))


@pytest.mark.parametrize("decision", ["decline", "expire"])
def test_a_call_that_was_declined_or_expired_is_refused(decision: str) -> None:
    refused = call(approval=asked(decision))
    assert after(refused) == Work(refused=(refused,))


@pytest.mark.parametrize("expires_at", [NOW, NOW - 0.001])
def test_a_call_whose_time_to_decide_is_over_is_refused(expires_at: float) -> None:
    late = call(approval=asked(expires_at=expires_at))
    assert after(late) == Work(refused=(late,))


def test_a_run_waits_until_the_first_expiry() -> None:
    calls = [call(n, approval=asked(expires_at=at)) for n, at in enumerate((NOW + 9, NOW + 5, None))]
    assert after(*calls) == Pause(until=NOW + 5, kinds=("approval",))


def test_a_run_waits_for_ever_when_no_approval_expires() -> None:
    assert after(call(approval=asked()), call(1, CallStatus.DONE)) == Pause(until=None, kinds=("approval",))


def test_what_can_be_done_is_done_while_another_call_waits_for_a_person() -> None:
    free, waiting, declined = call(0), call(1, approval=asked()), call(2, approval=asked("decline"))
    assert after(free, waiting, declined) == Work(start=(free,), refused=(declined,))


def waits(n: int = 0, *, until: float | None = None, value: str | None = None, kind: str = "question") -> ToolCall:
    wait = Wait(k=1, kind=kind, created_at=0.0, until=until, value=value)  # type: ignore[arg-type]  # of four
    return replace(call(n, CallStatus.STARTED), wait=wait)


def test_a_started_call_that_waits_is_left_alone_until_its_wait_is_over() -> None:
    question, sleep, child = waits(0, until=NOW + 9), waits(1, until=NOW + 5, kind="sleep"), waits(2, kind="child")
    assert after(question, sleep, child) == Pause(until=NOW + 5, kinds=("question", "sleep", "child"))
    assert after(waits(kind="signal"), call(1, approval=asked(expires_at=NOW + 3))) == Pause(
        until=NOW + 3, kinds=("signal", "approval")
    )
    assert after(question, call(3)) == Work(start=(call(3),))


@pytest.mark.parametrize("over", [{"value": '"Main St"'}, {"until": NOW}, {"until": NOW - 1, "value": "1"}])
def test_a_call_whose_wait_is_over_goes_on(over: dict[str, Any]) -> None:
    ready = waits(**over)
    assert after(ready, waits(1)) == Work(resume=(ready,))


def test_an_approval_expires_late_by_the_patience_that_is_given_and_a_wait_does_not() -> None:
    late = call(approval=asked(expires_at=NOW - 0.5))
    assert next_action((PERSON, reply(late)), 0, LIMITS, NOW, 1.0) == Pause(until=NOW + 0.5, kinds=("approval",))
    assert next_action((PERSON, reply(late)), 0, LIMITS, NOW + 0.5, 1.0) == Work(refused=(late,))
    slept = waits(until=NOW, kind="sleep")
    assert next_action((PERSON, reply(slept)), 0, LIMITS, NOW, 1.0) == Work(resume=(slept,))


approvals = st.none() | st.builds(
    Approval,
    created_at=st.just(0.0),
    decision=st.sampled_from([None, "approve", "decline", "expire"]),
    expires_at=st.none() | st.floats(0, 2 * NOW),
)
waits_of_calls = st.none() | st.builds(
    Wait,
    k=st.just(1),
    kind=st.sampled_from(["question", "sleep", "signal", "child"]),
    created_at=st.just(0.0),
    until=st.none() | st.floats(0, 2 * NOW),
    value=st.none() | st.just("1"),
)
call_lists = st.lists(
    st.tuples(st.builds(call, status=st.sampled_from(CallStatus), approval=approvals), waits_of_calls), max_size=6
).map(lambda calls: tuple(replace(each, n=n, id=f"call_{n}", wait=wait) for n, (each, wait) in enumerate(calls)))


@settings(deadline=None, max_examples=some_of(300))
@given(
    calls=call_lists,
    turn=st.integers(1, 5),
    crashes=st.integers(0, 3),
    now=st.floats(0, 2 * NOW),
    limits=st.builds(Limits, max_turns=st.integers(1, 5), max_attempts=st.integers(1, 3)),
)
def test_whatever_the_rows_hold_there_is_one_action_and_it_never_starts_what_may_not_start(
    calls: tuple[ToolCall, ...], turn: int, crashes: int, now: float, limits: Limits
) -> None:
    action = next_action((PERSON, reply(*calls, turn=turn)), crashes, limits, now)

    assert isinstance(action, (AskModel, Work, Pause, Finish))
    if isinstance(action, Work):
        touched = (*action.start, *action.resume, *action.refused)
        assert touched
        assert len(set(touched)) == len(touched), "a call gets one treatment"
        assert all(each in calls and not each.status.settled for each in touched)
        assert all(each.status is CallStatus.STARTED for each in action.resume)
        assert all(each.wait is None or each.wait.over(now) for each in action.resume)
        for each in action.start:
            assert each.status is CallStatus.OPEN
            assert each.approval is None or each.approval.decision == "approve"
        for each in action.refused:
            assert each.status is CallStatus.OPEN
            assert each.approval is not None
            assert each.approval.decision in ("decline", "expire") or each.approval.expired(now)
    if isinstance(action, Pause):
        assert any(not each.status.settled for each in calls)
        assert action.until is None or action.until > now, "a wait that is over would never end"
    if isinstance(action, AskModel):
        assert all(each.status.settled for each in calls)
        assert action.turn == turn + 1 <= limits.max_turns
    if isinstance(action, Finish) and action.failure is None:
        assert not calls


@settings(deadline=None, max_examples=some_of(200))
@given(calls=call_lists, decisions=st.lists(st.sampled_from(["approve", "decline"]), min_size=6, max_size=6))
def test_doing_what_it_says_leads_to_an_end_in_as_many_rounds_as_there_are_calls(
    calls: tuple[ToolCall, ...], decisions: list[str]
) -> None:
    for _ in range(3 * len(calls) + 1):
        action = next_action((PERSON, reply(*calls)), 0, LIMITS, NOW)
        if isinstance(action, Work):
            started = {each.n: replace(each, status=CallStatus.STARTED) for each in action.start}
            ended = {each.n: replace(each, status=CallStatus.DONE) for each in action.resume}
            refused = {each.n: replace(each, status=CallStatus.DECLINED) for each in action.refused}
            changed = started | ended | refused
        elif isinstance(action, Pause):
            changed = {
                each.n: replace(each, approval=asked(decisions[each.n]), wait=None)
                for each in calls
                if not each.status.settled
            }
        else:
            break
        calls = tuple(changed.get(each.n, each) for each in calls)
    assert action == (AskModel(turn=2) if calls else Finish())
