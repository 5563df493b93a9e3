"""The text of a PDF, page by page. Pictures of text have none: nothing is recognised here."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

from amoxi_py.app.documents.block import Block, Unreadable
from amoxi_py.app.documents.markdown import text_blocks

log = logging.getLogger("amoxi_py.documents")


def pdf_blocks(content: bytes) -> Iterator[Block]:
    """Give the paragraphs of all pages; the place of one is its page, `page 3`, counted from 1.

    Raises:
        Unreadable: it is no PDF, is damaged, has a password, or no text.
    """
    from pypdf import PdfReader  # here: only who reads a PDF waits for it

    found = False
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it has a password")
        for number, page in enumerate(reader.pages, 1):
            for block in text_blocks(page.extract_text()):
                found = True
                yield Block(text=block.text, place=f"page {number}")
    except Unreadable:
        raise
    except Exception as error:
        log.debug("a PDF cannot be read", exc_info=True)
        raise Unreadable(f"it cannot be read as a PDF: {type(error).__name__}: {str(error)[:200]}") from error
    if not found:
        raise Unreadable("there is no text in it: its pages may be pictures")
