"""The one validator: a good history passes on both doors, and every rule of the providers can fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from amoxi_py.models.anthropic_body import AnthropicPrompt
from amoxi_py.models.anthropic_body import write_tools as write_anthropic_tools
from amoxi_py.models.anthropic_reading import read_anthropic_body
from amoxi_py.models.history import check_request
from amoxi_py.models.openai_body import write_messages, write_tools
from amoxi_py.models.openai_reading import check_openai_body, read_openai_body
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    ToolResult,
    ToolSpec,
    UserMessage,
)

SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
TOOL = ToolSpec(name="lookup_order", description="Look up an order.", parameters=SCHEMA)
USER = UserMessage(text="Where are A-1001 and A-1002?")
ASKS = AssistantMessage(
    text="",
    calls=(
        CallRequest(id="call_1", name="lookup_order", arguments='{"order_id": "A-1001"}'),
        CallRequest(id="call_2", name="lookup_order", arguments='{"order_id": "A-1002"}'),
    ),
)
FIRST = ToolResult(call_id="call_1", tool="lookup_order", content='{"status": "shipped"}')
SECOND = ToolResult(call_id="call_2", tool="lookup_order", content="not shipped yet")
GOOD = (USER, ASKS, FIRST, SECOND, AssistantMessage(text="Shipped; not yet."), UserMessage(text="Thanks — 谢谢 🎒"))


def asked(
    *messages: ModelMessage, tools: tuple[ToolSpec, ...] = (TOOL,), instructions: str = "Be kind."
) -> ModelRequest:
    return ModelRequest(instructions=instructions, messages=messages, tools=tools)


def calling(*calls: CallRequest) -> tuple[ModelMessage, ...]:
    results = (ToolResult(call_id=call.id, tool=call.name, content="ok") for call in calls)
    return (USER, AssistantMessage(text="", calls=calls), *results)


def a_call(id: str = "call_1", name: str = "lookup_order", arguments: str = "{}") -> CallRequest:
    return CallRequest(id=id, name=name, arguments=arguments)


def as_body(request: ModelRequest, **more: Any) -> bytes:
    body = {"model": "m", "messages": write_messages(request), **more}
    if request.tools:
        body["tools"] = write_tools(request.tools)
    return json.dumps(body).encode("utf-8", "surrogatepass")


def test_a_history_with_parallel_calls_answered_directly_passes_on_both_doors() -> None:
    request = asked(*GOOD)
    assert check_request(request) == []
    assert check_openai_body(as_body(request)) == []


def test_what_is_read_back_from_a_body_is_what_was_written() -> None:
    request = asked(*GOOD)
    read, problems = read_openai_body(as_body(request, stream=True, stream_options={"include_usage": True}))
    assert problems == []
    assert read is not None
    assert (read.request.instructions, read.request.messages, read.request.tools) == (
        request.instructions,
        request.messages,
        request.tools,
    )
    assert (read.model, read.stream, read.include_usage) == ("m", True, True)


BAD_HISTORIES: dict[str, tuple[tuple[ModelMessage, ...], str]] = {
    "no message": ((), "there is none"),
    "an assistant's first": ((AssistantMessage(text="Hi"), USER), "first message must be a person's"),
    "an assistant's last": ((USER, AssistantMessage(text="Hi")), "last message"),
    "a person's without text": ((UserMessage(text=" \n"),), "text is empty"),
    "an assistant's without text or calls": ((USER, AssistantMessage(text=""), USER), "text is empty"),
    "a call without any result": ((USER, ASKS, FIRST), "not followed directly"),
    "a person between calls and results": ((USER, ASKS, FIRST, USER, SECOND), "not followed directly"),
    "calls at the end": ((USER, ASKS), "not followed directly"),
    "a result without its call": ((USER, FIRST), "does not call"),
    "a result of a call of long ago": ((*GOOD, FIRST), "does not call"),
    "two results of one call": ((USER, ASKS, FIRST, FIRST, SECOND), "second result"),
    "an id twice in a message": (calling(a_call(), a_call()), "used twice"),
    "an id twice in a history": ((*calling(a_call()), *calling(a_call())[1:]), "used twice"),
    "an id that is too long": (calling(a_call(id="c" * 41)), "does not match"),
    "an id with a colon": (calling(a_call(id="f:0")), "does not match"),
    "a name with a space": (calling(a_call(name="lookup order")), "does not match"),
    "cut arguments": (calling(a_call(arguments='{"order_id": "A-')), "not the text of a JSON object"),
    "empty arguments": (calling(a_call(arguments="")), "not the text of a JSON object"),
    "a list as arguments": (calling(a_call(arguments="[]")), "not the text of a JSON object"),
    "null as arguments": (calling(a_call(arguments="null")), "not the text of a JSON object"),
    "arguments encoded twice": (calling(a_call(arguments='"{}"')), "not the text of a JSON object"),
    "two objects as arguments": (calling(a_call(arguments="{}{}")), "not the text of a JSON object"),
    "NaN in arguments": (calling(a_call(arguments='{"n": NaN}')), "not the text of a JSON object"),
    "a lone surrogate in arguments": (calling(a_call(arguments='{"n": "\\ud800"}')), "lone surrogate"),
    "NUL in arguments": (calling(a_call(arguments='{"n": ["\\u0000"]}')), "NUL"),
    "a lone surrogate in a text": ((UserMessage(text="a\ud83d"),), "lone surrogate"),
    "NUL in a result": ((USER, ASKS, FIRST, ToolResult(call_id="call_2", tool="lookup_order", content="\0")), "NUL"),
}


@pytest.mark.parametrize("name", BAD_HISTORIES)
def test_a_history_that_a_provider_refuses_is_refused_on_both_doors(name: str) -> None:
    messages, said = BAD_HISTORIES[name]
    request = asked(*messages)
    assert any(said in problem for problem in check_request(request)), check_request(request)
    assert check_openai_body(as_body(request)) != []


@pytest.mark.parametrize("name", sorted(BAD_HISTORIES.keys() - {"an assistant's without text or calls"}))
def test_a_history_that_a_provider_refuses_is_refused_by_the_messages_api(name: str) -> None:
    request = asked(*BAD_HISTORIES[name][0])
    try:
        fields = AnthropicPrompt(request, "m", write_anthropic_tools(request.tools)).marked(None)
    except ValueError:
        return  # arguments that are no JSON cannot even be written
    body = json.dumps({"model": "m", "max_tokens": 9, **fields}).encode("utf-8", "surrogatepass")
    assert read_anthropic_body(body)[1] != []


def test_what_is_kept_says_whose_it_is() -> None:
    for kept in ("{", "[]", "{}", '{"provider": 1}'):
        problems = check_request(asked(USER, AssistantMessage(text="Hi", kept=kept), USER))
        assert problems == ["messages[1]: what was kept is not a JSON object that says whose it is"]
    assert check_request(asked(USER, AssistantMessage(text="Hi", kept='{"provider": "x"}'), USER)) == []


def test_an_error_result_needs_a_text() -> None:
    nothing = ToolResult(call_id="call_2", tool="lookup_order", content="", is_error=True)
    assert check_request(asked(USER, ASKS, FIRST, nothing)) == ["messages[3]: the text is empty"]


def test_a_result_names_the_tool_of_its_call() -> None:
    other = ToolResult(call_id="call_2", tool="refund_order", content="done")
    assert "is of 'lookup_order'" in check_request(asked(USER, ASKS, FIRST, other))[0]


def a_tool(name: str = "t", **parameters: Any) -> ToolSpec:
    return ToolSpec(name=name, description="Do it.", parameters=parameters)


OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
BAD_TOOLS: dict[str, tuple[tuple[ToolSpec, ...], str]] = {
    "a name with a dot": ((a_tool("a.b", **OBJECT),), "does not match"),
    "a long name": ((a_tool("a" * 65, **OBJECT),), "does not match"),
    "a name twice": ((a_tool(**OBJECT), a_tool(**OBJECT)), "used twice"),
    "too many": (tuple(a_tool(f"t{n}", **OBJECT) for n in range(129)), "at most 128"),
    "no object": ((a_tool(type="string", properties={}),), "must be 'object'"),
    "no properties": ((a_tool(type="object"),), "no 'properties'"),
    "a choice at the top": ((a_tool(**OBJECT, anyOf=[{}]),), "'anyOf' at its top"),
    "an unknown type": ((a_tool(type="object", properties={"x": {"type": "date"}}),), "unknown type 'date'"),
    "a reference into nothing": ((a_tool(type="object", properties={"x": {"$ref": "#/$defs/X"}}),), "refers to"),
    "a required stranger": ((a_tool(**OBJECT, required=["x"]),), "none of its properties"),
    "a property with a space": ((a_tool(type="object", properties={"a b": {}}),), "does not match"),
    "NaN in a schema": ((a_tool(type="object", properties={"x": {"default": float("nan")}}),), "not strict JSON"),
    "NUL in a schema": ((a_tool(type="object", properties={"x": {"description": "\0"}}),), "NUL"),
    "a broken schema in a list": ((a_tool(type="object", properties={"x": {"items": {"anyOf": [3]}}}),), "no schema"),
}


@pytest.mark.parametrize("name", BAD_TOOLS)
def test_tools_that_a_provider_refuses_are_refused_on_both_doors(name: str) -> None:
    tools, said = BAD_TOOLS[name]
    request = asked(USER, tools=tools)
    assert any(said in problem for problem in check_request(request)), check_request(request)
    assert check_openai_body(as_body(request)) != []


def test_a_schema_may_hold_itself_and_properties_may_be_named_like_keywords() -> None:
    node = {"type": "object", "properties": {"type": {"type": "string"}, "next": {"$ref": "#/$defs/Node"}}}
    tool = a_tool(
        type="object", properties={"enum": {}, "items": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}}
    )
    assert check_request(asked(USER, tools=(tool,))) == []


def a_body(**changes: Any) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **changes}
    return json.dumps({key: value for key, value in body.items() if value is not ...}).encode()


def a_picture(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


WIRE_TOOL = {"type": "function", "function": {"name": "t", "parameters": OBJECT}}
BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (b'{"model": "\xff"}', "UTF-8"),
    "not JSON": (b"{", "not strict JSON"),
    "NaN": (b'{"model": "m", "temperature": NaN}', "not strict JSON"),
    "no object": (b"[]", "not a JSON object"),
    "a lone surrogate": (a_body(user="\ud800"), "lone surrogate"),
    "NUL": (a_body(user="\0"), "NUL"),
    "no model": (a_body(model=...), "'model'"),
    "no messages": (a_body(messages=...), "'messages'"),
    "an empty list of messages": (a_body(messages=[]), "'messages'"),
    "an unknown role": (a_body(messages=[{"role": "bot", "content": "Hi"}]), "role 'bot'"),
    "an unknown field of a message": (a_body(messages=[{"role": "user", "content": "Hi", "id": "1"}]), "no field 'id'"),
    "no content": (a_body(messages=[{"role": "user", "content": None}]), "content must be"),
    "a part of an unknown kind": (
        a_body(messages=[{"role": "user", "content": [{"type": "x"}]}]),
        "part of the content",
    ),
    "a late system message": (
        a_body(messages=[{"role": "user", "content": "Hi"}, {"role": "system", "content": "Be kind"}]),
        "after the conversation has begun",
    ),
    "an empty list of calls": (
        a_body(messages=[{"role": "assistant", "content": "Hi", "tool_calls": []}]),
        "at least one",
    ),
    "a call without arguments": (
        a_body(messages=[{"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": {}}]}]),
        "name and arguments",
    ),
    "a result without an id": (a_body(messages=[{"role": "tool", "content": "Hi"}]), "'tool_call_id'"),
    "an unknown parameter": (a_body(effort="low"), "unrecognized request argument: 'effort'"),
    "stream options without a stream": (a_body(stream_options={"include_usage": True}), "'stream_options'"),
    "a choice without tools": (a_body(tool_choice="auto"), "'tool_choice'"),
    "an empty list of tools": (a_body(tools=[]), "'tools'"),
    "a tool without its type": (a_body(tools=[{"function": {"name": "t"}}]), "needs 'type'"),
    "a long description": (
        a_body(
            tools=[{"type": "function", "function": {"name": "t", "description": "d" * 1025, "parameters": OBJECT}}]
        ),
        "at most 1024",
    ),
    "an array without items": (
        a_body(
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": "t",
                        "parameters": {"type": "object", "properties": {"x": {"type": "array"}}},
                    },
                }
            ]
        ),
        "missing items",
    ),
    "reasoning that was not given out": (
        a_body(messages=[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "a", "reasoning": "b"}]),
        "no field 'reasoning'",
    ),
    "a picture that is none": (a_body(messages=[a_picture("data:image/png;base64,AAAA")]), "is none"),
    "a picture that is no base64": (a_body(messages=[a_picture("data:image/png;base64,%")]), "not base64"),
    "a picture nowhere": (a_body(messages=[a_picture("file:///x")]), "no address of a picture"),
    "a picture without an address": (
        a_body(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        "no address or data",
    ),
    "a file that is no PDF": (
        a_body(messages=[{"role": "user", "content": [{"type": "file", "file": {"file_data": "data:text/csv,"}}]}]),
        "is no PDF",
    ),
    "a hot temperature": (a_body(temperature=3), "out of range"),
    "a temperature in words": (a_body(temperature="hot"), "must be a number"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_body_that_the_real_api_refuses_is_refused(name: str) -> None:
    body, said = BAD_BODIES[name]
    problems = check_openai_body(body)
    assert any(said in problem for problem in problems), problems


def test_a_body_with_parts_options_and_tools_passes() -> None:
    content = [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]
    system = {"role": "developer", "content": "Be kind"}
    body = a_body(
        messages=[system, {"role": "user", "content": content}],
        tools=[WIRE_TOOL],
        tool_choice="auto",
        temperature=0.5,
        max_completion_tokens=10,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert check_openai_body(body) == []


def test_a_long_description_and_a_tuple_are_fitted_to_the_api_when_written() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "integer"}], "maxItems": 1}
    tool = ToolSpec(name="t", description="d" * 3000, parameters={"type": "object", "properties": {"pair": pair}})
    assert check_openai_body(as_body(asked(USER, tools=(tool,)))) == []
    assert "items" not in pair, "the declared schema is left as it is"
