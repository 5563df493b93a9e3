"""What is done for memories in the background: vectors that are missing are made, what is too old is deleted.

Any server may do it, several too: a vector that is made twice is stored once. What is done is stored in small batches,
so a server that ends in the middle leaves the rest to the next one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from amoxi_py.engine.embedding import OF_THE_TEXT, Embedding
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.errors import ModelFailed, StoreUnavailable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.passages import NewVector, PassageStore, Unembedded

log = logging.getLogger("amoxi_py.memory")

_BATCH = 64
_TO_CHOOSE_FROM = 4 * _BATCH
_MOST_LETTERS = 100_000
_DROPPED_AT_ONCE = 500
_PURGED_AT_ONCE = 500
_BETWEEN_PURGES_S = 3600.0
_DAY_S = 86_400.0


class MemoryKeeping:
    """The background work of one process for memories; `wake` lets it look for texts without a vector now."""

    def __init__(
        self, store: PassageStore, memories: Memories, embedding: Embedding, settings: EngineSettings, clock: Clock
    ) -> None:
        self._store = store
        self._memories = memories
        self._embedding = embedding
        self._settings = settings
        self._clock = clock
        self._due = asyncio.Event()
        self._refused: set[tuple[int, int]] = set()
        self._caught_up = False
        self._purge_at = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._keep_for_ever())

    def wake(self) -> None:
        """Look now: a text was stored without its vector."""
        self._due.set()

    async def stop(self) -> None:
        """End it; what is stored stays."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def _keep_for_ever(self) -> None:
        while True:
            self._due.clear()
            try:
                await self._purge()
                await self.embed_all()
            except (ModelFailed, StoreUnavailable) as error:
                log.debug("memories wait for their vectors: %s", error)
            except Exception:
                log.exception("keeping memories failed; it is tried again")
            pause = self._embedding.rest or self._settings.memory_poll
            try:
                await asyncio.wait_for(self._due.wait(), pause)
            except TimeoutError:
                continue
            if self._embedding.rest > 0:
                await asyncio.sleep(self._embedding.rest)

    async def embed_all(self, on_made: Callable[[int], None] = lambda count: None) -> None:
        """Make vectors until none is missing; the first time, those of earlier embedders are dropped then.

        Only the first time, because a server that is still set to another embedder makes its vectors anew. `on_made`
        is told how many more there are.

        Raises:
            ModelFailed: the embedder is away.
        """
        if not self._embedding.usable:
            return
        told = 0
        while batch := await self._next_batch():
            if not told:
                await self._memories.prepare()
                if not self._embedding.usable:
                    return
            vectors = await self._vectors_of(batch)
            await self._store.keep_vectors(self._embedding.name, vectors)
            told += len(vectors)
            on_made(len(vectors))
        if told:
            log.info("%d texts of memories and documents have their vectors of %s now", told, self._embedding.name)
        if not self._caught_up:
            while await self._store.drop_vectors(self._embedding.name, _DROPPED_AT_ONCE):
                pass
            self._caught_up = True

    async def _next_batch(self) -> Sequence[Unembedded]:
        """Return texts without a vector; of many some by chance, so that servers that begin at once part the work."""
        found = await self._store.unembedded(self._embedding.name, _TO_CHOOSE_FROM + len(self._refused))
        left = [one for one in found if (one.key, one.version) not in self._refused]
        if len(left) > _BATCH:
            left = random.sample(left, _BATCH)
        batch: list[Unembedded] = []
        letters = 0
        for one in left:
            letters += len(one.text)
            if batch and letters > _MOST_LETTERS:
                break
            batch.append(one)
        return batch

    async def _vectors_of(self, batch: Sequence[Unembedded]) -> list[NewVector]:
        """Return the vectors of a batch; one that is refused is asked for one by one, and its refused texts kept out.

        Raises:
            ModelFailed: the embedder is away.
        """
        try:
            vectors = await self._embedding.of([one.text for one in batch])
        except ModelFailed as error:
            if error.code not in OF_THE_TEXT:
                raise
            if len(batch) > 1:
                return [new for one in batch for new in await self._vectors_of([one])]
            self._refused.add((batch[0].key, batch[0].version))
            log.warning("the embedder %s refuses a text, which is found by its words: %s", self._embedding.name, error)
            return []
        return [
            NewVector(key=one.key, version=one.version, vector=vector)
            for one, vector in zip(batch, vectors, strict=True)
        ]

    async def _purge(self) -> None:
        """Delete memories that were written last too long ago, once an hour."""
        days, now = self._settings.memory_days, self._clock.now()
        if not days or now < self._purge_at:
            return
        deleted = 0
        while done := await self._store.purge_memories(now - days * _DAY_S, _PURGED_AT_ONCE):
            deleted += done
        self._purge_at = now + _BETWEEN_PURGES_S
        if deleted:
            log.info("%d memories were deleted, which are older than %d days", deleted, days)
