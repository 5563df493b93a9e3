"""What each event tells, and that the live stream and the stored log tell the same."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amoxi_py.domain.approval import Approval, Decision
from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.event import Event, EventType, call_json, event_data, message_json, public_status, time_text
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.wait import Wait
from whole import some_of

CALL = ToolCall(
    id="call_1", turn=1, n=0, tool="refund", arguments='{"order_id":"A-1001"}', effect=Effect.UNSAFE, tries=1
)
MESSAGE = Message(
    id="msg_1",
    run_id="run_1",
    turn=1,
    role="assistant",
    text="One moment.",
    files=("file_1",),
    calls=(CALL,),
    created_at=1_800_000_000.042,
)
LABELS = [
    "run.queued",
    "run.started",
    "run.resumed",
    "message.delta",
    "message.completed",
    "message.discarded",
    "tool.called",
    "tool.progress",
    "tool.completed",
    "approval.requested",
    "approval.decided",
    "run.waiting",
    "run.completed",
    "run.failed",
    "run.cancelled",
    "question.asked",
    "question.answered",
    "signal.received",
    "history.compacted",
    "question.closed",
]


def told(type: EventType, data: Any = None, subject: Message | ToolCall | None = None) -> dict[str, Any]:
    event = Event(conversation=1, seq=7, run=2, run_id="run_1", type=type, stored=data, subject=subject)
    return dict(event.data)


def test_the_labels_are_those_of_the_contract_and_their_numbers_stay() -> None:
    assert [kind.label for kind in EventType] == LABELS
    assert [kind.value for kind in EventType] == list(range(1, 21))


def test_a_runs_last_events_are_its_three_ends() -> None:
    assert [kind.label for kind in EventType if kind.ends_run] == ["run.completed", "run.failed", "run.cancelled"]


@pytest.mark.parametrize("kind", EventType)
def test_every_event_names_its_run(kind: EventType) -> None:
    assert told(kind)["run_id"] == "run_1"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (EventType.RUN_RESUMED, {"attempt": 2}),
        (EventType.MESSAGE_DELTA, {"message_id": "msg_1", "offset": 3, "text": "ab"}),
        (EventType.MESSAGE_DISCARDED, {"message_id": "msg_1"}),
        (EventType.RUN_WAITING, {"waiting_for": ["approval"]}),
        (EventType.RUN_FAILED, {"error": {"code": "max_turns", "message": "too many"}}),
    ],
)
def test_what_no_row_holds_is_told_from_the_event_itself_as_text_or_as_values(
    kind: EventType, data: dict[str, Any]
) -> None:
    assert told(kind, encode_json(data)) == told(kind, data) == {"run_id": "run_1", **data}


def test_a_finished_message_is_told_with_its_calls_as_the_model_asked_for_them() -> None:
    done = replace(MESSAGE, calls=(replace(CALL, status=CallStatus.DONE, result='"ok"'),))
    assert told(EventType.MESSAGE_COMPLETED, None, done) == {
        "run_id": "run_1",
        "message": {
            "id": "msg_1",
            "role": "assistant",
            "text": "One moment.",
            "files": ["file_1"],
            "calls": [
                {
                    "call_id": "call_1",
                    "tool": "refund",
                    "arguments": {"order_id": "A-1001"},
                    "status": "open",
                    "result": None,
                }
            ],
            "status": "complete",
            "run_id": "run_1",
            "created_at": "2027-01-15T08:00:00.042Z",
        },
    }


def test_a_called_tool_is_told_with_the_models_arguments_even_when_a_person_edited_them() -> None:
    edited = replace(CALL, approval=Approval(created_at=0.0, decision="approve", arguments='{"order_id":"A-1002"}'))
    for call in (CALL, edited):
        assert told(EventType.TOOL_CALLED, None, call) == {
            "run_id": "run_1",
            "call_id": "call_1",
            "tool": "refund",
            "arguments": {"order_id": "A-1001"},
        }


def test_progress_is_told_with_its_call() -> None:
    assert told(EventType.TOOL_PROGRESS, '{"text":"half"}', CALL) == {
        "run_id": "run_1",
        "call_id": "call_1",
        "text": "half",
    }


@pytest.mark.parametrize("status", [status for status in CallStatus if status.settled])
def test_a_completed_tool_is_told_with_its_result_and_whether_it_is_an_error(status: CallStatus) -> None:
    call = replace(CALL, status=status, result='{"id":1}')
    assert told(EventType.TOOL_COMPLETED, None, call) == {
        "run_id": "run_1",
        "call_id": "call_1",
        "result": {"id": 1},
        "is_error": status is not CallStatus.DONE,
        "status": status.value,
    }


@pytest.mark.parametrize(("expires_at", "text"), [(None, None), (0.5, "1970-01-01T00:00:00.500Z")])
def test_an_approval_is_requested_for_the_arguments_that_it_is_about(
    expires_at: float | None, text: str | None
) -> None:
    call = replace(CALL, approval=Approval(created_at=0.0, expires_at=expires_at))
    assert told(EventType.APPROVAL_REQUESTED, None, call) == {
        "run_id": "run_1",
        "call_id": "call_1",
        "tool": "refund",
        "arguments": {"order_id": "A-1001"},
        "expires_at": text,
    }


def test_a_decision_is_told_with_who_why_and_the_edited_arguments_if_any() -> None:
    approval = Approval(created_at=0.0, decision="decline", by="user:42", reason="too much")
    decided = {"run_id": "run_1", "call_id": "call_1", "decision": "decline", "by": "user:42", "reason": "too much"}
    assert told(EventType.APPROVAL_DECIDED, None, replace(CALL, approval=approval)) == decided
    edited = replace(approval, decision="approve", arguments='{"order_id":"A-1002"}')
    assert told(EventType.APPROVAL_DECIDED, None, replace(CALL, approval=edited)) == decided | {
        "decision": "approve",
        "arguments": {"order_id": "A-1002"},
    }


@pytest.mark.parametrize("decision", ["approve", "decline", "expire", None])
def test_a_call_is_shown_as_waiting_only_while_a_person_has_to_decide(decision: Any) -> None:
    call = replace(CALL, approval=Approval(created_at=0.0, decision=decision))
    assert public_status(call) == ("waiting" if decision is None else "open")
    assert public_status(replace(call, status=CallStatus.STOPPED)) == "stopped"
    assert public_status(CALL) == "open"


def test_a_call_that_waits_is_shown_so_with_what_it_asked_until_that_is_over() -> None:
    wait = Wait(k=2, kind="question", name="Which?", schema='{"type":"integer"}', created_at=1.0)
    started = replace(CALL, status=CallStatus.STARTED, wait=wait)
    asked = {"k": 2, "question": "Which?", "schema": {"type": "integer"}, "expires_at": None}
    assert call_json(started)["status"] == "waiting"
    assert call_json(started)["question"] == asked | {"answer": None, "by": None}
    assert told(EventType.QUESTION_ASKED, None, started) == {
        "run_id": "run_1",
        "call_id": "call_1",
        "tool": "refund",
        **asked,
    }
    answered = replace(started, wait=replace(wait, value="7", by="user:42"))
    assert call_json(answered)["status"] == "started", "its code runs again"
    given = {"k": 2, "answer": 7, "by": "user:42"}
    assert call_json(answered)["question"] == asked | given
    assert told(EventType.QUESTION_ANSWERED, None, answered) == {"run_id": "run_1", "call_id": "call_1", **given}
    closed = {"run_id": "run_1", "call_id": "call_1", "k": 2}
    assert told(EventType.QUESTION_CLOSED, '{"k":2}', started) == closed
    late = replace(started, wait=replace(wait, until=2.0))
    assert [call_json(late, now=now)["status"] for now in (1.9, 2.0)] == ["waiting", "started"], "its time is over"
    assert call_json(late)["status"] == "waiting", "what time it is is not known here"
    slept = replace(started, wait=Wait(k=1, kind="sleep", created_at=1.0, until=9e9))
    assert (call_json(slept)["status"], "question" in call_json(slept)) == ("waiting", False)
    assert "question" not in call_json(started, as_new=True)


def test_a_stored_call_is_shown_with_its_result_and_a_new_one_without() -> None:
    done = replace(CALL, status=CallStatus.DONE, result="[1]")
    assert (call_json(done)["status"], call_json(done)["result"]) == ("done", [1])
    assert (call_json(done, as_new=True)["status"], call_json(done, as_new=True)["result"]) == ("open", None)
    assert message_json(replace(MESSAGE, calls=(done,)))["calls"][0]["status"] == "done"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000Z"),
        (1_800_000_000.9999999, "2027-01-15T08:00:01.000Z"),
        (1_796_131_898.042, "2026-12-01T13:31:38.042Z"),
    ],
)
def test_a_time_is_text_in_utc_with_milliseconds(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


# -- the live stream and the log

json_texts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(), items, max_size=3),
    max_leaves=6,
).map(encode_json)
objects = st.dictionaries(st.text(), st.text() | st.integers(), max_size=3).map(encode_json)
opened = st.builds(
    ToolCall,
    id=st.text("abc_", min_size=1),
    turn=st.just(1),
    n=st.integers(0, 9),
    tool=st.sampled_from(["refund", "lookup"]),
    arguments=objects,
    effect=st.sampled_from(Effect),
    approval=st.none() | st.builds(Approval, created_at=st.just(1.0), expires_at=st.none() | st.floats(0, 1e9)),
)
ends = st.sampled_from([status for status in CallStatus if status.settled])


@st.composite
def lives(draw: st.DrawFn) -> list[ToolCall]:
    """The states of one call, from the reply that asked for it to its result."""
    call = draw(opened)
    states = [call]
    if call.approval is not None:
        decision: Decision = draw(st.sampled_from(get_args(Decision)))
        edited = draw(st.none() | objects) if decision == "approve" else None
        approval = replace(call.approval, decision=decision, by=draw(st.none() | st.text()), arguments=edited)
        states.append(replace(call, approval=approval))
    if draw(st.booleans()):
        states.append(replace(states[-1], status=CallStatus.STARTED, tries=1))
    states.append(replace(states[-1], status=draw(ends), result=draw(json_texts)))
    return states


@settings(deadline=None, max_examples=some_of(100), suppress_health_check=[HealthCheck.too_slow])
@given(life=lives())
def test_an_event_read_from_the_log_later_tells_what_its_live_reader_was_told(life: list[ToolCall]) -> None:
    asked, last = life[0], life[-1]
    decided = next((state for state in life if state.approval is not None and state.approval.decision), last)
    live = {
        EventType.TOOL_CALLED: asked,
        EventType.APPROVAL_REQUESTED: asked,
        EventType.APPROVAL_DECIDED: decided,
        EventType.TOOL_PROGRESS: life[-2],
        EventType.TOOL_COMPLETED: last,
    }
    for kind, subject in live.items():
        data = encode_json({"text": "half"}) if kind is EventType.TOOL_PROGRESS else None
        assert told(kind, data, subject) == told(kind, data, last), kind.label

    messages = [replace(MESSAGE, calls=(state,)) for state in life]
    assert len({encode_json(told(EventType.MESSAGE_COMPLETED, None, message)) for message in messages}) == 1


@settings(deadline=None)
@given(data=objects)
def test_what_an_event_tells_is_one_line_of_json(data: str) -> None:
    line = encode_json(event_data(EventType.MESSAGE_DELTA, "run_1", data))
    assert "\n" not in line
    assert decode_json(line) == {"run_id": "run_1"} | decode_json(data)
