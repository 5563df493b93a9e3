"""Markdown and plain text as blocks: parsed as CommonMark with tables, and shown as it was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from amoxi_py.app.documents.block import Block

if TYPE_CHECKING:
    from markdown_it.token import Token

BETWEEN_HEADINGS = " > "
_FRONT_MATTER = re.compile(
    r"""\A---[ \t]*\n
    (?=[\w-]+[ \t]*:|---)  # a key: else the line is a rule, and what follows it is told
    ((?:.*\n){0,200}?)
    (?:---|\.\.\.)[ \t]*(?:\n|\Z)""",
    re.VERBOSE,
)
_TITLE = re.compile(r"^title[ \t]*:[ \t]*([\"']?)(.+?)\1[ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"\s*<!--(?:(?!-->).)*-->\s*", re.DOTALL)
_EMPTY_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def markdown_blocks(text: str) -> Iterator[Block]:
    """Give the blocks of a Markdown document; a heading with nothing below it is a block by itself.

    Front matter and comments are left out, because they are not what a reader is told; but a title in front matter is
    that of the page, for which many sites have no heading.
    """
    from markdown_it import MarkdownIt  # here: only who reads Markdown waits for it

    text = text.replace("\r\n", "\n").replace("\r", "\n")
    above: list[tuple[int, str]] = []
    if front := _FRONT_MATTER.match(text):
        text = text[front.end() :]
        if named := _TITLE.search(front[1]):
            above.append((1, named[2]))  # a first heading of the highest rank takes its place
    lines = text.split("\n")
    bare = ""  # the place of a heading that nothing has followed yet
    of_headings = MarkdownIt("commonmark")
    tokens = MarkdownIt("commonmark").enable("table").disable("inline").parse(text)  # only headings are looked into
    for at, token in enumerate(tokens):
        if token.level or token.map is None:
            continue
        if token.type == "heading_open":
            depth, title = int(token.tag[1]), _plain(of_headings.parseInline(tokens[at + 1].content))
            if bare and above and depth <= above[-1][0]:
                yield Block(text="", place=bare)
            above = [*((d, t) for d, t in above if d < depth), (depth, title)] if title else above
            bare = BETWEEN_HEADINGS.join(title for _, title in above)
            continue
        written = "\n".join(lines[token.map[0] : token.map[1]]).strip("\n")
        if not written.strip() or token.type == "hr" or _COMMENT.fullmatch(written):
            continue
        bare = ""
        yield _block(token, written, BETWEEN_HEADINGS.join(title for _, title in above))
    if bare:
        yield Block(text="", place=bare)


def text_blocks(text: str) -> Iterator[Block]:
    """Give the paragraphs of a plain text."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n")
    for paragraph in _EMPTY_LINES.split(text):
        if paragraph.strip():
            yield Block(text=paragraph.strip("\n").rstrip())


def _block(token: Token, written: str, place: str) -> Block:
    lines = written.split("\n")
    if token.type == "fence":
        closed = len(lines) > 1 and lines[-1].strip().startswith(token.markup)
        return Block(text=written, place=place, head=lines[0], foot=lines[-1] if closed else "", prose=False)
    if token.type == "table_open":
        return Block(text=written, place=place, head="\n".join(lines[:2]), prose=False)
    return Block(text=written, place=place, prose=token.type in ("paragraph_open", "blockquote_open"))


def _plain(heading: list[Token]) -> str:
    """Return what is read of a heading, without its marks."""
    inline = (token for one in heading for token in one.children or ())
    parts = (token.content if token.type in ("text", "code_inline") else " " for token in inline)
    return " ".join("".join(parts).split())
