"""Both adapters through the real SDKs against the strict model server: every ending of a stream, every refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ConfigError
from amoxi_py.models.anthropic import AnthropicModel
from amoxi_py.models.openai import OpenAIModel
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
from amoxi_py.testing import Gate, StrictModelServer, broken, call, fail, raw_call, reply, slowly

TOOL = ToolSpec(name="t", description="Do it. " * 300, parameters={"type": "object", "properties": {}})
CALLS = (CallRequest(id="call_a", name="t", arguments='{"x":1}'), CallRequest(id="call_b", name="t", arguments="{}"))
HISTORY = (
    UserMessage(text="Where?"),
    AssistantMessage(text="I look.", calls=CALLS),
    ToolResult(call_id="call_a", tool="t", content="shipped"),
    ToolResult(call_id="call_b", tool="t", content="It failed.", is_error=True),
    UserMessage(text="Go on", notes=("[file file_1: 'a.bin', application/x, 3 bytes]",)),
    AssistantMessage(text="Shipped."),
    UserMessage(text="Thanks — 谢谢"),
)


def test_text_comes_in_pieces_and_then_whole_with_usage(stage: Any, wire: str) -> None:
    used = Usage(requests=1, input_tokens=120, output_tokens=7, cached_tokens=100)
    assert stage.ask(wire, reply("Hel", "lo \u2028 世界", usage=used)) == [
        TextDelta(text="Hel"),
        TextDelta(text="lo \u2028 世界"),
        Reply(text="Hello \u2028 世界", usage=used),
    ]


def test_words_that_come_slowly_come_one_by_one(stage: Any, wire: str) -> None:
    texts = [item.text for item in stage.ask(wire, slowly("one two", 0.001)) if isinstance(item, TextDelta)]
    assert texts == ["one ", "two"]


def test_parallel_calls_are_put_together_beside_text(stage: Any, wire: str) -> None:
    answer = stage.reply(wire, ["I look.", call("lookup_order", order_id="A-1001"), call("t", order_id="A-1002")])
    assert answer.text == "I look."
    assert [(item.name, item.arguments) for item in answer.calls] == [
        ("lookup_order", '{"order_id": "A-1001"}'),
        ("t", '{"order_id": "A-1002"}'),
    ]
    assert len({item.id for item in answer.calls}) == 2


def test_calls_that_share_an_id_stay_two_calls(stage: Any, wire: str) -> None:
    answer = stage.reply(wire, [raw_call("t", '{"order_id": "A"}', "x"), raw_call("t", "{ }", "x")])
    assert [item.arguments for item in answer.calls] == ['{"order_id": "A"}', "{ }"]


@pytest.mark.parametrize("arguments", ["null", "[]", '"{}"', '{"a": 1,}', "{}{}", '{"order_id": "A-'])
def test_bad_arguments_reach_the_engine_as_the_model_wrote_them(stage: Any, wire: str, arguments: str) -> None:
    assert stage.reply(wire, raw_call("t", arguments)).calls[0].arguments == arguments


def test_a_call_without_arguments_has_none_or_an_empty_object(stage: Any, wire: str) -> None:
    assert stage.reply(wire, raw_call("t", "")).calls[0].arguments in ("", "{}")


def test_a_whole_history_is_sent_so_that_the_strict_server_takes_it(stage: Any, wire: str) -> None:
    request = ModelRequest(instructions="Be kind.", messages=HISTORY, tools=(TOOL,))
    stage.reply(wire, "Welcome.", request)
    asked = stage.server.requests[-1]
    assert asked.instructions == "Be kind."
    told = [message.content for message in asked.messages if not isinstance(message, AssistantMessage)]
    assert told == [message.content for message in HISTORY if not isinstance(message, AssistantMessage)]
    said = [(message.text, len(message.calls)) for message in asked.messages if isinstance(message, AssistantMessage)]
    assert said == [("I look.", 2), ("Shipped.", 0)]


ENDINGS: dict[str, tuple[Any, str, bool]] = {
    "cut in a text": (broken("half a se"), "model_stream_cut", True),
    "cut in a call": (broken(call("t", x=1)), "model_stream_cut", True),
    "cut at once": (broken(), "model_stream_cut", True),
    "unfinished text": (broken("half a se", ending="unfinished"), "model_stream_cut", True),
    "unfinished call": (broken(call("t", x=1), ending="unfinished"), "model_stream_cut", True),
    "unfinished at once": (broken(ending="unfinished"), "model_stream_cut", True),
    "a piece that is no JSON": (broken("half", ending="bad_json"), "model_stream_cut", True),
    "an error in a 200": (broken("half", ending="error"), "model_unavailable", True),
    "a page in a 200": (broken(ending="html"), "model_unavailable", True),
    "nothing in a 200": (broken(ending="empty_body"), "model_stream_cut", True),
    "filtered": (broken("half", ending="content_filter"), "model_content_filtered", False),
    "empty": (reply(), "model_empty_reply", True),
    "blank": (reply(" \n"), "model_empty_reply", True),
    "400": (fail(400), "model_refused", False),
    "401": (fail(401), "model_key_refused", False),
    "402": (fail(402), "model_quota_exhausted", False),
    "403": (fail(403), "model_key_refused", False),
    "404": (fail(404), "model_unknown", False),
    "408": (fail(408), "model_timeout", True),
    "413": (fail(413), "model_context_too_long", False),
    "422": (fail(422), "model_refused", False),
    "429": (fail(429), "model_rate_limited", True),
    "429 without money": (fail(429, reason="insufficient_quota"), "model_quota_exhausted", False),
    "a long context": (fail(400, reason="context_length_exceeded"), "model_context_too_long", False),
    "500": (fail(500), "model_unavailable", True),
    "503": (fail(503), "model_unavailable", True),
    "529": (fail(529), "model_unavailable", True),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_failure_has_a_stable_code_and_no_reply_comes_of_it(stage: Any, wire: str, name: str) -> None:
    item, code, retryable = ENDINGS[name]
    failed = stage.failure(wire, item)
    assert (failed.code, failed.retryable) == (code, retryable)


@pytest.mark.parametrize("ending", ["no_done", "late_cut", "wrong_type"])
def test_a_stream_that_gave_its_reason_to_end_is_whole(stage: Any, wire: str, ending: Any) -> None:
    assert stage.reply(wire, broken("All of it.", ending=ending)).text == "All of it."


def test_a_reply_at_the_length_limit_is_marked_cut(stage: Any, wire: str) -> None:
    assert stage.reply(wire, broken(raw_call("t", '{"order_id": "A-'), ending="length")).cut


def test_the_wait_that_a_provider_asks_for_is_passed_on(stage: Any, wire: str) -> None:
    assert stage.failure(wire, fail(429, retry_after=2.5)).retry_after == 2.5
    assert stage.failure(wire, fail(529, retry_after=30)).retry_after == 30
    assert stage.failure(wire, fail(400, retry_after=30)).retry_after is None


def test_no_key_is_in_the_text_for_the_log(stage: Any, wire: str) -> None:
    key = "sk-test-0123456789"
    failed = stage.failure(wire, fail(401, text=f"Incorrect key: {key}, or sk-proj-********abcd.\n" + "x" * 9000))
    assert key not in str(failed)
    assert "abcd" not in str(failed)
    assert len(str(failed)) < 600
    assert "\n" not in str(failed)


def test_a_server_that_does_not_stream_is_understood(stage: Any, wire: str) -> None:
    stage.server.streams = False
    items = stage.ask(wire, ["Hello.", call("t", x=[1])])
    assert items[0] == TextDelta(text="Hello.")
    assert items[1].calls[0].arguments.replace(" ", "") == '{"x":[1]}'
    assert items[1].usage.output_tokens == 5
    assert stage.failure(wire, broken("x", ending="bad_json")).code == "model_unavailable"
    assert stage.failure(wire, broken("x", ending="error")).code == "model_unavailable"
    assert stage.reply(wire, broken("x", ending="wrong_type")).text == "x"


@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel])
def test_a_key_or_an_address_that_can_be_none_is_refused_at_the_start(kind: Any) -> None:
    for key in ("", " \n", "sk-ä", "sk-a\nb"):
        with pytest.raises(ConfigError, match="the key of the model provider"):
            kind("m", key)
    with pytest.raises(ConfigError, match="does not begin with http"):
        kind("m", "sk-1", "localhost:1")
    for address in ("http://", "http://[::1/v1", "http://here:none/v1", "http://here:99999/v1", "http://here:0"):
        with pytest.raises(ConfigError, match="needs a host, and a port"):
            kind("m", "sk-1", address)


def test_a_key_with_a_line_end_works(stage: Any, wire: str) -> None:
    stage.reply(wire, "Hi.", model=stage.model(wire, key=" sk-other\n"))
    assert stage.server.keys[-1] == "sk-other"


def test_a_server_that_does_not_listen_is_unavailable(stage: Any, wire: str) -> None:
    with StrictModelServer(["Hi."]) as server:
        pass
    url = server.url if wire == "openai" else server.anthropic_url
    failed = stage.failure(wire, "Hi.", model=stage.model(wire, url=url))
    assert (failed.code, failed.retryable) == ("model_unavailable", True)


def test_silence_ends_in_a_timeout(stage: Any, wire: str) -> None:
    gate = Gate()
    failed = stage.failure(wire, reply("one", gate, "two"), model=stage.model(wire, timeout=0.2))
    gate.open()
    assert (failed.code, failed.retryable) == ("model_timeout", True)


def test_closing_the_iterator_ends_the_request_at_the_provider(stage: Any, wire: str) -> None:
    gate, model, left = Gate(), stage.model(wire), stage.server.left

    async def leave() -> None:
        stream = model.stream(REQUEST)
        assert await anext(stream) == TextDelta(text="one")
        assert await gate.reached()
        await stream.aclose()
        await until(lambda: stage.server.left == left + 1)

    stage.playing[:] = [reply("one", gate, "two")]
    stage.run(leave())


def test_a_cancelled_task_ends_the_request_at_the_provider(stage: Any, wire: str) -> None:
    gate, model, left = Gate(), stage.model(wire), stage.server.left

    async def ask() -> None:
        async for _ in model.stream(REQUEST):
            pass

    async def leave() -> None:
        task = asyncio.create_task(ask())
        assert await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: stage.server.left == left + 1)

    stage.playing[:] = [reply(gate, "two")]
    stage.run(leave())


def test_the_sdk_does_not_retry_by_itself(stage: Any, wire: str) -> None:
    before = len(stage.server.bodies)
    stage.failure(wire, fail(500))
    assert len(stage.server.bodies) == before + 1


def test_a_model_works_in_one_event_loop_after_another(stage: Any, wire: str) -> None:
    model = stage.model(wire)
    stage.playing[:] = ["Hi."]

    async def ask() -> str:
        items = [item async for item in model.stream(REQUEST)]
        await model.aclose()
        return str(items[-1].text)

    assert [asyncio.run(ask()), asyncio.run(ask())] == ["Hi.", "Hi."]


def test_a_value_that_is_no_json_fails_as_a_refused_request_and_is_not_sent(stage: Any, wire: str) -> None:
    before = len(stage.server.bodies)
    failed = stage.failure(wire, "Hi.", model=stage.model(wire, options={"metadata": {"x": object()}}))
    assert (failed.code, failed.retryable) == ("model_refused", False)
    assert len(stage.server.bodies) == before


def test_headers_of_a_request_can_be_given(stage: Any, wire: str) -> None:
    model = stage.model(wire, options={"extra_headers": {"authorization": "Bearer sk-in-a-header"}})
    stage.reply(wire, "Hi.", model=model)
    assert stage.server.keys[-1] == "sk-in-a-header"
    assert "extra_headers" not in stage.body


def test_what_the_provider_takes_as_headers_is_sent_as_such(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wire: Any = stage.server.wires["/v1/messages"]
    read = wire.read
    sent: dict[str, str] = {}

    def reading(body: bytes, headers: dict[str, str]) -> Any:
        sent.update(headers)
        return read(body, headers)

    monkeypatch.setattr(wire, "read", reading)
    options = {"workspace_id": "wrkspc_1", "user_profile_id": "uprof_1"}
    stage.reply("anthropic", "Hi.", model=stage.model("anthropic", options=options))
    assert (sent["anthropic-workspace-id"], sent["anthropic-user-profile-id"]) == ("wrkspc_1", "uprof_1")
    assert not stage.body.keys() & options.keys()


REQUEST = ModelRequest(instructions="Be kind.", messages=(UserMessage(text="Where?"),), tools=(TOOL,))


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.01)
