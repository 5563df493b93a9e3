"""The body of an Anthropic Messages request, read back strictly: the strict model server's half.

Reading refuses what the real API answers with status 400 in its version 2026-10-21. The rules that hold for any
provider are in `history`; here are those of this wire alone.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.models.anthropic_body import MOST_MARKS, PROVIDER
from amoxi_py.models.anthropic_signatures import check_signature
from amoxi_py.models.history import check_messages, check_tools, value_problem
from amoxi_py.models.kept import keep
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

SAMPLING_VERSION = "2023-06-01"
LARGEST_PICTURE = 5 * 1024 * 1024

# fmt: off
_FIELDS = frozenset({
    "cache_control", "container", "diagnostics", "inference_geo", "max_tokens", "messages", "metadata", "model",
    "output_config", "service_tier", "speed", "stop_sequences", "stream", "system", "thinking", "tool_choice", "tools",
})
# fmt: on
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_MARKED = frozenset({"type", "cache_control"})
_BLOCKS: dict[str, dict[str, frozenset[str]]] = {
    "user": {
        "text": _MARKED | {"text"},
        "image": _MARKED | {"source", "transformations"},
        "document": _MARKED | {"source", "title", "context", "citations"},
        "tool_result": _MARKED | {"tool_use_id", "content", "is_error", "toolset_name"},
    },
    "assistant": {
        "text": _MARKED | {"text", "citations"},
        "thinking": frozenset({"type", "thinking", "signature"}),
        "redacted_thinking": frozenset({"type", "data"}),
        "tool_use": _MARKED | {"id", "name", "input", "caller", "toolset_name"},
    },
}
_NEEDED = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "tool_result": ("tool_use_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input"),
}
_OBJECTS = ("source", "input")
_TOOL_FIELDS = _MARKED | {
    "name", "description", "input_schema", "strict", "input_examples", "allowed_callers", "defer_loading",
    "eager_input_streaming",
}  # fmt: skip

Block = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicBody:
    """A body that was read: what is asked, whether to stream, and the body itself, which signatures are bound to."""

    model: str
    request: ModelRequest
    stream: bool
    value: Mapping[str, Any]


def read_anthropic_body(body: bytes, version: str = "2026-10-21") -> tuple[AnthropicBody | None, list[str]]:
    """Return what a body asks, or None when it cannot be understood, and what is wrong with it.

    `version` is the API's version that the client wants.
    """
    try:
        value = decode_json(body.decode())
    except UnicodeDecodeError as error:
        return None, [f"the body is not valid UTF-8: {error}"]
    except ValueError as error:
        return None, [f"the body is not strict JSON: {error}"]
    if not isinstance(value, dict):
        return None, ["the body is not a JSON object"]
    problem = value_problem(value)
    if problem is not None:
        return None, [f"a text in the body {problem}"]
    problems = [
        *_check_fields(value, version),
        *_check_system(value.get("system")),
        *_check_tools(value.get("tools")),
        *_check_messages(value.get("messages")),
    ]
    if not problems:
        problems = [*_check_marks(value), *_check_thinking(value)]
    if problems:
        return None, problems
    request = _read_request(value)
    problems = [*check_tools(request.tools), *check_messages(request.messages)]
    return AnthropicBody(model=value["model"], request=request, stream=bool(value.get("stream")), value=value), problems


def _check_fields(value: Mapping[str, Any], version: str) -> Iterator[str]:
    known = _FIELDS | _SAMPLING if version == SAMPLING_VERSION else _FIELDS
    for name in sorted(value.keys() - known):
        yield f"{name}: Extra inputs are not permitted"
    if not isinstance(value.get("model"), str) or not value["model"]:
        yield "model: must be a text"
    limit = value.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        yield f"max_tokens: must be a positive integer, not {limit!r}"
    for name in _SAMPLING & value.keys():
        if isinstance(value[name], bool) or not isinstance(value[name], (int, float)) or value[name] < 0:
            yield f"{name}: must be a number from 0 on"
    stops = value.get("stop_sequences", [])
    if not isinstance(stops, list) or not all(isinstance(text, str) and text.strip() for text in stops):
        yield "stop_sequences: must be a list of texts that are not blank"
    yield from _check_settings(value)


def _check_settings(value: Mapping[str, Any]) -> Iterator[str]:
    config = value.get("output_config", {})
    if not isinstance(config, dict) or config.keys() - {"effort", "format"}:
        yield "output_config: may have 'effort' and 'format'"
    elif config.get("effort") is not None and config["effort"] not in _EFFORTS:
        yield f"output_config.effort: must be one of {_EFFORTS}"
    choice = value.get("tool_choice")
    if choice is not None:
        if not isinstance(choice, dict) or choice.get("type") not in ("auto", "any", "tool", "none"):
            yield "tool_choice: must be an object with the type 'auto', 'any', 'tool' or 'none'"
        elif not value.get("tools"):
            yield "tool_choice: may only be specified while providing tools"
    metadata = value.get("metadata", {})
    if not isinstance(metadata, dict) or metadata.keys() - {"user_id"}:
        yield "metadata: may have 'user_id'"


def _check_system(system: object) -> Iterator[str]:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        yield "system: must be a text or a list of blocks"
        return
    for index, block in enumerate(system):
        yield from _check_block(f"system.{index}", block, {"text": _BLOCKS["user"]["text"]})


def _check_tools(tools: object) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, list):
        yield "tools: must be a list"
        return
    for index, tool in enumerate(tools):
        where = f"tools.{index}"
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            yield f"{where}: needs a name"
            continue
        for name in sorted(tool.keys() - _TOOL_FIELDS):
            yield f"{where}.{name}: Extra inputs are not permitted"
        if not isinstance(tool.get("description", ""), str):
            yield f"{where}.description: must be a text"
        if not isinstance(tool.get("input_schema"), dict):
            yield f"{where}.input_schema: must be a schema"


def _check_messages(messages: object) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield "messages: at least one message is required"
        return
    before = None
    for index, message in enumerate(messages):
        where = f"messages.{index}"
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or role not in _BLOCKS:
            yield f"{where}.role: {role!r} is none of 'user' and 'assistant'"
            continue
        for name in sorted(message.keys() - {"role", "content"}):
            yield f"{where}.{name}: Extra inputs are not permitted"
        content = message.get("content")
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        if not isinstance(content, list) or not content:
            yield f"{where}.content: must have at least one block"
            continue
        behind = role == before  # the API joins messages of one role
        for place, block in enumerate(content):
            yield from _check_block(f"{where}.content.{place}", block, _BLOCKS[role])
            result = isinstance(block, dict) and block.get("type") == "tool_result"
            if result and behind:
                yield f"{where}.content.{place}: a `tool_result` must stand before all other blocks"
            behind = behind or not result
        before = role


def _check_block(where: str, block: object, kinds: Mapping[str, frozenset[str]]) -> Iterator[str]:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str) or kind not in kinds:
        yield f"{where}: a block of type {kind!r} may not stand here"
        return
    for name in sorted(block.keys() - kinds[kind]):
        yield f"{where}.{name}: Extra inputs are not permitted"
    for name in _NEEDED[kind]:
        if name not in block:
            yield f"{where}.{name}: Field required"
            return
        if name not in _OBJECTS and not isinstance(block[name], str):
            yield f"{where}.{name}: must be a text"
            return
    yield from _check_kind(where, kind, block)


def _check_kind(where: str, kind: str, block: Block) -> Iterator[str]:
    if kind == "text" and not block["text"].strip():
        yield f"{where}: text content blocks must contain non-whitespace text"
    elif kind in ("image", "document"):
        yield from _check_source(f"{where}.source", kind, block["source"])
    elif kind == "tool_use":
        if not _ID.fullmatch(block["id"]):
            yield f"{where}.id: {block['id']!r} does not match {_ID.pattern}"
        if not isinstance(block["input"], dict):
            yield f"{where}.input: must be an object"
    elif kind == "tool_result":
        content = _result_text(block.get("content"))
        if content is None:
            yield f"{where}.content: this server reads texts only"
        elif block.get("is_error") and not content.strip():
            yield f"{where}: content cannot be empty if `is_error` is true"


def _result_text(content: object) -> str | None:
    """Return what a result says, which may be a list of text blocks; None for what is no text."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None if content else ""
    if not all(isinstance(block, dict) and isinstance(block.get("text"), str) for block in content):
        return None
    return "\n".join(block["text"] for block in content)


