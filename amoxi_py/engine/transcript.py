"""The history that a model is given: built by one function, which keeps every call paired with its one result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amoxi_py.domain.encoding import readable_json
from amoxi_py.domain.file import File
from amoxi_py.domain.message import Message
from amoxi_py.domain.settle import NEVER_STARTED_TEXT
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    CallRequest,
    ModelMessage,
    SentFile,
    ToolResult,
    UserMessage,
)

_NO_FILES: Mapping[str, File] = {}
_NONE_SHOWN: Mapping[str, SentFile] = {}
FAILED_TEXT = "The tool failed."


def model_messages(
    messages: Iterable[Message],
    files: Mapping[str, File] = _NO_FILES,
    shown: Mapping[str, SentFile] = _NONE_SHOWN,
) -> tuple[ModelMessage, ...]:
    """Return stored messages in the form and the order that every provider accepts.

    `files` are those that people sent with them, by id; what is not there any more is told as deleted. `shown` are
    those of them whose bytes the model gets.
    """
    told: list[ModelMessage] = []
    for message in messages:
        if message.role == "user":
            notes = tuple(file_note(file_id, files.get(file_id)) for file_id in message.files)
            seen = tuple(shown[file_id] for file_id in message.files if file_id in shown)
            told.append(UserMessage(text=message.text, notes=notes, files=seen))
        elif message.calls:
            calls = tuple(CallRequest(id=call.id, name=call.tool, arguments=call.arguments) for call in message.calls)
            told.append(AssistantMessage(text=message.text, calls=calls, kept=message.kept))
            told.extend(_result(call) for call in message.calls)
        elif message.text.strip():
            told.append(AssistantMessage(text=message.text, kept=message.kept))
    return tuple(told)


def file_note(file_id: str, file: File | None) -> str:
    """Return the line by which a model knows a file; one that is not there any more is told as deleted."""
    if file is None:
        return f"[file {file_id}: deleted]"
    return f"[file {file_id}: {file.name!r}, {file.media_type}, {file.size} bytes]"


def _result(call: ToolCall) -> ToolResult:
    if call.result is None:  # its run has ended in a way that left it open; no provider accepts a call without a result
        return ToolResult(call_id=call.id, tool=call.tool, content=NEVER_STARTED_TEXT, is_error=True)
    content = readable_json(call.result)
    if call.is_error and not content.strip():  # no provider takes an error without a text
        content = FAILED_TEXT
    edited = call.approval.arguments if call.approval is not None else None
    if edited is not None:  # the history keeps what the model wrote, so it has to be told what was really done
        content += f"\n[A person changed the arguments before approving. The action was called with: {edited}]"
    return ToolResult(call_id=call.id, tool=call.tool, content=content, is_error=call.is_error)
