"""The history for a model: whatever is stored, it is one that every provider accepts."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import clean_json, clean_text, encode_json, encode_json_unicode
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.settle import settle
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.engine.transcript import model_messages
from amoxi_py.models.history import check_request
from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from whole import some_of

RUN = "run_" + "0a" * 13
CALL = ToolCall(
    id=call_id(RUN, 1, 0), turn=1, n=0, tool="pay", arguments='{"a":1}', effect=Effect.UNSAFE, status=CallStatus.DONE
)


def person(text: str = "Pay A-1001", run_id: str = RUN) -> Message:
    return Message(id="msg_0", run_id=run_id, turn=0, role="user", text=text)


def reply(*calls: ToolCall, text: str = "") -> Message:
    return Message(id="msg_1", run_id=RUN, turn=1, role="assistant", text=text, calls=calls)


def told(*calls: ToolCall) -> ToolResult:
    last = model_messages((person(), reply(*calls)))[-1]
    assert isinstance(last, ToolResult)
    return last


def test_messages_calls_and_results_come_in_the_order_that_providers_ask_for() -> None:
    first = replace(CALL, result='"paid"')
    second = replace(CALL, id=call_id(RUN, 1, 1), n=1, status=CallStatus.FAILED, result='"no"')
    messages = model_messages((person(), reply(first, second, text="One moment."), reply(text="Done."), person("Ok")))
    assert [type(message) for message in messages] == [
        UserMessage,
        AssistantMessage,
        ToolResult,
        ToolResult,
        AssistantMessage,
        UserMessage,
    ]
    asked = messages[1]
    assert isinstance(asked, AssistantMessage)
    assert (asked.text, [call.id for call in asked.calls]) == ("One moment.", [first.id, second.id])
    assert messages[2] == ToolResult(call_id=first.id, tool="pay", content="paid")
    assert messages[3] == ToolResult(call_id=second.id, tool="pay", content="no", is_error=True)


def test_a_text_is_told_as_it_is_and_any_other_value_as_readable_json() -> None:
    assert told(replace(CALL, result=encode_json("Köln\n"))).content == "Köln\n"
    assert told(replace(CALL, result=encode_json({"city": "Köln", "n": [10**30]}))).content == (
        '{"city":"Köln","n":[1000000000000000000000000000000]}'
    )
    assert told(replace(CALL, result="null")).content == "null"


def test_the_model_sees_its_own_arguments_also_where_a_person_edited_them() -> None:
    edited = replace(CALL, result='"ok"', approval=Approval(created_at=0.0, decision="approve", arguments="{}"))
    asked = model_messages((person(), reply(edited)))[1]
    assert isinstance(asked, AssistantMessage)
    assert asked.calls[0].arguments == '{"a":1}'


def test_the_model_is_told_with_which_arguments_an_edited_call_really_ran() -> None:
    approval = Approval(created_at=0.0, decision="approve", arguments='{"a":2}')
    result = told(replace(CALL, result='"paid"', approval=approval))
    assert result.content.startswith("paid\n")
    assert 'called with: {"a":2}' in result.content
    assert told(replace(CALL, result='"paid"', approval=replace(approval, arguments=None))).content == "paid"


@pytest.mark.parametrize("status", [status for status in CallStatus if status.settled])
def test_everything_but_success_is_told_as_an_error(status: CallStatus) -> None:
    assert told(replace(CALL, status=status, result='"x"')).is_error == (status is not CallStatus.DONE)


@pytest.mark.parametrize("status", [CallStatus.OPEN, CallStatus.STARTED])
def test_a_call_without_a_result_still_gets_one(status: CallStatus) -> None:
    result = told(replace(CALL, status=status))
    assert result.is_error
    assert result.content


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_a_reply_without_words_and_without_calls_is_left_out(text: str) -> None:
    assert model_messages((person(), replace(reply(text=text), status="stopped"))) == (UserMessage(text="Pay A-1001"),)


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_error_that_says_nothing_is_told_in_words(text: str) -> None:
    assert told(replace(CALL, status=CallStatus.FAILED, result=encode_json(text))).content.strip()


# -- invented conversations

odd_letters = st.sampled_from("\x00\ud83d\ude00 \n")
any_text = st.lists(st.characters() | odd_letters, max_size=8).map("".join)
words = any_text.map(clean_text)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text,
    lambda items: st.lists(items, max_size=3) | st.dictionaries(any_text, items, max_size=3),
    max_leaves=4,
)


@st.composite
def runs(draw: st.DrawFn, number: int, last: bool) -> list[Message]:
    """The messages of one run: an earlier one, ended in any way, or the last one, about to ask its model."""
    run_id = f"run_{number:026x}"
    messages = [person(draw(words.filter(str.strip)), run_id)]
    turns = draw(st.integers(0, 3))
    for turn in range(1, turns + 1):
        ended_here = not last and turn == turns
        statuses = st.sampled_from(CallStatus if ended_here else [each for each in CallStatus if each.settled])
        calls = []
        for n in range(draw(st.integers(0 if ended_here else 1, 3))):
            status = draw(statuses)
            calls.append(
                ToolCall(
                    id=call_id(run_id, turn, n),
                    turn=turn,
                    n=n,
                    tool=draw(st.sampled_from(["pay", "ask_helper", "unnamed"])),
                    arguments=encode_json(clean_json(draw(st.dictionaries(any_text, any_text, max_size=1)))),
                    effect=draw(st.sampled_from(Effect)),
                    status=status,
                    result=encode_json(draw(plain)) if status.settled else None,
                )
            )
        message = replace(reply(*calls, text=draw(words)), run_id=run_id, turn=turn)
        messages.append(message)
    return messages if last or draw(st.booleans()) else _settled(messages)


def _settled(messages: list[Message]) -> list[Message]:
    """The run cancelled: each unsettled call with the result that it gets then."""
    results = {(each.turn, each.n): each for each in settle(tuple(messages))}
    return [
        replace(
            message,
            status="stopped" if message.role == "assistant" else "complete",
            calls=tuple(
                replace(call, status=results[key].status, result=results[key].result)
                if (key := (call.turn, call.n)) in results
                else call
                for call in message.calls
            ),
        )
        for message in messages
    ]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    count = draw(st.integers(1, 3))
    return [message for n in range(count) for message in draw(runs(n, n == count - 1))]


@settings(deadline=None, max_examples=some_of(60), suppress_health_check=[HealthCheck.too_slow])
@given(stored=conversations())
def test_a_model_can_be_asked_with_whatever_is_stored(stored: list[Message]) -> None:
    messages = model_messages(stored)
    assert check_request(ModelRequest(instructions="You help.", messages=messages)) == []
    json.dumps([str(message) for message in messages], ensure_ascii=False).encode("utf-8")


@settings(deadline=None, max_examples=some_of(30), suppress_health_check=[HealthCheck.too_slow])
@given(stored=conversations())
def test_every_call_is_told_once_with_its_one_result_directly_after_its_message(stored: list[Message]) -> None:
    messages = model_messages(stored)
    calls = [call.id for message in stored for call in message.calls]
    assert [message.call_id for message in messages if isinstance(message, ToolResult)] == calls
    assert [call.id for message in messages if isinstance(message, AssistantMessage) for call in message.calls] == calls
    people = [message.text for message in stored if message.role == "user"]
    assert [message.text for message in messages if isinstance(message, UserMessage)] == people


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
)
@settings(deadline=None)
def test_a_result_is_read_as_text_or_as_json_with_readable_letters(value: object) -> None:
    stored = encode_json(value)
    read = told(replace(CALL, result=stored)).content
    plain = json.loads(stored)
    assert read == (plain if isinstance(plain, str) else encode_json_unicode(plain))
