"""The body of an OpenAI Chat Completions request, read back strictly: the strict model server's half.

Reading refuses what the real API answers with status 400. The rules that hold for any provider are in `history`; here
are those of this wire alone.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.history import check_messages, check_tools, value_problem
from amoxi_py.models.kept import keep
from amoxi_py.models.openai_body import LONGEST_DESCRIPTION, PARAMETERS, PROVIDER, REASONING_FIELDS
from amoxi_py.models.openai_rules import check_like
from amoxi_py.models.sent_files import PDF, PICTURE_TYPES, picture_type, read_text_file, read_words
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    SentFile,
    ToolResult,
    ToolSpec,
)

_KEYS: dict[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_USER_PARTS = frozenset({"text", "image_url", "input_audio", "file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIBody:
    """A body that was read: what is asked, whether to stream, whether usage is wanted in the stream."""

    model: str
    request: ModelRequest
    stream: bool
    include_usage: bool


def check_openai_body(body: bytes) -> list[str]:
    """Return what the real API would refuse about a body, one sentence each; nothing when it is fine."""
    return read_openai_body(body)[1]


def read_openai_body(
    body: bytes, *, given: Collection[str] = (), like: str | None = None
) -> tuple[OpenAIBody | None, list[str]]:
    """Return what a body asks, or None when it cannot be understood, and what is wrong with it.

    Args:
        body: As it came.
        given: The reasonings that the server gave out: OpenAI's own refuses such a field, others take theirs back.
        like: The provider whose own rules hold besides, one of `openai_rules.PROVIDERS`.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        return None, [f"the body is not valid UTF-8: {error}"]
    try:
        value = decode_json(text)
    except ValueError as error:
        return None, [f"the body is not strict JSON: {error}"]
    if not isinstance(value, dict):
        return None, ["the body is not a JSON object"]
    problem = value_problem(value)
    if problem is not None:
        return None, [f"a text in the body {problem}"]
    problems = [
        *check_like(like, value),
        *_check_parameters(value),
        *_check_wire_messages(value.get("messages"), given, signed=like == "gemini"),
        *_check_wire_tools(value),
    ]
    if problems:
        return None, problems
    instructions, messages = _read_messages(value["messages"], value["model"])
    tools = tuple(_read_tool(tool) for tool in value.get("tools", ()))
    offset = len(value["messages"]) - len(messages)
    problems = [*check_tools(tools), *check_messages(messages, offset=offset)]
    options = value.get("stream_options") or {}
    read = OpenAIBody(
        model=value["model"],
        request=ModelRequest(instructions=instructions, messages=messages, tools=tools),
        stream=bool(value.get("stream")),
        include_usage=bool(options.get("include_usage")) or like == "mistral",  # which tells it unasked
    )
    return read, problems


def _check_parameters(value: dict[str, Any]) -> Iterator[str]:
    for name in sorted(value.keys() - PARAMETERS):
        yield f"unrecognized request argument: {name!r}"
    if not isinstance(value.get("model"), str) or not value["model"]:
        yield "'model' must be a text"
    if "stream_options" in value and not value.get("stream"):
        yield "'stream_options' is only allowed when 'stream' is true"
    if not value.get("tools"):
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in value:
                yield f"{name!r} is only allowed when 'tools' are given"
    for name, low, high in (("temperature", 0, 2), ("top_p", 0, 1), ("max_tokens", 1, None), ("n", 1, 128)):
        number = value.get(name)
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            yield f"{name!r} must be a number"
        elif number < low or (high is not None and number > high):
            yield f"{name!r} is out of range: {number!r}"


def _check_wire_messages(messages: object, given: Collection[str], *, signed: bool) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "'messages' must be a list with at least one message"
        return
    others = False
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _KEYS:
            yield f"{where}: the role {role!r} is unknown"
            continue
        for name in sorted(message.keys() - _KEYS[role]):
            if role == "assistant" and name in REASONING_FIELDS and _is_given(message[name], given):
                continue
            yield f"{where}: a message of {role!r} has no field {name!r}"
        if role in ("system", "developer"):
            if others:
                yield f"{where}: a {role} message stands after the conversation has begun"
        else:
            others = True
        yield from _check_content(where, role, message)
        if role == "assistant":
            yield from _check_wire_calls(where, message, signed)
        if role == "tool" and not isinstance(message.get("tool_call_id"), str):
            yield f"{where}: 'tool_call_id' must be a text"


