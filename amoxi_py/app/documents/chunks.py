"""Where a document is cut: chunks of about 1,200 characters, on the borders of its blocks and never across a heading.

A chunk begins with the headings above it, because they often have the words that somebody looks for. What is said in
one chunk does not depend on what stands far before it, so that a change leaves most chunks of a file as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from amoxi_py.app.documents.block import Block

WANTED = 1200
LONGEST = 2000
_OVERLAP = 160
_LONGEST_PLACE = 300
_BETWEEN = "\n\n"
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage to be: its text, under 2,500 characters, and where it stands."""

    text: str
    place: str


def cut(blocks: Sequence[Block], *, headings: bool) -> list[Chunk]:
    """Return the chunks of a document; with `headings` a block's place begins its chunks' texts, too."""
    chunks: list[Chunk] = []
    for place, of_place in groupby(blocks, key=lambda block: block.place):
        shown = place if len(place) <= _LONGEST_PLACE else f"{place[: _LONGEST_PLACE - 1]}…"
        for text in _texts(list(of_place)):
            above = [shown] if headings and shown else []
            chunks.append(Chunk(_BETWEEN.join(part for part in (*above, text) if part), shown))
    return chunks


def _texts(blocks: list[Block]) -> Iterator[str]:
    """Put blocks together until there is enough, and say the end of one text again at the beginning of the next."""
    parts = [part for block in blocks for part in _parts(block)]
    text, last = "", None
    for part in parts:
        if last is not None and len(text) + len(_BETWEEN) + len(part.text) > WANTED:
            yield text
            text = _end_of(last)
        text = f"{text}{_BETWEEN}{part.text}" if text else part.text
        last = part
    if last is not None:
        yield text


def _end_of(block: Block) -> str:
    """Return the last sentences of prose, as many as are few characters."""
    if not block.prose:
        return ""
    end = ""
    for sentence in reversed(_SENTENCE.split(block.text)):
        if len(sentence) + len(end) > _OVERLAP:
            break
        end = f"{sentence} {end}".rstrip()
    return "" if end == block.text else end


def _parts(block: Block) -> Iterator[Block]:
    """Give a block as it is if it fits, else in parts: cut between lines, sentences, words, and then anywhere."""
    room = WANTED if block.prose else LONGEST
    if len(block.text) <= room:
        yield block
        return
    body = block.text.removeprefix(block.head).removesuffix(block.foot).strip("\n")
    room = WANTED - len(block.head) - len(block.foot)
    if room < WANTED // 2:  # the head is most of it, and is said once
        block, body, room = replace(block, head="", foot=""), block.text, WANTED
    text = ""
    for piece in _pieces(body, room):
        if len(text) + len(piece) > room:
            if text.strip():
                yield _framed(block, text)
            text = ""
        text += piece
    if text.strip():
        yield _framed(block, text)


def _framed(block: Block, text: str) -> Block:
    text = text.strip("\n") if not block.prose else text.strip()
    return replace(block, text="\n".join(part for part in (block.head, text, block.foot) if part))


def _pieces(text: str, room: int) -> Iterator[str]:
    """Give a text in pieces that are not longer than `room`, with what stands between them."""
    for line in text.splitlines(keepends=True):
        if len(line) <= room:
            yield line
            continue
        for sentence in re.split(r"(?<=[.!?…。！？])(?=\s)", line):
            if len(sentence) <= room:
                yield sentence
                continue
            for word in re.split(r"(?<=\s)", sentence):
                yield from (word[start : start + room] for start in range(0, len(word), room))
