"""The OpenAI adapter through the real SDK against the strict model server: every ending of a stream, every refusal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from amoxi_py.domain.usage import Usage
from amoxi_py.errors import ModelFailed
from amoxi_py.models.failures import failure_in_stream, log_text, read_retry_after
from amoxi_py.models.openai import OpenAIModel
from amoxi_py.models.sse import read_sse
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
from amoxi_py.testing import Gate, StrictModelServer, broken, call, fail, raw_call, reply, tries

KEY = "sk-test-0123456789"
TOOL = ToolSpec(
    name="lookup_order",
    description="Look up an order. " * 100,
    parameters={
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "place": {"type": "array", "prefixItems": [{"type": "number"}]}},
    },
)
REQUEST = ModelRequest(instructions="Be kind.", messages=(UserMessage(text="Where is A-1001?"),), tools=(TOOL,))


def with_model(server: StrictModelServer, use: Callable[[OpenAIModel], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        model = OpenAIModel("gpt-5-mini", KEY, server.url, **options)
        try:
            return await use(model)
        finally:
            await model.aclose()

    return asyncio.run(run())


async def collect(model: OpenAIModel, request: ModelRequest = REQUEST) -> list[TextDelta | Reply | ModelFailed]:
    items: list[TextDelta | Reply | ModelFailed] = []
    try:
        async for item in model.stream(request):
            items.append(item)  # noqa: PERF401 - what came before a failure counts
    except ModelFailed as failed:
        items.append(failed)
    return items


def ask(item: Any, request: ModelRequest = REQUEST, **options: Any) -> list[TextDelta | Reply | ModelFailed]:
    with StrictModelServer([item]) as server:
        items = with_model(server, lambda model: collect(model, request), **options)
        assert server.refused == []
    return items  # type: ignore[no-any-return] # what `with_model` returns is what it was given


def failure(item: Any, **options: Any) -> ModelFailed:
    last = ask(item, **options)[-1]
    assert isinstance(last, ModelFailed), last
    return last


def test_text_comes_in_pieces_and_then_whole_with_usage() -> None:
    used = Usage(requests=1, input_tokens=120, output_tokens=7)
    assert ask(reply("Hel", "lo \u2028 世界", usage=used)) == [
        TextDelta(text="Hel"),
        TextDelta(text="lo \u2028 世界"),
        Reply(text="Hello \u2028 世界", usage=used),
    ]


def test_parallel_calls_are_put_together_by_their_index_beside_text() -> None:
    answer = ask(["I look.", call("lookup_order", order_id="A-1001"), call("lookup_order", order_id="A-1002")])[-1]
    assert isinstance(answer, Reply)
    assert answer.text == "I look."
    assert answer.calls == (
        CallRequest(id="call_1", name="lookup_order", arguments='{"order_id": "A-1001"}'),
        CallRequest(id="call_2", name="lookup_order", arguments='{"order_id": "A-1002"}'),
    )


def test_calls_that_share_an_id_stay_two_calls() -> None:
    answer = ask([raw_call("lookup_order", '{"order_id": "A"}', "x"), raw_call("lookup_order", "{}", "x")])[-1]
    assert isinstance(answer, Reply)
    assert [item.arguments for item in answer.calls] == ['{"order_id": "A"}', "{}"]


@pytest.mark.parametrize("arguments", ["", "null", "[]", '"{}"', '{"a": 1,}', "{}{}", '{"order_id": "A-'])
def test_bad_arguments_reach_the_engine_as_the_model_wrote_them(arguments: str) -> None:
    answer = ask(raw_call("lookup_order", arguments))[-1]
    assert isinstance(answer, Reply)
    assert answer.calls[0].arguments == arguments


def test_a_whole_history_is_sent_so_that_the_strict_server_takes_it() -> None:
    calls = (CallRequest(id="call_a", name="lookup_order", arguments='{"order_id": "A-1001"}'),)
    history = (
        UserMessage(text="Where?"),
        AssistantMessage(text="", calls=calls),
        ToolResult(call_id="call_a", tool="lookup_order", content="shipped"),
        AssistantMessage(text="Shipped."),
        UserMessage(text="Thanks"),
    )
    request = ModelRequest(instructions="Be kind.", messages=history, tools=(TOOL,))
    with StrictModelServer(["Welcome."]) as server:
        with_model(server, lambda model: collect(model, request))
        assert server.refused == []
        assert server.requests[0].messages == history
        assert server.requests[0].instructions == "Be kind."


def test_options_are_sent_under_the_providers_names_and_the_requests_own_win() -> None:
    request = ModelRequest(instructions="", messages=REQUEST.messages, options={"temperature": 0.5, "effort": "low"})
    with StrictModelServer(["Hi."]) as server:
        with_model(server, lambda model: collect(model, request), options={"temperature": 0.1, "max_tokens": 9})
        assert server.refused == []
        body = server.bodies[0]
    assert b'"temperature":0.5' in body
    assert b'"reasoning_effort":"low"' in body
    assert b'"max_tokens":9' in body


def test_an_option_that_only_another_server_knows_is_sent_as_it_is() -> None:
    with StrictModelServer(["Hi."]) as server:
        with_model(server, collect, options={"top_k": 5})
        assert server.refused == ["unrecognized request argument: 'top_k'"]


def test_a_key_with_a_line_end_works() -> None:
    async def use(url: str) -> None:
        model = OpenAIModel("m", f" {KEY}\n", url)
        assert isinstance((await collect(model))[-1], Reply)
        await model.aclose()

    with StrictModelServer(["Hi."]) as server:
        asyncio.run(use(server.url))
        assert server.keys == [KEY]


@pytest.mark.parametrize(
    ("item", "code", "retryable"),
    [
        (broken("half a se"), "model_stream_cut", True),
        (broken("half a se", ending="unfinished"), "model_stream_cut", True),
        (broken(call("lookup_order", order_id="A-1001")), "model_stream_cut", True),
        (broken(call("lookup_order", order_id="A-1001"), ending="unfinished"), "model_stream_cut", True),
        (broken(ending="unfinished"), "model_stream_cut", True),
        (broken(), "model_stream_cut", True),
        (broken("half", ending="error"), "model_unavailable", True),
        (broken("half", ending="content_filter"), "model_content_filtered", False),
        (reply(), "model_empty_reply", True),
        (reply(" \n"), "model_empty_reply", True),
        (fail(400), "model_refused", False),
        (fail(401), "model_key_refused", False),
        (fail(402), "model_quota_exhausted", False),
        (fail(403), "model_key_refused", False),
        (fail(404), "model_unknown", False),
        (fail(408), "model_timeout", True),
        (fail(422), "model_refused", False),
        (fail(429), "model_rate_limited", True),
        (fail(429, reason="insufficient_quota"), "model_quota_exhausted", False),
        (fail(400, reason="context_length_exceeded"), "model_context_too_long", False),
        (fail(500), "model_unavailable", True),
        (fail(503), "model_unavailable", True),
        (fail(529), "model_unavailable", True),
    ],
)
def test_every_failure_has_a_stable_code_and_no_reply_comes_of_it(item: Any, code: str, retryable: bool) -> None:
    items = ask(item)
    last = items[-1]
    assert isinstance(last, ModelFailed), items
    assert (last.code, last.retryable) == (code, retryable)
    assert not any(isinstance(part, Reply) for part in items)


def test_calls_that_a_server_counts_all_as_number_0_stay_apart() -> None:
    with StrictModelServer([[call("a", x=1), call("b", y=2)]], one_index=True) as server:
        answer = with_model(server, collect)[-1]
    assert [(item.name, item.arguments) for item in answer.calls] == [("a", '{"x": 1}'), ("b", '{"y": 2}')]


@pytest.mark.parametrize("ending", ["no_done", "late_cut"])
def test_a_stream_that_gave_its_reason_to_end_is_whole_without_the_last_marker(ending: Any) -> None:
    answer = ask(broken("All of it.", ending=ending))[-1]
    assert isinstance(answer, Reply)
    assert answer.text == "All of it."


def test_a_reply_at_the_length_limit_is_marked_cut() -> None:
    answer = ask(broken(raw_call("lookup_order", '{"order_id": "A-'), ending="length"))[-1]
    assert isinstance(answer, Reply)
    assert answer.cut


def test_the_wait_that_a_provider_asks_for_is_passed_on() -> None:
    assert failure(fail(429, retry_after=2.5)).retry_after == 2.5
    assert failure(fail(503, retry_after=30)).retry_after == 30
    assert failure(fail(400, retry_after=30)).retry_after is None


def test_a_wait_may_be_a_date_or_in_milliseconds_and_nonsense_is_none() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (read_retry_after({"retry-after": later}) or 0) <= 100
    assert read_retry_after({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    assert read_retry_after({"retry-after": "soon"}) is None
    assert read_retry_after({}) is None


def test_an_error_in_the_stream_is_classed_by_what_it_says() -> None:
    assert failure_in_stream({"message": "slow down", "code": "rate_limit_exceeded"}).code == "model_rate_limited"
    assert failure_in_stream({"message": "too long", "code": "context_length_exceeded"}).retryable is False
    assert failure_in_stream({"message": "bad gateway", "code": 502}).code == "model_unavailable"
    assert failure_in_stream("what?").code == "model_unavailable"


def test_no_key_is_in_the_text_for_the_log() -> None:
    failed = failure(fail(401, text=f"Incorrect API key provided: {KEY}, or sk-proj-********abcd.\n" + "x" * 9000))
    assert KEY not in str(failed)
    assert "abcd" not in str(failed)
    assert len(str(failed)) < 600
    assert "\n" not in str(failed)


def test_a_key_that_looks_like_none_is_not_in_the_text_for_the_log() -> None:
    assert "0a1b2c3d" not in log_text("the token 0a1b2c3d is wrong", "0a1b2c3d")


def test_a_server_that_does_not_stream_is_understood() -> None:
    with StrictModelServer([["Hello.", call("lookup_order")]], streams=False) as server:
        items = with_model(server, collect)
    assert items[0] == TextDelta(text="Hello.")
    assert items[1].calls[0].arguments == "{}"
    assert items[1].usage.output_tokens == 5


def test_a_server_that_does_not_listen_is_unavailable() -> None:
    with StrictModelServer(["Hi."]) as server:
        pass
    failed = with_model(server, collect)[-1]
    assert (failed.code, failed.retryable) == ("model_unavailable", True)


def test_silence_ends_in_a_timeout() -> None:
    gate = Gate()
    with StrictModelServer([reply("one", gate, "two")]) as server:
        items = with_model(server, collect, timeout=0.3)
        gate.open()
    assert (items[-1].code, items[-1].retryable) == ("model_timeout", True)


def test_closing_the_iterator_ends_the_request_at_the_provider() -> None:
    async def leave(model: OpenAIModel) -> None:
        stream = model.stream(REQUEST)
        assert await anext(stream) == TextDelta(text="one")
        assert await gate.reached()
        await stream.aclose()  # type: ignore[attr-defined] # the port says iterator; it is a generator
        await until(lambda: server.left == 1)

    gate = Gate()
    with StrictModelServer([reply("one", gate, "two")]) as server:
        with_model(server, leave)


def test_a_cancelled_task_ends_the_request_at_the_provider() -> None:
    async def leave(model: OpenAIModel) -> None:
        task = asyncio.create_task(collect(model))
        assert await gate.reached()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.left == 1)

    gate = Gate()
    with StrictModelServer([reply(gate, "two")]) as server:
        with_model(server, leave)


def test_the_sdk_does_not_retry_by_itself() -> None:
    with StrictModelServer([tries(fail(500), "Hi.")]) as server:
        first, second = with_model(server, lambda model: both(model))
        assert len(server.bodies) == 2
    assert isinstance(first[-1], ModelFailed)
    assert isinstance(second[-1], Reply)


def test_a_value_that_is_no_json_fails_as_a_refused_request_and_is_not_sent() -> None:
    with StrictModelServer(["Hi."]) as server:
        failed = with_model(server, collect, options={"metadata": {"x": object()}})[-1]
        assert server.bodies == []
    assert (failed.code, failed.retryable) == ("model_refused", False)


def test_events_are_read_across_chunks_with_comments_and_other_line_ends() -> None:
    async def chunks() -> Any:
        for chunk in (b": hi\r\n\r\nda", b'ta: {"a"', b":1}\r\n\r", b"\nevent: x\ndata:b\ndata: c\n\ndata: [DONE]"):
            yield chunk

    async def read() -> list[bytes]:
        return [data async for data in read_sse(chunks())]

    assert asyncio.run(read()) == [b'{"a":1}', b"b\nc", b"[DONE]"]


async def both(model: OpenAIModel) -> Any:
    return await collect(model), await collect(model)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.01)
