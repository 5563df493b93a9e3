"""Files that came with a person's message, as a model is shown them: which can be shown, as what, and in which form.

What a file is, is told by its bytes and not by what its sender called it: a provider refuses a picture under a wrong
type, and with it every later request of the conversation. A file that is not shown still has its note in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from amoxi_py.domain.encoding import clean_text
from amoxi_py.models.encoded_files import ENCODED
from amoxi_py.ports.chat_model import ModelMessage, SentFile, UserMessage

PICTURE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"
LARGEST_TEXT = 256 * 1024
_TEXTS = re.compile(r"text/.+|application/(?:[\w.-]+\+)?(?:json|xml|yaml|x-yaml|toml|csv|x-ndjson|javascript|sql)")
_TEXT_HEAD = re.compile(r"\A\[content of the file (?P<name>[^\n]*)\]\n")
_NOTES = re.compile(r"(?:\A|\n)(\[file file_[0-9a-z]+: [^\n]*\])(?=\n\[file file_|\Z)")

Form = Literal["picture", "pdf", "text"]
FORM_NAMES: dict[str, Form] = {"pictures": "picture", "documents": "pdf", "texts": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """What one provider takes: bytes of one picture and of one document, pictures, and bytes of all, in one request."""

    picture: int
    document: int
    pictures: int
    all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFile:
    """A file that is shown: `media_type` is what its bytes are."""

    form: Form
    name: str
    media_type: str
    data: bytes

    @property
    def base64(self) -> str:
        """The bytes in base64."""
        return ENCODED.of(self.data)

    @property
    def text(self) -> str:
        """The content of a text file under a line that names it, so that it is not taken for the person's words."""
        return f"[content of the file {self.name!r}]\n{clean_text(self.data.decode())}"


class ShownFiles:
    """Which files of a history are shown: those within the limits, the newest first."""

    def __init__(self, messages: Iterable[ModelMessage], limits: FileLimits) -> None:
        self._shown: dict[int, list[ShownFile]] = {}
        pictures, left = limits.pictures, limits.all
        with_files = [message for message in messages if isinstance(message, UserMessage) and message.files]
        for message in reversed(with_files):
            for file in message.files:
                shown = look_at(file)
                if shown is None or len(file.data) > left:
                    continue
                if shown.form == "picture":
                    if pictures == 0 or len(file.data) > limits.picture:
                        continue
                    pictures -= 1
                elif shown.form == "pdf" and len(file.data) > limits.document:
                    continue
                left -= len(file.data)
                self._shown.setdefault(id(message), []).append(shown)

    def of(self, message: UserMessage) -> list[ShownFile]:
        """Return the files of a message of that history that are shown, in order."""
        return self._shown.get(id(message), [])


def read_forms(option: object, default: frozenset[Form]) -> frozenset[Form]:
    """Return the forms that the option `show_files` of a model names, which was checked before."""
    if option is None:
        return default
    if isinstance(option, (list, tuple, set, frozenset)):
        return frozenset(FORM_NAMES[name] for name in option)
    return frozenset(FORM_NAMES.values()) if option else frozenset()


def look_at(file: SentFile) -> ShownFile | None:
    """Return how a file can be shown to a model, or None."""
    form: Form
    kind = picture_type(file.data)
    if kind is not None:
        form = "picture"
    elif file.data.startswith(b"%PDF-"):
        form, kind = "pdf", PDF
    elif _TEXTS.fullmatch(file.media_type.partition(";")[0].strip().lower()) and _is_text(file.data):
        form, kind = "text", "text/plain"
    else:
        return None
    return ShownFile(form=form, name=clean_text(file.name), media_type=kind, data=file.data)


def picture_type(data: bytes) -> str | None:
    """Return the media type of a picture that every provider takes, told by its first bytes, or None."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def read_text_file(text: str) -> SentFile | None:
    """Return the file that a text on the wire is the content of, or None for a person's words."""
    found = _TEXT_HEAD.match(text)
    if found is None:
        return None
    name = found["name"].strip("'\"")
    return SentFile(id="", name=name, media_type="text/plain", data=text[found.end() :].encode())


def read_words(text: str, files: tuple[SentFile, ...] = ()) -> UserMessage:
    """Return a person's message as it was before its notes were added to its text."""
    said, *notes = _NOTES.split(text)
    return UserMessage(text=said, notes=tuple(filter(None, notes)), files=files)


def _is_text(data: bytes) -> bool:
    if not data.strip() or len(data) > LARGEST_TEXT or b"\0" in data:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
