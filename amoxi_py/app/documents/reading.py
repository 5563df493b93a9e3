"""What one file says, by the ending of its name: bytes to chunks, or why there are none."""

from __future__ import annotations

import codecs
import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath

from amoxi_py.app.documents.block import Unreadable
from amoxi_py.app.documents.chunks import Chunk, cut
from amoxi_py.app.documents.markdown import markdown_blocks, text_blocks
from amoxi_py.app.documents.pdf import pdf_blocks
from amoxi_py.domain.encoding import clean_text

MARKDOWN = (".md", ".markdown")
TEXT = (".txt", ".text", ".rst")
PDF = (".pdf",)
KINDS = (*MARKDOWN, *TEXT, *PDF)
LONGEST_TEXT = 8_000_000
LARGEST_PDF = 64_000_000
_CUT_BY = "1"  # another number lets all files be cut anew
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OLD = "cp1252"


@dataclass(frozen=True, slots=True)
class Read:
    """What a file says; `note` is what its reader should be told, such as a guessed encoding."""

    chunks: list[Chunk]
    note: str = ""


def kind_of(name: str) -> str:
    """Return the ending of a file's name, in small letters."""
    return PurePosixPath(name).suffix.lower()


def largest(kind: str) -> int:
    """Return how many bytes a file of a kind may have."""
    return LARGEST_PDF if kind in PDF else LONGEST_TEXT


def digest_of(content: bytes) -> str:
    """Return what changes when a file is to be read anew."""
    return f"{_CUT_BY}:{hashlib.sha256(content).hexdigest()}"


def read_document(kind: str, content: bytes) -> Read:
    """Return the chunks of a file of one of the `KINDS`; of an empty one there are none.

    Raises:
        Unreadable: it is not what its name says; the text says why.
    """
    if not content.strip():
        return Read([])
    if kind in PDF:
        blocks, note = list(pdf_blocks(content)), ""
        if sum(len(block.text) for block in blocks) > LONGEST_TEXT:
            raise Unreadable(f"its text is longer than {LONGEST_TEXT:,} characters")
    else:
        text, note = _decoded(content)
        blocks = list(markdown_blocks(text) if kind in MARKDOWN else text_blocks(text))
    chunks = cut(blocks, headings=kind in MARKDOWN)
    return Read([Chunk(clean_text(chunk.text), clean_text(chunk.place)) for chunk in chunks], note)


def _decoded(content: bytes) -> tuple[str, str]:
    for mark, encoding in _MARKS:
        if content.startswith(mark):
            try:
                return content.decode(encoding), ""
            except UnicodeDecodeError:
                raise Unreadable(f"it says that it is {encoding.upper()}, and is not") from None
    if b"\0" in content:
        raise Unreadable("it is no text: there are bytes of value 0 in it")
    try:
        return content.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return content.decode(_OLD, "replace"), f"it is not UTF-8 (line {line}) and was read as Windows-1252"
