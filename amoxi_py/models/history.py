"""The one validator of what a model is asked with: the rules by which real providers refuse a request.

Each rule is one that OpenAI's or Anthropic's API answers with status 400. A request without a problem here is one that
any provider takes, so a history that passes can change its model at any time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.models.kept import read_any_kept
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    ModelRequest,
    ToolResult,
    ToolSpec,
    UserMessage,
)

MOST_TOOLS = 128
MOST_CALLS = 128
LONGEST_CALL_ID = 40

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NAMED_SCHEMAS = ("properties", "$defs", "definitions", "patternProperties")
_ONE_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_MANY_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")


def check_request(request: ModelRequest) -> list[str]:
    """Return what a real provider would refuse about a request, one sentence each; nothing when it is fine."""
    problems = check_tools(request.tools)
    problem = text_problem(request.instructions)
    if problem is not None:
        problems.append(f"instructions: the text {problem}")
    problems += check_messages(request.messages)
    return problems


def check_messages(messages: Sequence[ModelMessage], *, offset: int = 0) -> list[str]:
    """Return what is wrong with a history; `offset` is added to the numbers of messages in the texts."""
    if not messages:
        return ["messages: there is none; the first must be a person's"]
    problems: list[str] = []
    if not isinstance(messages[0], UserMessage):
        problems.append(f"messages[{offset}]: the first message must be a person's")
    seen: set[str] = set()
    waiting: dict[str, str] = {}
    asked = offset
    for index, message in enumerate(messages, offset):
        if isinstance(message, ToolResult):
            if waiting.pop(message.call_id, None) != message.tool:
                problems.append(_stray(index, message, messages[asked - offset]))
            _check_text(problems, index, message.content, not message.is_error)
            continue
        if waiting:
            problems.append(_unanswered(asked, waiting))
            waiting = {}
        asked = index
        if isinstance(message, UserMessage):
            _check_text(problems, index, message.content, False)
            problems += (f"messages[{index}]: {problem}" for problem in _check_files(message))
        else:
            if message.kept is not None and read_any_kept(message.kept) is None:
                problems.append(f"messages[{index}]: what was kept is not a JSON object that says whose it is")
            calls = message.calls
            _check_text(problems, index, message.text, bool(calls))
            if calls:
                _check_calls(problems, index, calls, seen)
                waiting = {call.id: call.name for call in calls}
    if waiting:
        problems.append(_unanswered(asked, waiting))
    elif isinstance(messages[-1], AssistantMessage):
        problems.append(f"messages[{asked}]: the last message must be a person's or a tool's result")
    return problems


def check_tools(tools: Sequence[ToolSpec]) -> list[str]:
    """Return what is wrong with the tools that a model is offered."""
    problems: list[str] = []
    if len(tools) > MOST_TOOLS:
        problems.append(f"tools: {len(tools)} of them, at most {MOST_TOOLS} are taken")
    names: set[str] = set()
    for index, tool in enumerate(tools):
        where = f"tools[{index}]"
        if not _TOOL_NAME.fullmatch(tool.name):
            problems.append(f"{where}: the name {tool.name!r} does not match {_TOOL_NAME.pattern}")
        elif tool.name in names:
            problems.append(f"{where}: the name {tool.name!r} is used twice")
        names.add(tool.name)
        problem = text_problem(tool.description)
        if problem is not None:
            problems.append(f"{where}: the description {problem}")
        problems += (f"{where}: {problem}" for problem in _check_parameters(tool.parameters))
    return problems


def text_problem(text: str) -> str | None:
    """Return why a text cannot be sent as strict JSON in valid UTF-8, or None."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "holds a lone surrogate, so it has no valid UTF-8"
    return "holds a NUL character" if "\0" in text else None


def value_problem(value: Any) -> str | None:
    """Return what `text_problem` says of the first bad text in plain JSON values, keys included."""
    if isinstance(value, str):
        return text_problem(value)
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    else:
        return None
    return next((problem for problem in map(value_problem, parts) if problem is not None), None)


def _unanswered(asked: int, waiting: Mapping[str, str]) -> str:
    return f"messages[{asked}]: its calls {sorted(waiting)!r} are not followed directly by their results"


