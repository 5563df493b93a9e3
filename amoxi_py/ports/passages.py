"""What memory needs of durable storage: passages of text in spaces, found by their words and by their vectors together.

A space is one principal's memory, or one knowledge base. Nothing is ever found, listed or deleted across spaces, but by
who runs the app. A vector belongs to the embedder that made it; vectors of two embedders are never compared. A passage
is found by its words from the commit on that stored it, and by its meaning from when its vector is stored, which may be
in the same commit or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from amoxi_py.ports.views import Page


class NewPassage(Struct, frozen=True, kw_only=True):
    """A passage to store.

    Attributes:
        id: Its public id; who makes it makes the same one when the verb is sent again.
        name: Unique in its space: a newer passage of the name takes the older one's place, with the older one's id. Of
            a memory it is found by its words like the text, unless it is only the id.
        text: What is searched.
        metadata: JSON text of an object.
        source: What it comes from: passages of a source can be replaced together. None for memories.
        vector: Of its text: float32, little endian, one after the other, of length 1; None when it is made later.
        digest: Of the text, as its maker makes it; one that is the same as the stored one keeps the stored vectors.
    """

    id: str
    name: str
    text: str
    metadata: str = "{}"
    source: str | None = None
    vector: bytes | None = None
    digest: str = ""


class Passage(Struct, frozen=True, kw_only=True):
    """A stored passage; times are seconds since 1970. `score` is above 0 and at most 1, of a search."""

    id: str
    name: str
    text: str
    metadata: str
    source: str | None
    created_at: float
    updated_at: float
    score: float | None = None


class Unembedded(Struct, frozen=True, kw_only=True):
    """A passage that has no vector of an embedder; `version` changes with its text."""

    key: int
    version: int
    text: str


class NewVector(Struct, frozen=True, kw_only=True):
    """The vector of a passage's text in a version; it is dropped when the text is another one by now."""

    key: int
    version: int
    vector: bytes


class PassageStore(Protocol):
    """Passages, durably. `embedder` is the name of the embedder that a vector is of, such as `openai:...`."""

    async def prepare_embedder(self, embedder: str, dimensions: int) -> None:
        """Make what the search of this embedder's vectors needs (an index); once, when the app starts.

        Raises:
            ConfigError: the database cannot hold vectors, or none of so many dimensions; with the way out.
        """
        ...

    async def keep_passages(
        self, space: str, passages: Sequence[NewPassage], embedder: str, *, at_most: int | None = None
    ) -> tuple[Passage, ...]:
        """Store passages, each in place of the one of its name, and return them as they are stored now.

        Raises:
            Conflict: the space would hold more than `at_most` (`memory_full`); nothing was stored.
        """
        ...

    async def replace_source(
        self, space: str, source: str, digest: str, passages: Sequence[NewPassage], embedder: str
    ) -> None:
        """Let these be all passages of a source, in one transaction; of none, it is gone.

        `digest` is that of the whole source, as `sources` tells it.
        """
        ...

    async def sources(self, space: str) -> dict[str, str]:
        """Return the sources of a space, with their digests."""
        ...

    async def forget_passages(self, space: str, names: Sequence[str]) -> int:
        """Delete those of these names, at once and for good; return how many there were."""
        ...

    async def forget_passage(self, space: str, id: str) -> bool:
        """Delete one by its id; return whether it was there."""
        ...

    async def clear_space(self, space: str) -> int:
        """Delete all of a space, its sources too; return how many passages there were."""
        ...

    async def list_passages(self, space: str, *, limit: int = 50, cursor: str | None = None) -> Page[Passage]:
        """Return passages, the one that was written last first; raise `InvalidRequest` for a cursor that is none."""
        ...

    async def search_passages(
        self, space: str, words: str, vector: bytes | None, embedder: str, limit: int
    ) -> tuple[Passage, ...]:
        """Return those that fit best, the best first: by the words of a text and by its vector, together.

        A passage that fits in one of the two ways alone is found, too. Words that no passage has are no error, and
        nothing in `words` is a command of a search language.
        """
        ...

    async def unembedded(self, embedder: str, limit: int) -> tuple[Unembedded, ...]:
        """Return passages without a vector of an embedder, of all spaces; those without any first."""
        ...

    async def keep_vectors(self, embedder: str, vectors: Sequence[NewVector]) -> None:
        """Store vectors."""
        ...

    async def drop_vectors(self, embedder: str, limit: int) -> bool:
        """Delete some vectors that are not of this embedder; return whether there are more."""
        ...

    async def purge_memories(self, before: float, limit: int) -> int:
        """Delete some memories of principals that were written last before a time; return how many."""
        ...