def _check_source(where: str, kind: str, source: object) -> Iterator[str]:
    if not isinstance(source, dict) or source.keys() != {"type", "media_type", "data"} or source["type"] != "base64":
        yield f"{where}: this server reads base64 only"
        return
    try:
        data = b64decode(source["data"], validate=True)
    except (binascii.Error, TypeError):
        yield f"{where}.data: is not base64"
        return
    if kind == "document":
        if source["media_type"] != PDF or not data.startswith(b"%PDF-"):
            yield f"{where}: the PDF specified was not valid"
    elif source["media_type"] not in PICTURE_TYPES or picture_type(data) != source["media_type"]:
        yield f"{where}: the picture does not match the media type {source['media_type']!r}"
    elif len(source["data"]) > LARGEST_PICTURE:
        yield f"{where}: the picture exceeds 5 MB maximum: {len(source['data'])} bytes"


def _check_marks(value: Mapping[str, Any]) -> Iterator[str]:
    system = value.get("system")
    blocks = [*(system if isinstance(system, list) else ()), *(value.get("tools") or ())]
    blocks += [block for message in value["messages"] for block in message["content"] if isinstance(block, dict)]
    marks = [block["cache_control"] for block in blocks if block.get("cache_control") is not None]
    if value.get("cache_control") is not None:
        marks.append(value["cache_control"])
    if len(marks) > MOST_MARKS:
        yield f"a maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {len(marks)}"
    for mark in marks:
        if not isinstance(mark, dict) or mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            yield f"cache_control: {mark!r} is no mark"


