"""What a caller's message holds: text, data and files, as a run gets them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from msgspec import Struct

from amoxi_py.domain.encoding import clean_json, encode_json, encode_json_unicode
from amoxi_py.errors import ValueNotStorable
from amoxi_py.surfaces.a2a.parts import value_of

_FILE_NAME = "file"
_MODE = re.compile(r"\*|\*/\*|text|json|(?:text|application|image|audio|video|font|model)/.+", re.IGNORECASE)
"""A mode of answers: of the texts and the data that all agents give, or of the files that some do."""
_LONGEST_ID = 512
_NO_ID = re.compile(r"[\x00-\x1f\x7f-\x9f\ufffd]")
"""What no id has: control characters, and the sign that stands in the place of what cannot be stored."""


class GivenFile(Struct, frozen=True, kw_only=True):
    """A file that came with a message."""

    name: str
    media_type: str | None
    data: bytes


class Incoming(Struct, frozen=True, kw_only=True):
    """The parts of a message by what they are."""

    texts: tuple[str, ...]
    data: tuple[Any, ...]
    files: tuple[GivenFile, ...]

    @property
    def said(self) -> str:
        """The message as an agent reads it."""
        return "\n\n".join([*self.texts, *map(encode_json_unicode, self.data)])

    def digest(self, *more: str | None) -> str:
        """Return what is the same for the same message alone; `more` is what else belongs to it."""
        files = [[file.name, file.media_type, hashlib.sha256(file.data).hexdigest()] for file in self.files]
        content = encode_json([list(self.texts), list(self.data), files, list(more)])
        return hashlib.sha256(content.encode()).hexdigest()


def read_message(message: wire.Message) -> Incoming:
    """Return what a message holds.

    Raises:
        InvalidParamsError: it is no message of a caller, an id of it is none, or a part of it holds nothing that can be
            used.
        ContentTypeNotSupportedError: a file is somewhere else, and nothing is fetched.
    """
    _check_id("messageId", message.message_id)
    _check_id("contextId", message.context_id)
    if message.role == wire.ROLE_AGENT:
        raise InvalidParamsError("a message to an agent has the role of the user")
    texts: list[str] = []
    data: list[Any] = []
    files: list[GivenFile] = []
    for part in message.parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            texts.append(part.text)
        elif kind == "data":
            data.append(_storable(value_of(part)))
        elif kind == "raw":
            name = part.filename or _FILE_NAME
            files.append(GivenFile(name=name, media_type=part.media_type or None, data=part.raw))
        elif kind == "url":
            raise ContentTypeNotSupportedError("files by url are not fetched; send the bytes instead")
        else:
            raise InvalidParamsError("a part holds none of text, data and raw")
    return Incoming(texts=tuple(texts), data=tuple(data), files=tuple(files))


def check_output_modes(accepted: Sequence[str]) -> None:
    """Raise `ContentTypeNotSupportedError` when a caller takes nothing that an agent here could give.

    Which kinds of files an agent gives is known when it has given them, so none is refused before.
    """
    if accepted and not any(_MODE.fullmatch(mode.strip()) for mode in accepted):
        raise ContentTypeNotSupportedError("agents here give text, JSON and files; accept one of them")


def _check_id(field: str, id: str) -> None:
    if len(id) > _LONGEST_ID:
        raise InvalidParamsError(f"the {field} is longer than {_LONGEST_ID} characters")
    if _NO_ID.search(id):
        raise InvalidParamsError(f"the {field} has a control character, or one that cannot be stored")


def _storable(value: Any) -> Any:
    try:
        return clean_json(value)
    except ValueNotStorable as error:
        raise InvalidParamsError(f"a data part cannot be stored: {error}") from None
