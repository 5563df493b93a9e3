"""What is remembered of a principal, and what an app's documents say: kept, found, listed and forgotten.

Whose memory it is, the caller's principal says, and nothing else: no text, key or id reaches another one's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2s
from typing import Any

from amoxi_py.domain.encoding import clean_text, decode_json, encode_json
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.memory import (
    DOCS,
    LONGEST_METADATA,
    LONGEST_NAME,
    LONGEST_TEXT,
    MOST_FOUND,
    Citation,
    Memory,
    space_of,
    space_of_documents,
)
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.embedding import Embedding
from amoxi_py.engine.redaction import Redaction
from amoxi_py.errors import ConfigError, Conflict, InvalidRequest, NotFound, StoreUnavailable, ValueNotStorable
from amoxi_py.ports.passages import NewPassage, Passage, PassageStore
from amoxi_py.ports.views import Page

log = logging.getLogger("amoxi_py.memory")

_MOMENT_S = 1.0


class Memories:
    """The memories of all principals, and the knowledge bases.

    Args:
        store: Keeps them.
        embedding: Makes their vectors.
        redaction: Hides in what is remembered and searched for.
        most: How many memories a principal may have.
        on_waiting: Told that a text was stored without its vector.
    """

    def __init__(
        self,
        store: PassageStore,
        embedding: Embedding,
        redaction: Redaction,
        *,
        most: int,
        on_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self.on_waiting = on_waiting
        self._store = store
        self._embedding = embedding
        self._redaction = redaction
        self._most = most
        self._prepared = False
        self._preparing = asyncio.Lock()
        self._making_ready: asyncio.Task[None] | None = None
        self._told_empty: set[str] = set()

    @property
    def embedder(self) -> str:
        """The name that vectors are stored under."""
        return self._embedding.name

    async def start(self) -> None:
        """Refuse an embedder whose vectors the store cannot hold; what is lexical is made ready when it is used.

        Raises:
            ConfigError, StoreUnavailable: as for `prepare`.
        """
        if not self._embedding.lexical:
            await self.prepare()

    async def prepare(self) -> None:
        """Make ready what the search by vectors needs, once.

        Raises:
            ConfigError: the database cannot hold them, and the embedder is one that makes a difference.
            StoreUnavailable: the store cannot be used now.
        """
        if self._prepared or not self._embedding.usable:
            return
        async with self._preparing:
            if self._prepared:
                return
            try:
                await self._store.prepare_embedder(self._embedding.name, self._embedding.dimensions)
            except ConfigError as error:
                if not self._embedding.lexical:
                    raise
                log.warning("memories are searched by words alone: %s", "; ".join(error.problems))
                self._embedding.usable = False
            self._prepared = True

    async def stop(self) -> None:
        """End what is made ready in the background."""
        task, self._making_ready = self._making_ready, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    async def remember(
        self,
        principal: Principal,
        text: str,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        prove: Callable[[], Awaitable[None]] | None = None,
    ) -> Memory:
        """Keep a text for a principal and return it as it is stored; with a key in place of what had that key.

        Args:
            principal: Whose memory.
            text: At most 8,000 characters.
            key: A name of its own, at most 200 characters.
            metadata: Plain JSON, at most 4,000 characters of it.
            id: Of a new memory; the same one twice is the same memory.
            prove: Raises when the caller may not write any more; asked right before it is stored.

        Raises:
            InvalidRequest: one of them cannot be kept.
            Conflict: the principal has as many memories as it may have (`memory_full`).
        """
        text = self._redaction.text(checked_text(text, "what is to be remembered"))
        memory_id = id or new_id("mem")
        name = memory_id if key is None else self._redaction.text(checked_key(key))
        hidden = self._redaction.json(checked_metadata(metadata))
        await self._be_ready()
        vector = await self._embedding.soon(text)
        new = NewPassage(
            id=memory_id, name=name, text=text, metadata=hidden, vector=vector, digest=digest_of_text(text)
        )
        if prove is not None:  # the embedder may have taken seconds
            await prove()
        try:
            (kept,) = await self._store.keep_passages(
                space_of(principal), (new,), self._embedding.name, at_most=self._most
            )
        except Conflict as error:
            if error.code != "memory_full":
                raise
            raise Conflict(
                f"{self._most} memories are kept already, which is the most; forget some first", code="memory_full"
            ) from None
        if vector is None and self._embedding.usable:
            self.on_waiting()
        return memory_of(kept)

    async def recall(self, principal: Principal, query: str, limit: int = 5) -> tuple[Memory, ...]:
        """Return what a principal's memory has that fits best, the best first; raise `InvalidRequest`."""
        return tuple(map(memory_of, await self._search(space_of(principal), query, limit)))

    async def at_start(self, principal: Principal, message: str, limit: int) -> tuple[Memory, ...]:
        """Return the few memories that a run begins with: those that fit its message best, then the newest."""
        if limit == 0:
            return ()
        page = await self.list(principal, limit=limit)
        query = message.strip()[:LONGEST_TEXT]
        if page.next_cursor is None or not query:
            return page.items
        found = await self.recall(principal, query, limit)
        known = {memory.id for memory in found}
        return (*found, *(memory for memory in page.items if memory.id not in known))[:limit]

    async def forget(self, principal: Principal, key: str) -> bool:
        """Delete the memory of a key, or of an id, at once and for good; return whether there was one.

        Raises:
            InvalidRequest: the key cannot be one.
        """
        name, space = self._redaction.text(checked_key(key)), space_of(principal)
        if await self._store.forget_passages(space, (name,)):
            return True
        return name.startswith("mem_") and await self._store.forget_passage(space, name)

    async def delete(self, principal: Principal, id: str) -> None:
        """Delete a memory by its id, at once and for good; raise `NotFound`."""
        if clean_text(id) != id or not await self._store.forget_passage(space_of(principal), id):
            raise NotFound("memory", id)

    async def clear(self, principal: Principal) -> int:
        """Delete all memories of a principal, and return how many there were."""
        return await self._store.clear_space(space_of(principal))

    async def list(self, principal: Principal, *, limit: int = 50, cursor: str | None = None) -> Page[Memory]:
        """Return a principal's memories, the one that was written last first; raise `InvalidRequest`."""
        page = await self._store.list_passages(space_of(principal), limit=limit, cursor=cursor)
        return Page(items=tuple(map(memory_of, page.items)), next_cursor=page.next_cursor)

    async def search_docs(self, query: str, *, base: str = DOCS, limit: int = 5) -> tuple[Citation, ...]:
        """Return the passages of a knowledge base that fit best, the best first; raise `InvalidRequest`."""
        base = checked_base(base)
        space = space_of_documents(base)
        found = tuple(map(citation_of, await self._search(space, query, limit)))
        if not found and base not in self._told_empty:
            page = await self._store.list_passages(space, limit=1)
            if not page.items:
                self._told_empty.add(base)
                log.warning("the knowledge base %r is empty: fill it with amoxi ingest FOLDER --base %s", base, base)
        return found

    async def _be_ready(self) -> None:
        """Let things be made ready, and wait for it a moment, once: until then a search is only slower."""
        under_way = self._making_ready is not None and not self._making_ready.done()
        if self._prepared or under_way or not self._embedding.usable:
            return
        self._making_ready = asyncio.get_running_loop().create_task(self._make_ready())
        await asyncio.wait((self._making_ready,), timeout=_MOMENT_S)

    async def _make_ready(self) -> None:
        try:
            await self.prepare()
        except StoreUnavailable as error:
            log.debug("the search of memories is made ready later: %s", error)

    async def _search(self, space: str, query: str, limit: int) -> tuple[Passage, ...]:
        query = self._redaction.text(checked_text(query, "what is searched for"))
        checked_limit(limit)
        await self._be_ready()
        vector = await self._embedding.soon(query)
        return await self._store.search_passages(space, query, vector, self._embedding.name, limit)


