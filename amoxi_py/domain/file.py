"""A file of a principal: what is told of it, and the one rule for its name and its media type."""

from __future__ import annotations

import hashlib
import mimetypes
import re
from dataclasses import dataclass

from amoxi_py.domain.encoding import clean_text

ANY_BYTES = "application/octet-stream"
_LONGEST_NAME = 200
_LONGEST_ENDING = 20
# Control characters, and those that turn the direction of a text around: `gpj.exe` must not be read as `exe.jpg`.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffd]")
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,60}/[a-z0-9][a-z0-9!#$&^_.+-]{0,60}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class File:
    """A stored file; the id is what messages, tools and `GET /files/{id}` know it by.

    Attributes:
        id: Such as `file_0193...`.
        name: Without any folder.
        media_type: Such as `text/csv`.
        size: In bytes.
    """

    id: str
    name: str
    media_type: str
    size: int


def clean_name(name: str) -> str:
    """Return a name that is no path and shows what it is: the last part, without what cannot be seen."""
    last = re.split(r"[/\\]", clean_text(name))[-1]
    plain = " ".join(_UNSEEN.sub("", last).split()).strip(". ")
    if len(plain) > _LONGEST_NAME:
        stem, dot, ending = plain.rpartition(".")
        kept = dot + ending if stem and len(ending) <= _LONGEST_ENDING else ""
        plain = plain[: _LONGEST_NAME - len(kept)] + kept
    return plain or "file"


def clean_media_type(told: str | None, name: str) -> str:
    """Return a media type without parameters: the one that was told, else the one that the name's ending means."""
    plain = (told or "").partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(plain) or plain == ANY_BYTES:
        plain = mimetypes.guess_type(name, strict=False)[0] or ANY_BYTES
    return plain


def saved_file_id(call_id: str, name: str) -> str:
    """Return the id of the file that a call saves under a name: the same whenever the call runs again."""
    digest = hashlib.sha256(f"{call_id}\n{name}".encode()).hexdigest()  # no name has a line break
    return f"file_{digest[:32]}"