def _check_thinking(value: Mapping[str, Any]) -> Iterator[str]:
    for index, message in enumerate(value["messages"]):
        for place, block in enumerate(message["content"]):
            if isinstance(block, dict) and block["type"] in ("thinking", "redacted_thinking"):
                problem = check_signature(value, index, place)
                if problem is not None:
                    yield f"messages.{index}.content.{place}: {problem}"
    thinking = value.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or not 1024 <= budget < value["max_tokens"]:
        yield "thinking.budget_tokens: must be at least 1024 and less than max_tokens"
    for index in range(len(value["messages"]) - 1, -1, -1):
        message = value["messages"][index]
        kinds = [block["type"] if isinstance(block, dict) else "text" for block in message["content"]]
        if message["role"] == "user" and "tool_result" not in kinds:
            return
        if message["role"] == "assistant":
            if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
                yield f"messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, found {kinds[0]!r}"
            return


def _read_request(value: Mapping[str, Any]) -> ModelRequest:
    system = value.get("system") or ""
    tools = tuple(
        ToolSpec(name=tool["name"], description=tool.get("description", ""), parameters=tool["input_schema"])
        for tool in value.get("tools") or ()
    )
    messages: list[ModelMessage] = []
    names: dict[str, str] = {}
    for message in value["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if message["role"] == "user":
            messages += _read_user(blocks, names)
        else:
            messages.append(_read_reply(blocks, names, value["model"]))
    return ModelRequest(
        instructions=system if isinstance(system, str) else "\n".join(block["text"] for block in system),
        messages=tuple(messages),
        tools=tools,
    )


def _read_user(blocks: list[Block], names: Mapping[str, str]) -> Iterator[ModelMessage]:
    files: list[SentFile] = []
    for block in blocks:
        if block["type"] == "tool_result":
            called = block["tool_use_id"]
            yield ToolResult(
                call_id=called,
                tool=names.get(called, ""),
                content=_result_text(block.get("content")) or "",
                is_error=bool(block.get("is_error")),
            )
        elif block["type"] == "text":
            file = read_text_file(block["text"])
            if file is not None:
                files.append(file)
            else:
                yield read_words(block["text"], tuple(files))
                files = []
        else:
            source, name = block["source"], block.get("title", "")
            data = b64decode(source["data"])
            files.append(SentFile(id="", name=name, media_type=source["media_type"], data=data))


def _read_reply(blocks: list[Block], names: dict[str, str], model: str) -> AssistantMessage:
    calls = tuple(
        CallRequest(id=block["id"], name=block["name"], arguments=encode_json(block["input"]))
        for block in blocks
        if block["type"] == "tool_use"
    )
    names |= {call.id: call.name for call in calls}
    thinking = [block for block in blocks if block["type"] in ("thinking", "redacted_thinking")]
    return AssistantMessage(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        calls=calls,
        kept=keep(PROVIDER, model, {"blocks": thinking}) if thinking else None,
    )