def _check_content(where: str, role: str, message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        return
    if isinstance(content, list) and content:
        allowed = _USER_PARTS if role == "user" else {"text"}
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in allowed or (kind == "text" and not isinstance(part.get("text"), str)):
                yield f"{where}: a part of the content is none that a message of {role!r} may have"
            elif kind in ("image_url", "file"):
                yield from _check_file(where, part)
    elif not isinstance(content, str):
        yield f"{where}: the content must be a text or a list of parts"


def _check_file(where: str, part: dict[str, Any]) -> Iterator[str]:
    url = _file_url(part)
    if url is None:
        yield f"{where}: a part {part['type']!r} has no address or data"
    elif not url.startswith("data:"):
        if not url.startswith(("http://", "https://")):
            yield f"{where}: {url[:80]!r} is no address of a picture"
    else:
        kind, data = _read_data(url)
        if data is None:
            yield f"{where}: the data of a part {part['type']!r} is not base64"
        elif part["type"] == "image_url" and (kind not in PICTURE_TYPES or picture_type(data) != kind):
            yield f"{where}: a picture under the type {kind!r} is none"
        elif part["type"] == "file" and (kind != PDF or not data.startswith(b"%PDF-")):
            yield f"{where}: a file under the type {kind!r} is no PDF"


def _file_url(part: dict[str, Any]) -> str | None:
    held = part.get(part["type"])
    url = held.get("url" if part["type"] == "image_url" else "file_data") if isinstance(held, dict) else None
    return url if isinstance(url, str) else None


def _read_data(url: str) -> tuple[str, bytes | None]:
    head, _, data = url.removeprefix("data:").partition(",")
    try:
        return head.removesuffix(";base64"), b64decode(data, validate=True)
    except binascii.Error:
        return head, None


def _is_given(reasoning: object, given: Collection[str]) -> bool:
    return reasoning_text(reasoning) in given


def reasoning_text(reasoning: object) -> str:
    """Return the text of a reasoning in any of the fields that servers have for it."""
    if isinstance(reasoning, list):
        return "".join(part.get("text") or "" for part in reasoning if isinstance(part, dict))
    return reasoning if isinstance(reasoning, str) else ""


def _check_wire_calls(where: str, message: dict[str, Any], signed: bool) -> Iterator[str]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        yield f"{where}: 'tool_calls' must be a list with at least one call"
        return
    for index, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if (
            not isinstance(function, dict)
            or call.get("type") != "function"
            or not isinstance(call.get("id"), str)
            or not isinstance(function.get("name"), str)
            or not isinstance(function.get("arguments"), str)
        ):
            yield f"{where}.tool_calls[{index}]: needs 'id', 'type' \"function\" and a function with name and arguments"
        elif "extra_content" in call and not signed:
            yield f"{where}.tool_calls[{index}]: a call has no field 'extra_content'"


def _check_wire_tools(value: dict[str, Any]) -> Iterator[str]:
    if "tools" not in value:
        return
    tools = value["tools"]
    if not isinstance(tools, list) or not tools:
        yield "'tools' must be a list with at least one tool"
        return
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or tool.get("type") != "function":
            yield f"{where}: needs 'type' \"function\" and a function"
            continue
        description = function.get("description", "")
        if not isinstance(function.get("name"), str) or not isinstance(description, str):
            yield f"{where}: the name and the description must be texts"
        elif len(description) > LONGEST_DESCRIPTION:
            yield f"{where}: the description has {len(description)} characters, at most {LONGEST_DESCRIPTION} are taken"
        if not isinstance(function.get("parameters", {}), dict):
            yield f"{where}: the parameters must be a schema"
        elif _lacks_items(function.get("parameters", {})):
            yield f"{where}: an array schema is missing items"


def _lacks_items(schema: object) -> bool:
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "items" not in schema:
            return True
        return any(map(_lacks_items, schema.values()))
    return isinstance(schema, list) and any(map(_lacks_items, schema))


def _read_tool(tool: dict[str, Any]) -> ToolSpec:
    function = tool["function"]
    return ToolSpec(
        name=function["name"],
        description=function.get("description", ""),
        parameters=function.get("parameters", {"type": "object", "properties": {}}),
    )


def _read_messages(messages: list[dict[str, Any]], model: str) -> tuple[str, tuple[ModelMessage, ...]]:
    instructions: list[str] = []
    read: list[ModelMessage] = []
    tools: dict[str, str] = {}
    for message in messages:
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            instructions.append(_read_text(content))
        elif role == "user":
            files = tuple(file for part in content if (file := _read_file(part))) if isinstance(content, list) else ()
            read.append(read_words(_read_text(content), files))
        elif role == "tool":
            called = message["tool_call_id"]
            read.append(ToolResult(call_id=called, tool=tools.get(called, ""), content=_read_text(content)))
        else:
            calls = tuple(
                CallRequest(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            )
            tools |= {call.id: call.name for call in calls}
            reasoning = {name: message[name] for name in REASONING_FIELDS if name in message}
            kept = keep(PROVIDER, model, reasoning) if reasoning else None
            read.append(AssistantMessage(text=_read_text(content), calls=calls, kept=kept))
    return "\n".join(instructions), tuple(read)


def _read_text(content: object) -> str:
    if isinstance(content, list):
        texts = [part["text"] for part in content if part["type"] == "text" and read_text_file(part["text"]) is None]
        return "\n".join(texts)
    return content if isinstance(content, str) else ""


def _read_file(part: dict[str, Any]) -> SentFile | None:
    if part["type"] == "text":
        return read_text_file(part["text"])
    url = _file_url(part)
    if url is None or not url.startswith("data:"):
        return None
    kind, data = _read_data(url)
    return SentFile(
        id="", name=part["file"].get("filename", "") if "file" in part else "", media_type=kind, data=data or b""
    )
