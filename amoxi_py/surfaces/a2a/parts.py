"""Parts of messages and artifacts: between our plain values and the protocol's, in which every number is a float."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError, SerializeToJsonError
from google.protobuf.struct_pb2 import Value

from amoxi_py.domain.encoding import encode_json_unicode
from amoxi_py.ports.files import StoredFile

FILES_PATH = "/a2a/files"
_EXACT = 2**53 - 1
"""The largest whole number that a float holds without loss, as its neighbours."""


def text_part(text: str) -> wire.Part:
    """Return a text as a part."""
    return wire.Part(text=text)


def data_part(value: Any) -> wire.Part:
    """Return a JSON value as a part; whole numbers that a float does not hold become texts.

    What is nested deeper than the protocol's library goes is given as JSON text.
    """
    try:
        return wire.Part(data=ParseDict(_exact(value), Value()))
    except (ParseError, RecursionError):
        return wire.Part(text=encode_json_unicode(value), media_type="application/json")


def file_part(stored: StoredFile, data: bytes | None, base: str) -> wire.Part:
    """Return a file as a part: its bytes, or without them where the same token opens it."""
    file = stored.file
    if data is None:
        return wire.Part(url=file_url(file.id, base), filename=file.name, media_type=file.media_type)
    return wire.Part(raw=data, filename=file.name, media_type=file.media_type)


def file_url(file_id: str, base: str) -> str:
    """Return where a caller of this app finds a file of its own."""
    return f"{base}{FILES_PATH}/{file_id}"


def value_of(part: wire.Part) -> Any:
    """Return the JSON value of a data part, with its whole numbers as such; raise `InvalidParamsError`.

    Its keys are in order, because the library has lost their own: so the same part always is the same text.
    """
    try:
        return _whole(MessageToDict(part.data))
    except (SerializeToJsonError, ValueError, RecursionError):
        raise InvalidParamsError("a data part holds what JSON has no form for, such as NaN") from None


def message_of_agent(run_id: str, context_id: str, message_id: str, parts: Sequence[wire.Part]) -> wire.Message:
    """Return a message of the agent about a task."""
    return wire.Message(message_id=message_id, context_id=context_id, task_id=run_id, role=wire.ROLE_AGENT, parts=parts)


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return value


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    return value
