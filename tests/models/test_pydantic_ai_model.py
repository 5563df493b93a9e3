"""Providers through pydantic-ai: its real OpenAI client against the strict model server, and what it keeps."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic_ai import messages as pai
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.models.lookup import resolve_model
from amoxi_py.models.pydantic_ai_history import keep, write_messages
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    Reply,
    SentFile,
    TextDelta,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from amoxi_py.testing import StrictModelServer, broken, call, fail, reply, thinking

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16
ORDER = ToolSpec(
    name="lookup_order",
    description="Look an order up.",
    parameters={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
)
PICTURE = UserMessage(
    text="And this?",
    notes=("[file file_1: 'a.png', image/png, 24 bytes]", "[file file_2: 'a.csv', text/csv, 3 bytes]"),
    files=(
        SentFile(id="file_1", name="a.png", media_type="image/png", data=PNG),
        SentFile(id="file_2", name="a.csv", media_type="text/csv", data=b"a,b"),
    ),
)
CONVERSATION: tuple[ModelMessage, ...] = (
    UserMessage(text="Where are A-1001 and A-1002?"),
    AssistantMessage(
        text="I look.",
        calls=(
            CallRequest(id="call_1", name="lookup_order", arguments='{"order_id": "A-1001"}'),
            CallRequest(id="call_2", name="lookup_order", arguments='{"order_id": "A-1002"}'),
        ),
    ),
    ToolResult(call_id="call_1", tool="lookup_order", content="shipped"),
    ToolResult(call_id="call_2", tool="lookup_order", content="no such order", is_error=True),
    PICTURE,
)


def ask(
    script: Any, *, key: str = "sk-secret-key", **parts: Any
) -> tuple[list[TextDelta | Reply | ModelFailed], bytes]:
    request = ModelRequest(**{"instructions": "Be kind.", "messages": CONVERSATION, "tools": (ORDER,), **parts})

    async def read(server: StrictModelServer) -> list[TextDelta | Reply | ModelFailed]:
        model = resolve_model(OpenAIChatModel("m", provider=OpenAIProvider(base_url=server.url, api_key=key)), {})
        found: list[TextDelta | Reply | ModelFailed] = []
        try:
            async for item in model.stream(request):
                found.append(item)  # noqa: PERF401 - what came before a failure counts
        except ModelFailed as error:
            found.append(error)
        finally:
            await model.aclose()  # type: ignore[attr-defined] - the port has none
        return found

    with StrictModelServer(script) as server:
        found = asyncio.run(read(server))
        assert server.refused == []
        [body] = server.bodies
    return found, body


def test_a_reply_is_streamed_with_parallel_calls_and_its_usage() -> None:
    found, _ = ask([reply("I ", "look.", call("lookup_order", order_id="A-1"), call("lookup_order", order_id="A-2"))])
    *deltas, last = found
    assert isinstance(last, Reply)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == last.text == "I look."
    assert [(one.name, json.loads(one.arguments)["order_id"]) for one in last.calls] == [
        ("lookup_order", "A-1"),
        ("lookup_order", "A-2"),
    ]
    assert last.usage == Usage(requests=1, input_tokens=10, output_tokens=5)
    assert last.kept is None


def test_a_whole_conversation_with_files_and_options_is_one_that_the_provider_takes() -> None:
    options = {"temperature": 0.2, "max_tokens": 50, "stop": "END", "openai_user": "u-1"}
    _, raw = ask(["Fine."], options=options)
    body = json.loads(raw)
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]
    assert [len(message.get("tool_calls", ())) for message in body["messages"]][2] == 2
    parts = body["messages"][-1]["content"]
    assert parts[0]["text"] == PICTURE.content
    assert parts[1]["image_url"]["url"].startswith("data:image/png;base64,")
    assert parts[2]["text"].endswith("a,b")
    assert (body["temperature"], body["max_completion_tokens"], body["stop"], body["user"]) == (0.2, 50, ["END"], "u-1")
    assert body["tools"][0]["function"]["parameters"] == ORDER.parameters


@pytest.mark.parametrize(
    ("script", "code", "retryable"),
    [
        ([broken("Hel", ending="cut")], "model_stream_cut", True),
        ([broken("Hel", ending="unfinished")], "model_stream_cut", True),
        ([broken("Hel", ending="error")], "model_unavailable", True),
        ([broken("Hel", ending="content_filter")], "model_content_filtered", False),
        ([""], "model_empty_reply", True),
        ([fail(401)], "model_key_refused", False),
        ([fail(404)], "model_unknown", False),
        ([fail(503)], "model_unavailable", True),
        ([fail(429, reason="insufficient_quota")], "model_quota_exhausted", False),
        ([fail(400, reason="context_length_exceeded")], "model_context_too_long", False),
        ([fail(400, reason="invalid_request_error")], "model_refused", False),
    ],
)
def test_a_failure_has_the_code_that_it_has_with_every_adapter(script: Any, code: str, retryable: bool) -> None:
    *_, error = ask(script)[0]
    assert isinstance(error, ModelFailed)
    assert (error.code, error.retryable) == (code, retryable)
    assert "sk-secret-key" not in str(error)


def test_it_is_asked_once_and_says_how_long_to_wait() -> None:
    [error], _ = ask([fail(429, retry_after=7)])
    assert isinstance(error, ModelFailed)
    assert (error.code, error.retryable, error.retry_after) == ("model_rate_limited", True, 7)


def test_a_reply_that_was_cut_at_its_length_says_so() -> None:
    *_, last = ask([broken("Hel", ending="length")])[0]
    assert isinstance(last, Reply)
    assert (last.text, last.cut) == ("Hel", True)


def test_anthropics_signed_reasoning_goes_through_a_tool_loop_under_our_own_call_ids() -> None:
    async def talk(server: StrictModelServer) -> str:
        provider = AnthropicProvider(base_url=server.anthropic_url, api_key="sk-secret-key")
        model = resolve_model(AnthropicModel("claude-sonnet-5-5", provider=provider), {})
        request = ModelRequest(instructions="Be kind.", messages=CONVERSATION[:1], tools=(ORDER,))
        [*_, first] = [item async for item in model.stream(request)]
        assert isinstance(first, Reply)
        asked = CallRequest(id="call_ours", name=first.calls[0].name, arguments=first.calls[0].arguments)
        message = AssistantMessage(text=first.text, calls=(asked,), kept=first.kept)
        result = ToolResult(call_id="call_ours", tool=asked.name, content="shipped")
        [*_, last] = [
            item async for item in model.stream(replace(request, messages=(*request.messages, message, result)))
        ]
        await model.aclose()  # type: ignore[attr-defined] - the port has none
        assert isinstance(last, Reply)
        return last.text

    script = {"*": [reply(thinking("Hm."), "I look.", call("lookup_order", order_id="A-1")), "Shipped."]}
    with StrictModelServer(script) as server:
        assert asyncio.run(talk(server)) == "Shipped."
        assert server.refused == []
        blocks = json.loads(server.bodies[1])["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use"]


def test_nobody_outside_of_this_machine_is_asked_where_a_test_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMOXI_LOOPBACK_MODELS", "1")
    model: Model[Any] = OpenAIChatModel("m", provider=OpenAIProvider(base_url="http://192.0.2.1/v1", api_key="k"))

    async def read() -> None:
        async for _ in resolve_model(model, {}).stream(ModelRequest(instructions="", messages=CONVERSATION)):
            raise AssertionError("it was asked")

    with pytest.raises(ModelFailed) as caught:
        asyncio.run(read())
    assert caught.value.code == "model_out_of_reach"


def test_its_models_for_tests_work_too() -> None:
    async def stream(messages: list[pai.ModelMessage], info: AgentInfo) -> Any:
        yield f"{len(messages)} messages, "
        yield f"{info.function_tools[0].name}"

    async def read() -> Reply:
        model = resolve_model(FunctionModel(stream_function=stream), {})
        found = [
            item async for item in model.stream(ModelRequest(instructions="", messages=CONVERSATION, tools=(ORDER,)))
        ]
        assert isinstance(found[-1], Reply)
        return found[-1]

    assert asyncio.run(read()).text == "3 messages, lookup_order"


def test_reasoning_and_signatures_come_back_with_our_ids_to_the_model_that_gave_them_and_to_no_other() -> None:
    response = pai.ModelResponse(
        parts=[
            pai.ThinkingPart(content="Hm.", signature="signed", provider_name="google"),
            pai.TextPart(content="I look."),
            pai.ToolCallPart(
                "lookup_order", {"order_id": "A-1"}, "theirs", provider_details={"thought_signature": "s"}
            ),
        ],
        provider_name="google",
    )
    kept = keep(response, "google:gemini")
    assert kept is not None
    assert "I look." not in kept
    assert "A-1" not in kept
    ours = CallRequest(id="call_9", name="lookup_order", arguments='{"order_id":"A-1"}')
    message = AssistantMessage(text="I look.", calls=(ours,), kept=kept)
    result = ToolResult(call_id="call_9", tool="lookup_order", content="shipped")
    request = ModelRequest(instructions="", messages=(CONVERSATION[0], message, result))

    _, told, _ = write_messages(request, "google:gemini")
    assert isinstance(told, pai.ModelResponse)
    thinking, text, asked = told.parts
    assert isinstance(thinking, pai.ThinkingPart)
    assert isinstance(text, pai.TextPart)
    assert isinstance(asked, pai.ToolCallPart)
    assert (thinking.content, thinking.signature, text.content) == ("Hm.", "signed", "I look.")
    assert (asked.tool_call_id, asked.args, asked.provider_details) == (
        "call_9",
        ours.arguments,
        {"thought_signature": "s"},
    )
    assert told.provider_name == "google"

    _, plain, _ = write_messages(request, "groq:other")
    assert [type(part) for part in plain.parts] == [pai.TextPart, pai.ToolCallPart]


@pytest.mark.parametrize(
    "kept", ["no JSON", "[]", '{"model":"pydantic-ai/m","response":{"parts":[],"kind":"response"}}']
)
def test_what_was_kept_and_does_not_fit_the_message_is_passed_over(kept: str) -> None:
    _, message, *results = CONVERSATION[:4]
    assert isinstance(message, AssistantMessage)
    message = AssistantMessage(text=message.text, calls=message.calls, kept=kept)
    told = write_messages(ModelRequest(instructions="", messages=(CONVERSATION[0], message, *results)), "m")
    assert [type(part) for part in told[1].parts] == [pai.TextPart, pai.ToolCallPart, pai.ToolCallPart]
