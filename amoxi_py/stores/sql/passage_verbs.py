"""The verbs of the port of passages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from amoxi_py.ports.passages import NewPassage, NewVector, Passage, Unembedded
from amoxi_py.ports.views import Page
from amoxi_py.stores.sql import passages as held
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.door import VerbDoor
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.verb import Act, Touches

T = TypeVar("T")


class PassageVerbs(VerbDoor):
    """`PassageStore` in terms of statements, and of what a dialect knows of vectors."""

    vectors_at_once = 64
    """The most vectors of a transaction of `keep_vectors`: other verbs wait for it."""

    async def prepare_embedder(self, embedder: str, dimensions: int) -> None:
        sizes = await self._read(lambda tx: tx.rows("vector_size", embedder=embedder))
        held.refuse_other_size(embedder, dimensions, sizes)
        await self._prepare_search(embedder, dimensions)

    async def _prepare_search(self, embedder: str, dimensions: int) -> None:
        """Make what the search of an embedder's vectors needs, where that is anything."""

    @abstractmethod
    def _nearest(
        self, tx: Transaction, space: int, version: int, limit: int, *, vector: bytes, embedder: str
    ) -> Sequence[int] | None:
        """Return the passages of a space in a version whose vectors are nearest and point the same way, nearest first.

        None where vectors cannot be compared.
        """

    def _stored_vector(self, vector: bytes) -> bytes:
        """Return the form in which a vector is stored."""
        return vector

    async def _wipe_words(self) -> None:
        """Return when the words of what was deleted are nowhere any more, where that takes a while."""

    def _wipe_words_soon(self) -> None:
        """Let that be done in the background."""

    async def keep_passages(
        self, space: str, passages: Sequence[NewPassage], embedder: str, *, at_most: int | None = None
    ) -> tuple[Passage, ...]:
        times: list[int] = []

        def keep(batch: Batch) -> tuple[tuple[Passage, ...], bool]:
            times.append(batch.now)  # a second pass, after a commit whose answer was lost, tells the time of the first
            return held.keep_passages(batch, space, passages, embedder, at_most, times[0], self._stored_vector)

        kept, gone = await self._in_spaces([space], keep)
        if gone:
            self._wipe_words_soon()
        return kept

    async def replace_source(
        self, space: str, source: str, digest: str, passages: Sequence[NewPassage], embedder: str
    ) -> None:
        def replace(batch: Batch) -> bool:
            return held.replace_source(batch, space, source, digest, passages, embedder, self._stored_vector)

        if await self._in_spaces([space], replace):
            self._wipe_words_soon()

    async def sources(self, space: str) -> dict[str, str]:
        return await self._read(lambda tx: held.sources(tx, space))

    async def forget_passages(self, space: str, names: Sequence[str]) -> int:
        return await self._forget([space], lambda batch: held.forget_passages(batch, space, names))

    async def forget_passage(self, space: str, id: str) -> bool:
        return await self._forget([space], lambda batch: held.forget_passage(batch, space, id)) > 0

    async def clear_space(self, space: str) -> int:
        total = 0
        while True:
            count = await self._forget([space], lambda batch: held.clear_some(batch, space))
            total += count
            if count < held.AT_ONCE:
                break
        return total

    async def list_passages(self, space: str, *, limit: int = 50, cursor: str | None = None) -> Page[Passage]:
        return await self._read(lambda tx: held.list_passages(tx, space, limit, cursor))

    async def search_passages(
        self, space: str, words: str, vector: bytes | None, embedder: str, limit: int
    ) -> tuple[Passage, ...]:
        def search(tx: Transaction) -> tuple[Passage, ...]:
            nearest = None if vector is None else partial(self._nearest, vector=vector, embedder=embedder)
            return held.search_passages(tx, space, words, limit, nearest)

        return await self._read(search)

    async def unembedded(self, embedder: str, limit: int) -> tuple[Unembedded, ...]:
        return await self._read(lambda tx: held.unembedded(tx, embedder, limit))

    async def keep_vectors(self, embedder: str, vectors: Sequence[NewVector]) -> None:
        for start in range(0, len(vectors), self.vectors_at_once):
            await self._keep_some_vectors(embedder, vectors[start : start + self.vectors_at_once])

    async def _keep_some_vectors(self, embedder: str, vectors: Sequence[NewVector]) -> None:
        spaces = await self._read(lambda tx: held.spaces_of_passages(tx, {one.key for one in vectors}))
        if spaces:
            await self._in_spaces(
                spaces, lambda batch: held.keep_vectors(batch, embedder, vectors, self._stored_vector)
            )

    async def drop_vectors(self, embedder: str, limit: int) -> bool:
        some = await self._read(lambda tx: held.vectors_of_others(tx, embedder, limit))
        if some:
            await self._in_spaces([name for *_, name in some], lambda batch: held.drop_vectors(batch, embedder, some))
        return len(some) == limit

    async def purge_memories(self, before: float, limit: int) -> int:
        until = millis(before)
        some = await self._read(lambda tx: held.old_memories(tx, until, limit))
        if not some:
            return 0
        return await self._forget([name for *_, name in some], lambda batch: held.purge_memories(batch, some, until))

    async def _forget(self, spaces: Iterable[str], forget: Callable[[Batch], int]) -> int:
        counts: list[int] = []

        def forget_once(batch: Batch) -> int:
            counts.append(forget(batch))
            return max(counts)  # a second pass, after a commit whose answer was lost, finds them gone

        count = await self._in_spaces(spaces, forget_once)
        if count:
            self._wipe_words_soon()
        return count

    async def _in_spaces(self, spaces: Iterable[str], do: Callable[[Batch], T]) -> T:
        """Do something in one transaction, before which nobody else writes to these spaces."""
        names = tuple(sorted({held.name_of_space(space) for space in spaces}))
        done: T = await self._perform(Act(do, touches=Touches(names=names)))
        return done
