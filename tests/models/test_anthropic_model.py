"""The Anthropic adapter: options, reasoning that is kept, marks for the cache, and what only this wire has."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import anthropic
import msgspec
import pytest

from amoxi_py.domain.usage import Usage
from amoxi_py.models.anthropic import DEFAULT_MAX_TOKENS
from amoxi_py.models.anthropic_body import AnthropicPrompt, takes_sampling, write_tools
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelRequest,
    Reply,
    TextDelta,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from amoxi_py.testing import StrictModelServer, broken, call, fail, reply, thinking

TOOL = ToolSpec(name="t", description="Do it.", parameters={"type": "object", "properties": {}})
ASK = ModelRequest(instructions="Be kind.", messages=(UserMessage(text="Where?"),), tools=(TOOL,))


def go_on(request: ModelRequest, answer: Reply, *then: str) -> ModelRequest:
    """Return the next request of a conversation: with the reply, a result for each of its calls, and what is said."""
    calls = tuple(
        CallRequest(id=f"call_{len(request.messages)}_{n}", name=call.name, arguments=call.arguments)
        for n, call in enumerate(answer.calls)
    )
    said = AssistantMessage(text=answer.text, calls=calls, kept=answer.kept)
    results = (ToolResult(call_id=call.id, tool=call.name, content="ok") for call in calls)
    messages = (*request.messages, said, *results, *(UserMessage(text=text) for text in then))
    return msgspec.structs.replace(request, messages=messages)


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def marks(body: dict[str, Any]) -> list[str]:
    """Return where a body has marks for the cache."""
    places = [f"system.{n}" for n, block in enumerate(body.get("system", ())) if "cache_control" in block]
    places += [f"tools.{n}" for n, tool in enumerate(body.get("tools", ())) if "cache_control" in tool]
    for n, message in enumerate(body["messages"]):
        places += [f"messages.{n}.{m}" for m, block in enumerate(message["content"]) if "cache_control" in block]
    return places


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_marks(part) for key, part in value.items() if key != "cache_control"}
    return [without_marks(part) for part in value] if isinstance(value, list) else value


def test_options_get_the_providers_own_form_and_the_requests_own_win(stage: Any) -> None:
    options = {"max_tokens": 9, "effort": "high", "stop": "END", "parallel_tool_calls": False, "metadata": {}}
    request = msgspec.structs.replace(ASK, options={"effort": "minimal", "output_config": {"format": None}})
    stage.reply("anthropic", "Hi.", request, model=stage.model("anthropic", options=options))
    body = stage.body
    assert body["max_tokens"] == 9
    assert body["output_config"] == {"effort": "low", "format": None}
    assert body["stop_sequences"] == ["END"]
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    stage.reply("anthropic", "Hi.", ASK)
    assert stage.body["max_tokens"] == DEFAULT_MAX_TOKENS


def test_sampling_goes_to_models_that_have_it_and_is_left_out_with_a_warning_for_others(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"temperature": 0.5, "top_p": 0.9}
    stage.reply("anthropic", "Hi.", ASK, model=stage.model("anthropic", "claude-sonnet-4-6", options=options))
    assert (stage.body["temperature"], stage.body["top_p"]) == (0.5, 0.9)
    assert caplog.text == ""
    stage.reply("anthropic", "Hi.", ASK, model=stage.model("anthropic", "claude-sonnet-5-5", options=options))
    assert "temperature" not in stage.body
    assert caplog.text.count("the model anthropic:claude-sonnet-5-5 takes no 'temperature'") == 1
    with_it = ("claude-haiku-4-5-20251001", "claude-opus-4-20250514", "claude-3-5-haiku-latest", "deepseek-v4")
    without = ("claude-opus-4-7", "claude-fable-5-1", "vendor/claude-opus-5", "claude-mythos-preview")
    assert [takes_sampling(name) for name in (*with_it, *without)] == [True] * 4 + [False] * 4


def test_an_option_that_the_api_does_not_know_is_sent_as_it_is(stage: Any) -> None:
    failed = stage.failure("anthropic", "Hi.", ASK, model=stage.model("anthropic", options={"new_thing": 1}))
    assert failed.code == "model_refused"
    assert stage.server.refused == ["new_thing: Extra inputs are not permitted"]
    stage.server.refused.clear()


def test_tokens_of_the_cache_are_counted_in_the_input_and_apart(stage: Any) -> None:
    used = Usage(requests=1, input_tokens=100, output_tokens=7, cached_tokens=60, written_tokens=30)
    assert stage.reply("anthropic", reply("Hi.", usage=used)).usage == used
    stage.server.streams = False
    assert stage.reply("anthropic", reply("Hi.", usage=used)).usage == used


def test_reasoning_is_not_shown_and_given_back_in_its_place_through_a_tool_loop_and_later_turns(stage: Any) -> None:
    first = [thinking("Hm."), "I look.", thinking("So: ä", redacted=True), "Now.", call("t"), call("t")]
    items = stage.ask("anthropic", first, ASK)
    answer = items[-1]
    assert "".join(item.text for item in items[:-1] if isinstance(item, TextDelta)) == answer.text == "I look.Now."
    second = go_on(ASK, answer)
    answer = stage.reply("anthropic", [thinking("Done?"), "Done."], second)
    assert kinds(stage.body["messages"][1]) == ["thinking", "text", "redacted_thinking", "text", "tool_use", "tool_use"]
    third = go_on(second, answer, "And now?")
    stage.reply("anthropic", "Yes.", third)
    assert kinds(stage.body["messages"][3]) == ["thinking", "text"]


def test_reasoning_behind_a_call_and_blank_texts_are_not_given_back(stage: Any) -> None:
    answer = stage.reply("anthropic", [thinking("Hm."), "\n\n", thinking("So."), call("t"), thinking("More.")], ASK)
    stage.reply("anthropic", "Done.", go_on(ASK, answer))
    assert kinds(stage.body["messages"][1]) == ["thinking", "thinking", "tool_use"]


@pytest.mark.parametrize("changed", ["instructions", "tools", "history", "model", "another provider", "nonsense"])
def test_reasoning_is_left_out_when_what_it_is_bound_to_has_changed(stage: Any, changed: str) -> None:
    answer = stage.reply("anthropic", [thinking("Hm."), call("t")], ASK)
    request, model = go_on(ASK, answer), stage.model("anthropic")
    if changed == "instructions":
        request = msgspec.structs.replace(request, instructions="Be brief.")
    elif changed == "tools":
        other = ToolSpec(name="u", description="More.", parameters=TOOL.parameters)
        request = msgspec.structs.replace(request, tools=(TOOL, other))
    elif changed == "history":
        request = msgspec.structs.replace(request, messages=(UserMessage(text="A summary."), *request.messages[1:]))
    elif changed == "model":
        model = stage.model("anthropic", "claude-opus-5-5")
    else:
        kept = '{"provider":"openai","model":"gpt-5","reasoning":"Hm."}' if changed == "another provider" else '{"'
        said = msgspec.structs.replace(request.messages[1], kept=kept)
        request = msgspec.structs.replace(request, messages=(request.messages[0], said, *request.messages[2:]))
    if changed == "nonsense":
        prompt = AnthropicPrompt(request, "claude-sonnet-5-5", write_tools(request.tools))
        assert kinds(prompt.messages[1]) == ["tool_use"]
        return
    stage.reply("anthropic", "Done.", request, model=model)
    assert kinds(stage.body["messages"][1]) == ["tool_use"]


def test_an_alias_and_the_release_it_stands_for_share_their_reasoning(stage: Any) -> None:
    alias, release = (stage.model("anthropic", f"claude-haiku-4-5{date}") for date in ("", "-20251001"))
    answer = stage.reply("anthropic", [thinking("Hm."), call("t")], ASK, model=release)
    stage.reply("anthropic", "Done.", go_on(ASK, answer), model=alias)
    assert kinds(stage.body["messages"][1]) == ["thinking", "tool_use"]


def test_a_history_whose_reasoning_the_api_refuses_is_asked_again_without_it(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    answer = stage.reply("anthropic", [thinking("Hm."), call("t")], ASK)
    wrong = msgspec.structs.replace(answer, kept=(answer.kept or "").replace("Hm.", "Ha!"))
    assert stage.reply("anthropic", "Done.", go_on(ASK, wrong)).text == "Done."
    assert kinds(stage.body["messages"][1]) == ["tool_use"]
    assert "does not take its own reasoning back" in caplog.text
    assert "Invalid `signature`" in stage.server.refused[0]
    stage.server.refused.clear()


def test_thinking_with_a_budget_is_left_out_in_a_tool_loop_that_began_without(stage: Any) -> None:
    model = stage.model("anthropic", "m", options={"thinking": {"type": "enabled", "budget_tokens": 2000}})
    answer = stage.reply("anthropic", [thinking("Hm."), call("t")], ASK, model=model)
    assert stage.body["thinking"]["budget_tokens"] == 2000
    request = go_on(ASK, answer)
    stage.reply("anthropic", "Done.", request, model=model)
    assert "thinking" in stage.body
    stage.reply("anthropic", "Done.", go_on(ASK, msgspec.structs.replace(answer, kept=None)), model=model)
    assert "thinking" not in stage.body
    stage.reply("anthropic", "Done.", go_on(request, Reply(text="Done."), "Next"), model=model)
    assert "thinking" in stage.body


def test_the_marks_for_the_cache_stand_at_the_ends_of_what_stays_and_the_front_stays_byte_for_byte(stage: Any) -> None:
    request, answer, bodies = ASK, Reply(text=""), []
    for text in ("Where?", "And this?", "And that?"):
        if bodies:
            request = go_on(request, answer, text)
        for item in ([call("t"), call("t")], [thinking("Hm."), call("t")], "Done."):
            answer = stage.reply("anthropic", item, request)
            bodies.append(stage.body)
            if answer.calls:
                request = go_on(request, answer)
    assert [marks(body) for body in bodies[:5]] == [
        ["system.0", "messages.0.0"],
        ["system.0", "messages.0.0", "messages.2.1"],
        ["system.0", "messages.2.1", "messages.4.0"],
        ["system.0", "messages.4.0", "messages.5.0", "messages.6.0"],
        ["system.0", "messages.5.0", "messages.6.0", "messages.8.1"],
    ]
    assert all(len(marks(body)) <= 4 for body in bodies)
    for before, after in pairwise(bodies):
        front = [json.dumps(without_marks(body[part])) for body in (before, after) for part in ("tools", "system")]
        assert front[:2] == front[2:]
        told = without_marks(before["messages"])
        assert json.dumps(without_marks(after["messages"][: len(told)])) == json.dumps(told)


def test_the_mark_can_be_another_one_or_none_and_stands_on_the_tools_without_instructions(stage: Any) -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    bare = msgspec.structs.replace(ASK, instructions=" ")
    stage.reply("anthropic", "Hi.", bare, model=stage.model("anthropic", options={"cache_control": hour}))
    assert marks(stage.body) == ["tools.0", "messages.0.0"]
    assert stage.body["tools"][0]["cache_control"] == hour
    stage.reply("anthropic", "Hi.", ASK, model=stage.model("anthropic", options={"cache_control": None}))
    assert marks(stage.body) == []


def test_what_a_person_said_after_results_stands_behind_them_in_one_message(stage: Any) -> None:
    answer = stage.reply("anthropic", [call("t"), call("t")], ASK)
    stage.reply("anthropic", "Hi.", go_on(ASK, answer, "Stop that", "Do this"))
    assert [kinds(message) for message in stage.body["messages"]] == [
        ["text"],
        ["tool_use", "tool_use"],
        ["tool_result", "tool_result", "text", "text"],
    ]
    assert [m.text for m in stage.server.requests[-1].messages[-2:] if isinstance(m, UserMessage)] == [
        "Stop that",
        "Do this",
    ]


def test_a_result_without_a_text_and_a_tool_without_one_are_sent_as_the_api_takes_them(stage: Any) -> None:
    answer = stage.reply("anthropic", call("t"), ASK)
    request = go_on(ASK, answer)
    blank = ToolResult(call_id=request.messages[-1].call_id, tool="t", content=" ")
    bare = ToolSpec(name="t", description="", parameters=TOOL.parameters)
    request = msgspec.structs.replace(request, messages=(*request.messages[:-1], blank), tools=(bare,))
    stage.reply("anthropic", "Hi.", request)
    assert "content" not in stage.body["messages"][-1]["content"][0]
    assert "description" not in stage.body["tools"][0]


def test_spending_limits_and_overload_have_their_own_codes(stage: Any) -> None:
    for reason, status, code in (
        ("enforced_spend_limit_reached", 429, "model_quota_exhausted"),
        ("billing_error", 400, "model_quota_exhausted"),
        ("overloaded_error", 529, "model_unavailable"),
        ("not_found_error", 404, "model_unknown"),
        ("request_too_large", 413, "model_context_too_long"),
    ):
        assert stage.failure("anthropic", fail(status, reason=reason)).code == code


def test_the_real_sdk_reads_the_strict_servers_stream() -> None:
    first_reply = [thinking("Hm."), "I ", "look.", thinking("x", redacted=True), call("t", x=1)]

    async def read() -> list[Any]:
        client = anthropic.AsyncAnthropic(api_key="sk-1", base_url=server.anthropic_url, max_retries=0)
        asked: dict[str, Any] = {"model": "m", "max_tokens": 10, "tools": [{"name": "t", "input_schema": OBJECT}]}
        messages: list[Any] = [{"role": "user", "content": "Hi"}]
        found = []
        async with client:
            for _ in range(2):
                async with client.messages.stream(messages=messages, **asked) as stream:
                    message = await stream.get_final_message()
                found.append(message)
                content = [block.model_dump(exclude_none=True) for block in message.content]
                results = [
                    {"type": "tool_result", "tool_use_id": block.id}
                    for block in message.content
                    if block.type == "tool_use"
                ]
                messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
            whole = await client.messages.create(messages=messages[:1], **asked)
        return [*found, whole]

    with StrictModelServer([first_reply, broken("a", ending="length")]) as server:
        first, second, whole = asyncio.run(read())
        assert server.refused == []
    assert [block.type for block in first.content] == ["thinking", "text", "redacted_thinking", "tool_use"]
    assert [block.type for block in whole.content] == ["thinking", "text", "redacted_thinking", "tool_use"]
    assert (first.content[1].text, first.content[3].input, first.stop_reason) == ("I look.", {"x": 1}, "tool_use")
    assert (second.stop_reason, second.usage.output_tokens, second.usage.input_tokens) == ("max_tokens", 5, 10)


OBJECT: Any = {"type": "object", "properties": {}}
