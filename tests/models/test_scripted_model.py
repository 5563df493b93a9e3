"""The scripted model plays the right reply, without a memory of its own, and refuses what a provider refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amoxi_py.errors import ModelFailed
from amoxi_py.models.script import Script
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    Reply,
    TextDelta,
    ToolResult,
    UserMessage,
)
from amoxi_py.testing import Gate, ScriptedModel, broken, call, fail, raw_call, reply, thinking, tries

USER = UserMessage(text="Refund A-1001")
CALL = AssistantMessage(text="", calls=(CallRequest(id="c1", name="refund_order", arguments="{}"),))
RESULT = ToolResult(call_id="c1", tool="refund_order", content="done")


def ask(model: ScriptedModel, *messages: ModelMessage) -> list[TextDelta | Reply]:
    async def collect() -> list[TextDelta | Reply]:
        request = ModelRequest(instructions="", messages=messages)
        return [item async for item in model.stream(request)]

    return asyncio.run(collect())


def last_text(model: ScriptedModel, *messages: ModelMessage) -> str:
    reply = ask(model, *messages)[-1]
    assert isinstance(reply, Reply)
    return reply.text


def failure(model: ScriptedModel, *messages: ModelMessage) -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        ask(model, *messages)
    return caught.value


def test_the_reply_follows_from_the_history_alone_so_a_new_process_goes_on_where_the_old_one_was() -> None:
    script: Script = [call("refund_order", order_id="A-1001"), "Refunded."]
    assert last_text(ScriptedModel(script), USER, CALL, RESULT) == "Refunded."
    first = ask(ScriptedModel(script), USER)[-1]
    assert isinstance(first, Reply)
    assert first.calls == (CallRequest(id="call_1", name="refund_order", arguments='{"order_id": "A-1001"}'),)


def test_every_message_of_a_person_starts_the_script_anew() -> None:
    model = ScriptedModel(["First.", "Second."])
    assert last_text(model, USER, AssistantMessage(text="First."), USER) == "First."


def test_a_script_can_be_chosen_by_what_the_person_said() -> None:
    model = ScriptedModel({"Refund A-1001": ["Refunded."], "*": ["What?"]})
    assert last_text(model, USER) == "Refunded."
    assert last_text(model, UserMessage(text="Hm")) == "What?"


def test_a_script_can_be_a_function_of_the_request() -> None:
    async def answer(request: ModelRequest) -> str:
        return f"{len(request.messages)} messages"

    assert last_text(ScriptedModel(answer), USER) == "1 messages"
    assert last_text(ScriptedModel(lambda request: "plain"), USER) == "plain"


def test_pieces_are_streamed_before_the_whole_reply() -> None:
    assert ask(ScriptedModel([reply("Hel", "lo", call("a"))]), USER)[:2] == [
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
    ]


def test_a_sequence_is_a_reply_with_text_and_calls_and_raw_arguments_stay_as_they_are() -> None:
    answer = ask(ScriptedModel([["I look.", call("a", x=1), raw_call("b", '{"x": ', "same")]]), USER)[-1]
    assert isinstance(answer, Reply)
    assert answer.text == "I look."
    assert [(item.id, item.name, item.arguments) for item in answer.calls] == [
        ("call_1", "a", '{"x": 1}'),
        ("same", "b", '{"x": '),
    ]


def test_a_gate_holds_the_reply_until_it_is_opened() -> None:
    async def watch() -> list[str]:
        gate = Gate()
        model = ScriptedModel([reply("before", gate, "after")])
        seen: list[str] = []

        async def follow() -> None:
            async for item in model.stream(ModelRequest(instructions="", messages=(USER,))):
                if isinstance(item, TextDelta):
                    seen.append(item.text)  # noqa: PERF401 - what has come so far is looked at

        task = asyncio.create_task(follow())
        assert await gate.reached()
        assert seen == ["before"]
        gate.open()
        await asyncio.wait_for(task, 60)
        return seen

    assert asyncio.run(watch()) == ["before", "after"]


@pytest.mark.parametrize(
    ("item", "code", "retryable"),
    [
        (fail(503), "model_unavailable", True),
        (fail(429, retry_after=7), "model_rate_limited", True),
        (fail(400), "model_refused", False),
        (broken("half"), "model_stream_cut", True),
        (broken("half", ending="unfinished"), "model_stream_cut", True),
        (broken("half", ending="error"), "model_unavailable", True),
        (broken("half", ending="content_filter"), "model_content_filtered", False),
        (broken("half", ending="bad_json"), "model_stream_cut", True),
        (broken(ending="html"), "model_unavailable", True),
        (broken(ending="empty_body"), "model_stream_cut", True),
        (reply(), "model_empty_reply", True),
    ],
)
def test_a_scripted_failure_has_the_code_that_a_real_one_has(item: Any, code: str, retryable: bool) -> None:
    failed = failure(ScriptedModel([item]), USER)
    assert (failed.code, failed.retryable) == (code, retryable)
    if item == fail(429, retry_after=7):
        assert failed.retry_after == 7


def test_a_reply_at_the_length_limit_is_marked_cut() -> None:
    answer = ask(ScriptedModel([broken("half", ending="length")]), USER)[-1]
    assert isinstance(answer, Reply)
    assert answer.cut


def test_scripted_reasoning_is_not_shown_and_has_to_come_back_as_it_was_given_out() -> None:
    script: Script = [[thinking("Hm."), "I look.", call("refund_order")], "Refunded."]
    *texts, answer = ask(ScriptedModel(script), USER)
    assert texts == [TextDelta(text="I look.")]
    assert isinstance(answer, Reply)
    said = AssistantMessage(text=answer.text, calls=CALL.calls, kept=answer.kept)
    assert last_text(ScriptedModel(script), USER, said, RESULT) == "Refunded."
    wrong = AssistantMessage(text=answer.text, calls=CALL.calls, kept=(answer.kept or "").replace("Hm.", "Ha!"))
    model = ScriptedModel(script)
    assert failure(model, USER, wrong, RESULT).code == "model_refused"
    assert model.refused == ["messages[1]: the reasoning is not as it was given out"]


def test_tries_answer_the_same_request_anew_each_time_and_leave_other_requests_alone() -> None:
    model = ScriptedModel([tries(fail(500), fail(500), "At last.")])
    assert failure(model, USER).code == "model_unavailable"
    assert failure(model, UserMessage(text="Other")).code == "model_unavailable"
    assert failure(model, USER).code == "model_unavailable"
    assert last_text(model, USER) == "At last."
    assert last_text(model, USER) == "At last."


def test_a_script_without_a_reply_fails_and_says_so_instead_of_saying_anything() -> None:
    failed = failure(ScriptedModel(["Only one."]), USER, CALL, RESULT)
    assert not failed.retryable
    assert "asked for number 2" in str(failed)


def test_a_request_that_a_provider_refuses_fails_and_is_recorded() -> None:
    model = ScriptedModel(["Hi."])
    failed = failure(model, USER, CALL)
    assert (failed.code, failed.retryable) == ("model_refused", False)
    assert "not followed directly" in model.refused[0]
    assert len(model.requests) == 1


def test_a_text_in_place_of_a_script_is_refused() -> None:
    with pytest.raises(TypeError, match=r"put it into a list"):
        ScriptedModel("Hello")
