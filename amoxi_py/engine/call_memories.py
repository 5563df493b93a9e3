"""The memory of whom a call is for, as the code of the call reaches it: the principal comes from the run alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from amoxi_py.domain.ids import memory_id
from amoxi_py.domain.memory import Citation, Memory
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.memories import Memories, checked_text

T = TypeVar("T")


class CallMemories(Protocol):
    """What a context does with memories and documents; the errors are those of `Memories`."""

    async def remember(self, text: str, key: str | None, metadata: Mapping[str, Any] | None) -> Memory:
        """Keep a text."""
        ...

    async def recall(self, query: str, limit: int) -> tuple[Memory, ...]:
        """Return what fits best."""
        ...

    async def forget(self, key: str) -> bool:
        """Delete the memory of a key, or of an id."""
        ...

    async def search_docs(self, query: str, base: str, limit: int) -> tuple[Citation, ...]:
        """Return passages of a knowledge base."""
        ...


class MemoriesToRead:
    """`CallMemories` for code that only looks: `where` says which."""

    def __init__(self, memories: Memories, principal: Principal, where: str) -> None:
        self._memories = memories
        self._principal = principal
        self._where = where

    async def remember(self, text: str, key: str | None, metadata: Mapping[str, Any] | None) -> Memory:
        raise ValueError(f"something can only be remembered in the tool itself, not in {self._where}")

    async def recall(self, query: str, limit: int) -> tuple[Memory, ...]:
        return await self._memories.recall(self._principal, query, limit)

    async def forget(self, key: str) -> bool:
        raise ValueError(f"something can only be forgotten in the tool itself, not in {self._where}")

    async def search_docs(self, query: str, base: str, limit: int) -> tuple[Citation, ...]:
        return await self._memories.search_docs(query, base=base, limit=limit)


class MemoriesOfCall(MemoriesToRead):
    """`CallMemories` of one try of a call.

    What has no key gets an id that is made of the call's and of the text, so a call or a step that runs again remembers
    the same things once, whatever of it does not run again.

    Args:
        memories: Those of all.
        principal: Whose run it is.
        call_id: The call.
        prove: Raises when the lease of the run is lost.
        persist: Does something again and again while the store is away.
    """

    def __init__(
        self,
        memories: Memories,
        principal: Principal,
        call_id: str,
        prove: Callable[[], Awaitable[None]],
        persist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:
        super().__init__(memories, principal, "")
        self._call_id = call_id
        self._prove = prove
        self._persist = persist

    async def remember(self, text: str, key: str | None, metadata: Mapping[str, Any] | None) -> Memory:
        new_id = memory_id(self._call_id, checked_text(text, "what is to be remembered"))
        kept: Memory = await self._persist(
            lambda: self._memories.remember(
                self._principal, text, key=key, metadata=metadata, id=new_id, prove=self._prove
            )
        )
        return kept

    async def forget(self, key: str) -> bool:
        async def forget_once() -> bool:
            await self._prove()
            return await self._memories.forget(self._principal, key)

        return bool(await self._persist(forget_once))
