"""The Messages API's own rules: every one of them can fail, and a good body passes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from amoxi_py.models.anthropic_body import AnthropicPrompt, write_tools
from amoxi_py.models.anthropic_reading import LARGEST_PICTURE, SAMPLING_VERSION, read_anthropic_body
from amoxi_py.models.anthropic_signatures import sign
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelRequest, ToolResult, ToolSpec, UserMessage

HI: Any = {"role": "user", "content": "Hi"}
TOOL: Any = {"name": "t", "input_schema": {"type": "object", "properties": {}}}
USES: Any = {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "t", "input": {}}]}
RESULT: Any = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
MARK = {"type": "ephemeral"}
PNG = b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()


def a_body(**changes: Any) -> bytes:
    body = {"model": "m", "max_tokens": 10, "messages": [HI], **changes}
    return json.dumps({key: value for key, value in body.items() if value is not ...}).encode()


def saying(*blocks: Any) -> bytes:
    return a_body(messages=[{"role": "user", "content": list(blocks)}], tools=[TOOL])


def answering(*blocks: Any, **changes: Any) -> bytes:
    return a_body(messages=[HI, {"role": "assistant", "content": list(blocks)}, HI], **changes)


def text(words: str = "Hi", **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def picture(data: str, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (b'{"model": "\xff"}', "UTF-8"),
    "not JSON": (b"{", "not strict JSON"),
    "no object": (b"[]", "not a JSON object"),
    "NUL": (a_body(system="\0"), "NUL"),
    "no model": (a_body(model=...), "model: "),
    "no limit of tokens": (a_body(max_tokens=...), "max_tokens: "),
    "a limit of nothing": (a_body(max_tokens=0), "max_tokens: "),
    "no messages": (a_body(messages=[]), "at least one message"),
    "an unknown field": (a_body(effort="low"), "effort: Extra inputs are not permitted"),
    "sampling": (a_body(temperature=1.0), "temperature: Extra inputs are not permitted"),
    "a blank stop": (a_body(stop_sequences=[" "]), "stop_sequences"),
    "an unknown effort": (a_body(output_config={"effort": "minimal"}), "output_config.effort"),
    "an unknown setting": (a_body(output_config={"x": 1}), "output_config"),
    "a choice without tools": (a_body(tool_choice={"type": "auto"}), "while providing tools"),
    "a choice in words": (a_body(tool_choice="auto", tools=[TOOL]), "tool_choice"),
    "unknown metadata": (a_body(metadata={"name": "Ann"}), "metadata"),
    "a system prompt that is none": (a_body(system=5), "system: "),
    "a blank system prompt": (a_body(system=[text(" ")]), "non-whitespace"),
    "tools that are none": (a_body(tools={}), "tools: "),
    "a tool without a name": (a_body(tools=[{"input_schema": {}}]), "needs a name"),
    "a tool in another form": (a_body(tools=[{"type": "function", **TOOL, "parameters": {}}]), "Extra inputs"),
    "a tool without a schema": (a_body(tools=[{"name": "t"}]), "input_schema"),
    "a tool twice": (a_body(tools=[TOOL, TOOL]), "used twice"),
    "an unknown role": (a_body(messages=[{"role": "system", "content": "Hi"}]), "role"),
    "a field of a message": (a_body(messages=[{**HI, "name": "Ann"}]), "name: Extra inputs"),
    "no content": (a_body(messages=[{"role": "user", "content": []}]), "at least one block"),
    "a blank text": (saying(text(" \n")), "non-whitespace"),
    "an unknown block": (saying({"type": "x"}), "type 'x'"),
    "an unknown field of a block": (saying(text(id="1")), "id: Extra inputs"),
    "citations": (saying(text(citations=[1])), "citations"),
    "a document of an assistant": (answering({"type": "document", "source": {}}), "type 'document'"),
    "a call of a person": (saying(*USES["content"]), "type 'tool_use'"),
    "a call without input": (answering({"type": "tool_use", "id": "c", "name": "t"}), "input: Field required"),
    "input that is none": (answering({"type": "tool_use", "id": "c", "name": "t", "input": "{}"}), "must be an object"),
    "an id with a colon": (answering({"type": "tool_use", "id": "a:0", "name": "t", "input": {}}), "does not match"),
    "a call without a result": (a_body(messages=[HI, USES, HI]), "not followed directly"),
    "a result without a call": (saying(RESULT), "does not call"),
    "a result behind a text": (
        a_body(messages=[HI, USES, {"role": "user", "content": [text(), RESULT]}]),
        "before all other blocks",
    ),
    "a result in a second message": (
        a_body(messages=[HI, USES, HI, {"role": "user", "content": [RESULT]}]),
        "before all other blocks",
    ),
    "an error without a text": (
        a_body(messages=[HI, USES, {"role": "user", "content": [{**RESULT, "content": "", "is_error": True}]}]),
        "cannot be empty",
    ),
    "an assistant's first": (a_body(messages=[{"role": "assistant", "content": "Hi"}, HI]), "first message"),
    "an assistant's last": (a_body(messages=[HI, {"role": "assistant", "content": "Hi"}]), "last message"),
    "a picture under another type": (saying(picture(PNG, "image/jpeg")), "does not match the media type"),
    "a picture that is no base64": (saying(picture("%")), "not base64"),
    "a picture at an address": (saying({"type": "image", "source": {"type": "url", "url": "x"}}), "base64 only"),
    "a PDF that is none": (
        saying({**picture(PNG, "application/pdf"), "type": "document"}),
        "PDF specified was not valid",
    ),
    "five marks": (saying(*[text(cache_control=MARK)] * 5), "maximum of 4 blocks"),
    "a mark that is none": (saying(text(cache_control={"type": "forever"})), "is no mark"),
    "a mark on reasoning": (
        answering({"type": "thinking", "thinking": "", "signature": "x", "cache_control": MARK}),
        "cache_control: Extra inputs",
    ),
    "reasoning without a signature": (answering({"type": "thinking", "thinking": "Hm."}), "signature: Field required"),
    "a made-up signature": (
        answering({"type": "thinking", "thinking": "Hm.", "signature": "x"}),
        "Invalid `signature` in `thinking` block",
    ),
    "hidden reasoning that is made up": (answering({"type": "redacted_thinking", "data": "x"}), "Invalid `signature`"),
    "a small budget": (a_body(thinking={"type": "enabled", "budget_tokens": 10}), "at least 1024"),
    "a tool loop that does not begin with thinking": (
        a_body(
            max_tokens=2000,
            thinking={"type": "enabled", "budget_tokens": 1024},
            messages=[HI, USES, {"role": "user", "content": [RESULT]}],
        ),
        "Expected `thinking`",
    ),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_the_messages_api_refuses_is_refused(name: str) -> None:
    body, said = BAD_BODIES[name]
    problems = read_anthropic_body(body)[1]
    assert any(said in problem for problem in problems), problems


def test_a_picture_has_at_most_5_mb_in_base64() -> None:
    data = b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * (LARGEST_PICTURE * 3 // 4)).decode()
    assert "exceeds 5 MB" in read_anthropic_body(saying(picture(data)))[1][0]


def test_sampling_is_taken_in_the_version_before_and_checked_there() -> None:
    assert read_anthropic_body(a_body(temperature=0.5), SAMPLING_VERSION)[1] == []
    assert "number" in read_anthropic_body(a_body(temperature="hot"), SAMPLING_VERSION)[1][0]


def test_a_signature_is_bound_to_the_reasoning_and_to_all_before_it_but_not_to_marks() -> None:
    before = json.loads(a_body(system="Be kind.", tools=[TOOL]))
    block = {"type": "thinking", "thinking": "Hm.", "signature": sign(before, [], "Hm.")}
    later = {**before, "messages": [HI, {"role": "assistant", "content": [block, text("Yes", cache_control=MARK)]}, HI]}
    assert read_anthropic_body(json.dumps(later).encode())[1] == []
    for changed in (
        {"system": "Be brief."},
        {"tools": []},
        {"messages": [{**HI, "content": "Ho"}, *later["messages"][1:]]},
    ):
        problems = read_anthropic_body(json.dumps({**later, **changed}).encode())[1]
        assert "bound to a different conversation" in problems[0]


def test_what_is_read_back_from_a_body_is_what_was_written() -> None:
    calls = (CallRequest(id="c1", name="t", arguments='{"x":1}'), CallRequest(id="c2", name="t", arguments="{}"))
    request = ModelRequest(
        instructions="Be kind.",
        messages=(
            UserMessage(text="Hi", notes=("[file file_1: 'a.bin', x/y, 3 bytes]",)),
            AssistantMessage(text="I look.", calls=calls),
            ToolResult(call_id="c1", tool="t", content="ok"),
            ToolResult(call_id="c2", tool="t", content="no", is_error=True),
            UserMessage(text="Go on"),
        ),
        tools=(ToolSpec(name="t", description="Do it.", parameters=TOOL["input_schema"]),),
    )
    fields = AnthropicPrompt(request, "m", write_tools(request.tools)).marked(MARK)
    read, problems = read_anthropic_body(json.dumps({"model": "m", "max_tokens": 9, "stream": True, **fields}).encode())
    assert problems == []
    assert read is not None
    assert (read.request, read.stream, read.model) == (request, True, "m")
