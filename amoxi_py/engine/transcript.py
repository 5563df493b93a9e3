"""The history that a model is given: built by one function, which keeps every call paired with its one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amoxi_py.domain.encoding import decode_json, encode_json_unicode
from amoxi_py.domain.file import File
from amoxi_py.domain.message import Message
from amoxi_py.domain.settle import NEVER_STARTED_TEXT
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.ports.chat_model import AssistantMessage, CallRequest, ModelMessage, ToolResult, UserMessage

_NO_FILES: Mapping[str, File] = {}
FAILED_TEXT = "The tool failed."


def model_messages(messages: Iterable[Message], files: Mapping[str, File] = _NO_FILES) -> tuple[ModelMessage, ...]:
    """Return stored messages in the form and the order that every provider accepts.

    `files` are those that people sent with them, by id; what is not there any more is told as deleted.
    """
    told: list[ModelMessage] = []
    for message in messages:
        if message.role == "user":
            notes = tuple(_note(file_id, files.get(file_id)) for file_id in message.files)
            told.append(UserMessage(text=message.text, notes=notes))
        elif message.calls:
            calls = tuple(CallRequest(id=call.id, name=call.tool, arguments=call.arguments) for call in message.calls)
            told.append(AssistantMessage(text=message.text, calls=calls))
            told.extend(_result(call) for call in message.calls)
        elif message.text.strip():
            told.append(AssistantMessage(text=message.text))
    return tuple(told)


def _note(file_id: str, file: File | None) -> str:
    if file is None:
        return f"[file {file_id}: deleted]"
    return f"[file {file_id}: {file.name!r}, {file.media_type}, {file.size} bytes]"


def _result(call: ToolCall) -> ToolResult:
    if call.result is None:  # its run has ended in a way that left it open; no provider accepts a call without a result
        return ToolResult(call_id=call.id, tool=call.tool, content=NEVER_STARTED_TEXT, is_error=True)
    content = _content(call.result)
    if call.is_error and not content.strip():  # no provider takes an error without a text
        content = FAILED_TEXT
    edited = call.approval.arguments if call.approval is not None else None
    if edited is not None:  # the history keeps what the model wrote, so it has to be told what was really done
        content += f"\n[A person changed the arguments before approving. The action was called with: {edited}]"
    return ToolResult(call_id=call.id, tool=call.tool, content=content, is_error=call.is_error)


def _content(result: str) -> str:
    """Return what a model reads of a stored result: a text as it is, other values as JSON with readable letters."""
    if result[0] != '"' and "\\u" not in result:  # written by `encode_json`, and so it would be written again
        return result
    value = decode_json(result)
    return value if isinstance(value, str) else encode_json_unicode(value)