def _stray(index: int, result: ToolResult, before: ModelMessage) -> str:
    calls = before.calls if isinstance(before, AssistantMessage) else ()
    name = next((call.name for call in calls if call.id == result.call_id), None)
    if name is None:
        return (
            f"messages[{index}]: a result of {result.call_id!r}, which the assistant's message before it does not call"
        )
    if name != result.tool:
        return f"messages[{index}]: a result of {result.tool!r}, but the call {result.call_id!r} is of {name!r}"
    return f"messages[{index}]: a second result of the call {result.call_id!r}"


def _check_text(problems: list[str], index: int, text: str, may_be_blank: bool) -> None:
    if not may_be_blank and (not text or text.isspace()):
        problems.append(f"messages[{index}]: the text is empty")
    problem = text_problem(text)
    if problem is not None:
        problems.append(f"messages[{index}]: the text {problem}")


def _check_files(message: UserMessage) -> Iterator[str]:
    for file in message.files:
        if not file.data:
            yield f"the file {file.id!r} is empty"
        if file.id and not any(file.id in note for note in message.notes):
            yield f"the file {file.id!r} is shown, but no note tells its id"


def _check_calls(problems: list[str], index: int, calls: Sequence[CallRequest], seen: set[str]) -> None:
    if len(calls) > MOST_CALLS:
        problems.append(f"messages[{index}]: {len(calls)} calls, at most {MOST_CALLS} are taken")
    for call in calls:
        said = [f"the id {call.id!r} is used twice"] if call.id in seen else []
        seen.add(call.id)
        if len(call.id) > LONGEST_CALL_ID or not _CALL_ID.fullmatch(call.id):
            said.append(f"the id does not match {_CALL_ID.pattern} or is longer than {LONGEST_CALL_ID}")
        if not _TOOL_NAME.fullmatch(call.name):
            said.append(f"the tool's name {call.name!r} does not match {_TOOL_NAME.pattern}")
        problem = _arguments_problem(call.arguments)
        if problem is not None:
            said.append(f"the arguments {call.arguments!r} {problem}")
        problems += [f"messages[{index}], call {call.id!r}: {problem}" for problem in said]


@lru_cache(maxsize=1024)  # the same calls come again with every turn of a run
def _arguments_problem(arguments: str) -> str | None:
    try:
        value = decode_json(arguments)
    except ValueError:
        return "are not the text of a JSON object"
    if not isinstance(value, dict):
        return "are not the text of a JSON object"
    problem = value_problem(value) if "\\u" in arguments else text_problem(arguments)
    return None if problem is None else f"are not clean: a text in them {problem}"


def _check_parameters(parameters: Mapping[str, Any]) -> Iterator[str]:
    if parameters.get("type") != "object":
        yield "the schema's type must be 'object'"
    if not isinstance(parameters.get("properties"), Mapping):
        yield "the schema has no 'properties' object"
    for word in ("anyOf", "oneOf", "allOf", "enum", "not"):
        if word in parameters:
            yield f"the schema has {word!r} at its top"
    try:
        json.dumps(parameters, allow_nan=False)
    except (TypeError, ValueError) as error:
        yield f"the schema is not strict JSON: {error}"
        return
    problem = value_problem(parameters)
    if problem is not None:
        yield f"a text of the schema {problem}"
    yield from _check_schema("parameters", parameters, parameters)


def _check_schema(where: str, schema: object, root: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        yield f"{where} is no schema"
        return
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types:
        if name not in _TYPES:
            yield f"{where} has the unknown type {name!r}"
    if "$ref" in schema and not _resolves(schema["$ref"], root):
        yield f"{where} refers to {schema['$ref']!r}, which is not in the schema"
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        for name in properties:
            if not _PROPERTY_NAME.fullmatch(name):
                yield f"{where} has the property {name!r}, which does not match {_PROPERTY_NAME.pattern}"
        for name in schema.get("required", ()):
            if name not in properties:
                yield f"{where} requires {name!r}, which is none of its properties"
    for key, part in _parts(schema):
        yield from _check_schema(f"{where}.{key}", part, root)


def _parts(schema: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for word in _NAMED_SCHEMAS:
        if isinstance(schema.get(word), Mapping):
            yield from ((f"{word}.{name}", part) for name, part in schema[word].items())
    for word in _ONE_SCHEMA:
        if word in schema:
            yield word, schema[word]
    for word in _MANY_SCHEMAS:
        yield from ((f"{word}[{index}]", part) for index, part in enumerate(schema.get(word, ())))


def _resolves(reference: object, root: Mapping[str, Any]) -> bool:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return False
    place: Any = root
    for name in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, Mapping) or name not in place:
            return False
        place = place[name]
    return True
