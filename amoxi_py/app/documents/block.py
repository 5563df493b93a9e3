"""A block: what a reader finds in a document, with where it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of a document that is not cut if it fits.

    Attributes:
        text: As it is written; without a line break at its ends.
        place: Where it stands: the headings above it, or its page.
        head: What stands before each part if it is cut: the head of a table, the fence of code.
        foot: What stands after each part.
        prose: Whether it is sentences, of which the last ones may be told again in front of the next chunk.
    """

    text: str
    place: str = ""
    head: str = ""
    foot: str = ""
    prose: bool = True


class Unreadable(Exception):
    """A file that cannot be read as what its name says; the text says why."""