def memory_of(passage: Passage) -> Memory:
    """Return a passage of a principal's space as its memory."""
    return Memory(
        id=passage.id,
        key=None if passage.name == passage.id else passage.name,
        text=passage.text,
        metadata=decode_json(passage.metadata),
        created_at=passage.created_at,
        updated_at=passage.updated_at,
        score=passage.score,
    )


def citation_of(passage: Passage) -> Citation:
    """Return a passage of a knowledge base, found by a search, with where it stands."""
    place = decode_json(passage.metadata).get("place", "")
    return Citation(source=passage.source or "", place=str(place), text=passage.text, score=passage.score or 0.0)


def digest_of_text(text: str) -> str:
    """Return what is stored to see whether a text, and with it its vectors, is another one now."""
    return blake2s(text.encode()).hexdigest()


def checked_text(text: object, what: str) -> str:
    """Return a text as it is stored; `what` says what it is."""
    if not isinstance(text, str) or not text.strip():
        raise _invalid(f"{what} must be a text that is not empty, not {text!r:.100}")
    text = clean_text(text).strip()
    if len(text) > LONGEST_TEXT:
        raise _invalid(f"{what} has {len(text)} characters; {LONGEST_TEXT} fit: shorten it, or part it")
    return text


def checked_key(key: object) -> str:
    """Return a key as it is stored."""
    if not isinstance(key, str) or not key.strip():
        raise _invalid(f"the key of a memory must be a text such as 'address', not {key!r:.100}")
    key = clean_text(key).strip()
    if len(key) > LONGEST_NAME:
        raise _invalid(f"the key of a memory has {len(key)} characters; {LONGEST_NAME} fit")
    return key


def checked_base(base: object) -> str:
    """Return the name of a knowledge base."""
    if not isinstance(base, str) or not base.strip() or len(base) > LONGEST_NAME or clean_text(base) != base:
        raise _invalid(f"the name of a knowledge base must be a short text such as {DOCS!r}, not {base!r:.100}")
    return base


def checked_metadata(metadata: object) -> str:
    """Return metadata as JSON text."""
    if metadata is None:
        return "{}"
    if not isinstance(metadata, Mapping):
        raise _invalid(f"the metadata of a memory must be a dict of plain JSON values, not {metadata!r:.100}")
    try:
        text = encode_json(dict(metadata))
    except ValueNotStorable as error:
        raise _invalid(f"the metadata of a memory must be plain JSON: {error}") from None
    if len(text) > LONGEST_METADATA:
        raise _invalid(f"the metadata of a memory has {len(text)} characters of JSON; {LONGEST_METADATA} fit")
    return text


def checked_limit(limit: object) -> int:
    """Return how many are to be found at most."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_FOUND:
        raise _invalid(f"the limit {limit!r} must be a whole number from 1 to {MOST_FOUND}")
    return limit


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="memory_invalid")
