"""Servers that speak OpenAI's API each in their own way: what each is sent, and what is learned from a refusal."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from amoxi_py.models.openai_body import LONGEST_DESCRIPTION, write_messages
from amoxi_py.models.openai_servers import OTHER, SERVERS, server_at
from amoxi_py.models.options import LONGEST_REQUEST_S
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelRequest,
    ToolResult,
    ToolSpec,
    UserMessage,
)
from amoxi_py.testing import StrictModelServer, call, fail, thinking

TOOL = ToolSpec(name="t", description="Do it.", parameters={"type": "object", "properties": {}})
ASK = ModelRequest(instructions="Be kind.", messages=(UserMessage(text="Where?"),), tools=(TOOL,))
CALLS = tuple(CallRequest(id=f"call_0123456789abcdefghijkl_{n}", name="t", arguments="{}") for n in (0, 1))
RESULTS = tuple(ToolResult(call_id=one.id, tool="t", content="ok") for one in CALLS)


def after_a_loop(answer: Any, *then: str) -> ModelRequest:
    """Return the request that follows on a reply with calls: with their results, and what a person said then."""
    said = AssistantMessage(text=answer.text, calls=CALLS[: len(answer.calls)], kept=answer.kept)
    results = RESULTS[: len(answer.calls)]
    people = (UserMessage(text=text) for text in then)
    return msgspec.structs.replace(ASK, messages=(*ASK.messages, said, *results, *people))


def test_the_rules_of_a_server_are_told_by_its_host_or_by_the_option() -> None:
    hosts = {
        "https://api.openai.com/v1": "openai",
        "https://eu.api.openai.com/v1": "openai",
        "https://shop.openai.azure.com/openai/v1": "openai",
        "https://api.mistral.ai/v1": "mistral",
        "https://generativelanguage.googleapis.com/v1beta/openai": "gemini",
        "https://openrouter.ai/api/v1": "openrouter",
        "https://notopenai.com/v1": "other",
        "http://localhost:11434/v1": "other",
    }
    assert {address: server_at(address) for address in hosts} == {
        address: SERVERS[name] for address, name in hosts.items()
    }
    assert server_at("http://localhost:8000/v1", "mistral") is SERVERS["mistral"]
    assert [name for name, server in SERVERS.items() if "pdf" in server.forms] == ["openai", "openrouter"]
    assert [
        server_at(f"https://{host}/v1").limit for host in ("eu.api.openai.com", "r.openai.azure.com", "groq.com")
    ] == [
        "max_completion_tokens",
        "max_completion_tokens",
        "max_tokens",
    ]
    assert server_at("https://api.groq.com/openai/v1") is OTHER


def test_mistral_gets_short_ids_that_stay_and_a_reply_between_results_and_a_person(stage: Any) -> None:
    stage.server.openai.like = "mistral"
    model = stage.model("openai", "mistral-large", options={"server": "mistral", "max_tokens": 5})
    answer = stage.reply("openai", [thinking("Hm."), call("t"), call("t")], ASK, model=model)
    assert answer.usage.output_tokens > 0
    stage.reply("openai", "Stopped.", after_a_loop(answer, "Stop that", "Do this"), model=model)
    first = stage.body
    assert [message["role"] for message in first["messages"]] == [
        *("system", "user", "assistant", "tool", "tool", "assistant", "user", "user"),
    ]
    assert "stream_options" not in first
    assert "reasoning_content" not in first["messages"][2]
    ids = [one["id"] for one in first["messages"][2]["tool_calls"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", one) for one in ids)
    assert ids == [message["tool_call_id"] for message in first["messages"] if message["role"] == "tool"]
    assert len(set(ids)) == 2
    stage.reply("openai", "Stopped.", after_a_loop(answer, "Again"), model=model)
    assert [one["id"] for one in stage.body["messages"][2]["tool_calls"]] == ids
    assert stage.server.refused == []


def test_the_strict_server_refuses_what_mistral_does() -> None:
    told: list[str] = []
    with StrictModelServer(["Hi."], like="mistral", on_refused=told.append) as server:
        assert server.openai.read(b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}', {})[1] == []
        body: dict[str, Any] = {
            "model": "m",
            "messages": write_messages(after_a_loop(AssistantMessage(text="", calls=CALLS), "Stop")),
            "stream_options": {},
        }
        _, problems = server.openai.read(msgspec.json.encode(body), {})
    assert "Unexpected role 'user' after role 'tool'" in problems
    assert any("'stream_options'" in problem for problem in problems)
    assert sum("with a length of 9" in problem for problem in problems) == 4
    with pytest.raises(ValueError, match="may be like one of"):
        StrictModelServer([], like="nobody")


def test_tools_that_are_refused_with_an_effort_are_asked_without_and_it_is_remembered(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stage.server.openai.like = "openai"
    model = stage.model("openai", "gpt-5.6", options={"effort": "low"})
    before = len(stage.server.bodies)
    assert stage.reply("openai", "Hi.", ASK, model=model).text == "Hi."
    assert stage.body["reasoning_effort"] == "none"
    stage.reply("openai", "Hi.", ASK, model=model)
    assert len(stage.server.bodies) == before + 3
    assert caplog.text.count("takes tools at this API only without reasoning") == 1
    stage.reply("openai", "Hi.", msgspec.structs.replace(ASK, tools=()), model=model)
    assert stage.body["reasoning_effort"] == "low"
    by_default = stage.model("openai", "gpt-5.6")
    stage.reply("openai", "Hi.", ASK, model=by_default)
    assert stage.body["reasoning_effort"] == "none"
    stage.reply("openai", "Hi.", ASK, model=stage.model("openai", "gpt-5-mini", options={"effort": "low"}))
    assert stage.body["reasoning_effort"] == "low"
    assert all("Function tools with reasoning_effort" in text for text in stage.server.refused)
    stage.server.refused.clear()


def test_sampling_that_a_model_refuses_is_left_out_with_one_warning_and_the_limit_gets_its_other_name(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stage.server.openai.like = "openai"
    options = {"temperature": 0.2, "top_p": 0.9, "max_tokens": 50}
    model = stage.model("openai", "gpt-5-mini", options=options)
    for _ in range(2):
        stage.reply("openai", "Hi.", ASK, model=model)
        assert stage.body.keys() & {"temperature", "top_p", "max_tokens", "max_completion_tokens"} == {
            "max_completion_tokens"
        }
    for name in ("temperature", "top_p", "max_tokens"):
        assert caplog.text.count(f"takes no {name!r}") == 1
    stage.reply("openai", "Hi.", ASK, model=stage.model("openai", "gpt-4o", options={**options, "effort": "low"}))
    assert (stage.body["temperature"], stage.body["top_p"]) == (0.2, 0.9)
    assert "reasoning_effort" not in stage.body
    stage.server.refused.clear()


def test_a_server_that_refuses_whatever_is_left_out_is_asked_a_bounded_number_of_times(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    text = "tools with reasoning_effort, temperature and max_tokens are not supported; nor max_completion_tokens"
    model = stage.model("openai", options={"temperature": 0.2, "effort": "low", "max_tokens": 5})
    for _ in range(2):
        before = len(stage.server.bodies)
        assert stage.failure("openai", fail(400, text=text), ASK, model=model).code == "model_refused"
        assert len(stage.server.bodies) == before + 5
    assert caplog.text.count("takes no 'temperature'") == 1
    stage.reply("openai", "Hi.", ASK, model=model)
    assert (stage.body["temperature"], stage.body["reasoning_effort"], stage.body["max_tokens"]) == (0.2, "low", 5)


def test_a_refusal_of_something_else_is_told_and_nothing_is_left_out(stage: Any) -> None:
    model = stage.model("openai", options={"temperature": 0.2, "effort": "ultra", "max_tokens": 5})
    for text in (
        "'temperature' must be below 2",
        "max_tokens is too large: this model supports at most 16384 completion tokens",
        "Unsupported value: 'reasoning_effort' does not support 'ultra' with this model. Supported values are: 'low'",
        "this model does not support tools",
    ):
        before = len(stage.server.bodies)
        failed = stage.failure("openai", fail(400, text=text), ASK, model=model)
        assert failed.code == "model_refused"
        assert len(stage.server.bodies) == before + 1


@pytest.mark.parametrize("like", ["groq", "openai"])
def test_reasoning_that_a_server_refuses_is_given_back_no_more(
    stage: Any, caplog: pytest.LogCaptureFixture, like: str
) -> None:
    model = stage.model("openai")
    answer = stage.reply("openai", [thinking("Hm."), call("t")], ASK, model=model)
    stage.server.openai.like = like
    before = len(stage.server.bodies)
    for _ in range(2):
        assert stage.reply("openai", "Done.", after_a_loop(answer), model=model).text == "Done."
        assert "reasoning_content" not in stage.body["messages"][2]
    assert len(stage.server.bodies) == before + 3
    assert caplog.text.count("does not take its own reasoning back") == 1
    stage.server.refused.clear()


def test_signatures_of_geminis_calls_are_given_back_and_calls_of_others_are_marked(stage: Any) -> None:
    stage.server.openai.like = "gemini"
    model = stage.model("openai", "gemini-3", options={"server": "gemini"})
    answer = stage.reply("openai", ["I look.", call("t"), call("t")], ASK, model=model)
    stage.reply("openai", "Done.", after_a_loop(answer), model=model)
    signed = [one.get("extra_content") for one in stage.body["messages"][2]["tool_calls"]]
    assert signed == [{"google": {"thought_signature": "signed-t"}}, None]
    of_another = msgspec.structs.replace(answer, kept='{"provider":"anthropic","model":"claude"}')
    stage.reply("openai", "Done.", after_a_loop(of_another), model=model)
    assert "skip" in stage.body["messages"][2]["tool_calls"][0]["extra_content"]["google"]["thought_signature"]


def test_a_refusal_is_read_wherever_a_server_puts_it(stage: Any) -> None:
    class Detailed(type(stage.server.openai)):  # type: ignore[misc] # the class of a fixture
        def failure(self, failure: Any) -> Any:
            return {"detail": [{"loc": ["body", "top_k"], "msg": f"{failure.text}: Extra inputs are not permitted"}]}

    wires = stage.server.wires
    stage.server.wires = {**wires, "/v1/chat/completions": Detailed()}
    try:
        model = stage.model("openai", options={"top_k": 5})
        assert stage.reply("openai", "Hi.", ASK, model=model).text == "Hi."
        assert "top_k" not in stage.body
    finally:
        stage.server.wires = wires
        stage.server.refused.clear()


def test_a_description_that_is_cut_is_told_in_the_log(stage: Any, caplog: pytest.LogCaptureFixture) -> None:
    long = msgspec.structs.replace(TOOL, description="x" * (LONGEST_DESCRIPTION + 1))
    model = stage.model("openai")
    for _ in range(2):
        stage.reply("openai", "Hi.", msgspec.structs.replace(ASK, tools=(long,)), model=model)
    assert caplog.text.count("the description of the tool 't' has 1025 characters") == 1


def test_a_request_may_take_an_hour() -> None:
    assert LONGEST_REQUEST_S == 3600
