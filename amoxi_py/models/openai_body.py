"""The body of an OpenAI Chat Completions request: written from a `ModelRequest`, and read back strictly.

Reading refuses what the real API answers with status 400; it is the strict model server's half. The rules that hold for
any provider are in `history`; here are those of this wire alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.history import check_messages, check_tools, value_problem
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    ToolResult,
    ToolSpec,
    UserMessage,
)

LONGEST_DESCRIPTION = 1024

# fmt: off
PARAMETERS = frozenset({
    "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens", "messages", "metadata", "modalities", "model", "moderation", "n", "parallel_tool_calls",
    "prediction", "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
    "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity",
    "web_search_options",
})
# fmt: on

_KEYS: dict[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_FILE_NOTES = re.compile(r"(?:\A|\n)(\[file file_[0-9a-z]+: [^\n]*\])(?=\n\[file file_|\Z)")
_USER_PARTS = frozenset({"text", "image_url", "input_audio", "file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIBody:
    """A body that was read: what is asked, whether to stream, whether usage is wanted in the stream."""

    model: str
    request: ModelRequest
    stream: bool
    include_usage: bool


def write_messages(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the `messages` of a request."""
    messages: list[dict[str, Any]] = []
    if request.instructions and not request.instructions.isspace():
        messages.append({"role": "system", "content": request.instructions})
    for message in request.messages:
        if isinstance(message, UserMessage):
            messages.append({"role": "user", "content": message.content})
        elif isinstance(message, ToolResult):
            messages.append({"role": "tool", "tool_call_id": message.call_id, "content": message.content})
        elif message.calls:
            messages.append(
                {
                    "role": "assistant",
                    "content": message.text or None,
                    "tool_calls": [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {"name": call.name, "arguments": call.arguments},
                        }
                        for call in message.calls
                    ],
                }
            )
        else:
            messages.append({"role": "assistant", "content": message.text})
    return messages


def write_tools(tools: tuple[ToolSpec, ...]) -> list[dict[str, Any]]:
    """Return the `tools` of a request, fitted to this API: a short description, and `items` for every array."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description[:LONGEST_DESCRIPTION],
                "parameters": _with_items(tool.parameters),
            },
        }
        for tool in tools
    ]


def check_openai_body(body: bytes) -> list[str]:
    """Return what the real API would refuse about a body, one sentence each; nothing when it is fine."""
    return read_openai_body(body)[1]


def read_openai_body(body: bytes) -> tuple[OpenAIBody | None, list[str]]:
    """Return what a body asks, or None when it cannot be understood, and what is wrong with it."""
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
    problems = [*_check_parameters(value), *_check_wire_messages(value.get("messages")), *_check_wire_tools(value)]
    if problems:
        return None, problems
    instructions, messages = _read_messages(value["messages"])
    tools = tuple(_read_tool(tool) for tool in value.get("tools", ()))
    offset = len(value["messages"]) - len(messages)
    problems = [*check_tools(tools), *check_messages(messages, offset=offset)]
    options = value.get("stream_options") or {}
    read = OpenAIBody(
        model=value["model"],
        request=ModelRequest(instructions=instructions, messages=messages, tools=tools),
        stream=bool(value.get("stream")),
        include_usage=bool(options.get("include_usage")),
    )
    return read, problems


def _with_items(schema: Any) -> Any:
    if isinstance(schema, Mapping):
        fitted = {key: _with_items(part) for key, part in schema.items()}
        if fitted.get("type") == "array":
            fitted.setdefault("items", {})
        return fitted
    return [_with_items(part) for part in schema] if isinstance(schema, (list, tuple)) else schema


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


def _check_wire_messages(messages: object) -> Iterator[str]:
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
            yield f"{where}: a message of {role!r} has no field {name!r}"
        if role in ("system", "developer"):
            if others:
                yield f"{where}: a {role} message stands after the conversation has begun"
        else:
            others = True
        yield from _check_content(where, role, message)
        if role == "assistant":
            yield from _check_wire_calls(where, message)
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
    elif not isinstance(content, str):
        yield f"{where}: the content must be a text or a list of parts"


def _check_wire_calls(where: str, message: dict[str, Any]) -> Iterator[str]:
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


def _read_messages(messages: list[dict[str, Any]]) -> tuple[str, tuple[ModelMessage, ...]]:
    instructions: list[str] = []
    read: list[ModelMessage] = []
    tools: dict[str, str] = {}
    for message in messages:
        role, text = message["role"], _read_content(message.get("content"))
        if role in ("system", "developer"):
            instructions.append(text)
        elif role == "user":
            said, *notes = _FILE_NOTES.split(text)
            read.append(UserMessage(text=said, notes=tuple(filter(None, notes))))
        elif role == "tool":
            called = message["tool_call_id"]
            read.append(ToolResult(call_id=called, tool=tools.get(called, ""), content=text))
        else:
            calls = tuple(
                CallRequest(id=call["id"], name=call["function"]["name"], arguments=call["function"]["arguments"])
                for call in message.get("tool_calls") or ()
            )
            tools |= {call.id: call.name for call in calls}
            read.append(AssistantMessage(text=text, calls=calls))
    return "\n".join(instructions), tuple(read)


def _read_content(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or f"[{part['type']}]" for part in content)
    return content if isinstance(content, str) else ""
