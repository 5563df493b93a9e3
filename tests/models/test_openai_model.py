"""The OpenAI adapter: options, reasoning of other servers, and what only this wire has."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import openai
import pytest

from amoxi_py.domain.usage import Usage
from amoxi_py.models.openai_body import write_messages
from amoxi_py.models.openai_servers import SERVERS
from amoxi_py.models.sse import SseReader
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import StrictModelServer, broken, call, raw_call, reply, thinking, tries
from amoxi_py.testing.openai_answers import OpenAIWire

ASK = ModelRequest(instructions="", messages=(UserMessage(text="Where?"),))
CALLS = (CallRequest(id="c", name="t", arguments="{}"),)


def test_options_are_sent_under_the_providers_names_and_the_requests_own_win(stage: Any) -> None:
    request = msgspec.structs.replace(ASK, options={"temperature": 0.5, "effort": "low"})
    stage.reply("openai", "Hi.", request, model=stage.model("openai", options={"temperature": 0.1, "max_tokens": 9}))
    body = stage.body
    assert (body["temperature"], body["reasoning_effort"], body["max_tokens"]) == (0.5, "low", 9)


def test_an_option_that_only_another_server_knows_is_sent_as_it_is(stage: Any) -> None:
    stage.failure("openai", "Hi.", ASK, model=stage.model("openai", options={"new_thing": 5}))
    assert stage.server.refused == ["unrecognized request argument: 'new_thing'"]
    stage.server.refused.clear()


def test_calls_that_a_server_counts_all_as_number_0_stay_apart(stage: Any) -> None:
    stage.server.openai.one_index = True
    answer = stage.reply("openai", [call("a", x=1), call("b", y=2)])
    assert [(item.name, item.arguments) for item in answer.calls] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]


def test_tokens_that_the_provider_read_from_its_cache_are_counted(stage: Any) -> None:
    used = Usage(requests=1, input_tokens=100, output_tokens=7, cached_tokens=60)
    assert stage.reply("openai", reply("Hi.", usage=used)).usage == used


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_reasoning_is_not_shown_and_given_back_in_the_servers_own_field_where_tools_were_called(
    stage: Any, field: str
) -> None:
    stage.server.openai.reasoning = field
    items = stage.ask("openai", [thinking("Hm, ä "), thinking("so."), "I look.", call("t")], ASK)
    answer = items[-1]
    assert answer.text == "I look."
    assert len(items) == 2
    said = AssistantMessage(text=answer.text, calls=CALLS, kept=answer.kept)
    loop = (UserMessage(text="Where?"), said, ToolResult(call_id="c", tool="t", content="ok"))
    final = stage.reply("openai", [thinking("Well."), "There."], msgspec.structs.replace(ASK, messages=loop))
    assert stage.body["messages"][1].keys() == {"role", "content", "tool_calls", field}
    then = (*loop, AssistantMessage(text="There.", kept=final.kept), UserMessage(text="Thanks"))
    alone = stage.reply("openai", [thinking("Nice."), "Bye."], msgspec.structs.replace(ASK, messages=then))
    assert field in stage.body["messages"][3]
    then = (*then, AssistantMessage(text="Bye.", kept=alone.kept), UserMessage(text="Hm?"))
    stage.reply("openai", "Bye.", msgspec.structs.replace(ASK, messages=then))
    assert [field in message for message in stage.body["messages"]] == [False, True, False, True, False, False, False]


def test_reasoning_of_another_model_or_to_openai_itself_is_not_sent() -> None:
    kept = '{"provider":"openai","model":"deepseek-v4","reasoning_content":"Hm."}'
    loop = (
        UserMessage(text="Where?"),
        AssistantMessage(text="", calls=CALLS, kept=kept),
        ToolResult(call_id="c", tool="t", content="ok"),
    )
    request = msgspec.structs.replace(ASK, messages=loop)
    assert "reasoning_content" in write_messages(request, model="deepseek-v4")[1]
    assert "reasoning_content" not in write_messages(request, model="deepseek-v5")[1]
    assert "reasoning_content" not in write_messages(request, model="deepseek-v4", reasoning=False)[1]
    assert "reasoning_content" not in write_messages(request, model="deepseek-v4", server=SERVERS["openai"])[1]


class _InParts(OpenAIWire):
    def whole(self, *asked: Any) -> dict[str, Any]:
        answer = super().whole(*asked)
        hidden = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
        answer["choices"][0]["message"]["content"] = [hidden, {"type": "text", "text": "Hi."}]
        return answer


def test_a_text_that_comes_as_parts_is_read_without_the_reasoning_among_them(stage: Any) -> None:
    wires, stage.server.streams = stage.server.wires, False
    stage.server.wires = {**wires, "/v1/chat/completions": _InParts()}
    try:
        assert stage.reply("openai", "").text == "Hi."
    finally:
        stage.server.wires = wires


def test_the_same_request_may_get_another_answer_at_the_next_try() -> None:
    with StrictModelServer([tries(broken("a"), "Hi.")]) as server:

        async def ask() -> str | None:
            client = openai.AsyncOpenAI(api_key="sk-1", base_url=server.url, max_retries=3)
            async with client:
                messages: Any = [{"role": "user", "content": "Hi"}]
                answer = await client.chat.completions.create(model="m", messages=messages)
            return answer.choices[0].message.content

        assert asyncio.run(ask()) == "Hi."
        assert len(server.bodies) == 2


def test_the_real_sdk_reads_the_strict_servers_stream() -> None:
    async def read() -> Any:
        tool: Any = {"type": "function", "function": {"name": "t", "parameters": {"type": "object", "properties": {}}}}
        messages: Any = [{"role": "user", "content": "Hi"}]
        client = openai.AsyncOpenAI(api_key="sk-1", base_url=server.url, max_retries=0)
        async with client, client.chat.completions.stream(model="m", messages=messages, tools=[tool]) as stream:
            return await stream.get_final_completion()

    with StrictModelServer([[thinking("Hm."), "I ", "look.", raw_call("t", '{"x": 1}'), call("t")]]) as server:
        found = asyncio.run(read()).choices[0]
        assert server.refused == []
    assert (found.message.content, found.finish_reason) == ("I look.", "tool_calls")
    assert [item.function.arguments for item in found.message.tool_calls] == ['{"x": 1}', "{}"]


def test_events_are_read_across_chunks_with_comments_and_other_line_ends() -> None:
    reader = SseReader()
    chunks = (b": hi\r\n\r\nda", b'ta: {"a"', b":1}\r\n\r", b"\nevent: x\ndata:b\ndata: c\n\ndata: [DONE]")
    assert [reader.read(chunk) for chunk in chunks] == [[], [], [], [b'{"a":1}', b"b\nc"]]
    assert reader.end() == [b"[DONE]"]


def test_a_line_of_many_megabytes_in_small_pieces_is_read_in_the_time_of_a_test() -> None:
    reader, piece = SseReader(), b"a" * 1024
    assert [found for _ in range(32 * 1024) for found in reader.read(piece)] == []
    assert reader.read(b"\ndata: ") == []
    for _ in range(32 * 1024):
        assert reader.read(piece) == []
    (data,) = reader.read(b"\n\n")
    assert data == piece * 32 * 1024
