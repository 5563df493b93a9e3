"""The memory of a context: what a test gives, and what the tool remembers, found by words that are alike."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.ids import memory_id
from amoxi_py.domain.memory import Citation, Memory
from amoxi_py.engine.memories import checked_base, checked_key, checked_limit, checked_metadata, checked_text
from amoxi_py.models.offline_embedder import vector_of


class MemoriesInMemory:
    """What is remembered of who asks, in the order of writing; it has no documents."""

    def __init__(self, call_id: str, given: Mapping[str, str]) -> None:
        self.kept: dict[str, Memory] = {}
        self._call_id = call_id
        for key, text in given.items():
            self._keep(f"mem_{key}", key, checked_text(text, "a memory"), {})

    async def remember(self, text: str, key: str | None, metadata: Mapping[str, Any] | None) -> Memory:
        text = checked_text(text, "what is to be remembered")
        new_id = memory_id(self._call_id, text)
        name = None if key is None else checked_key(key)
        return self._keep(new_id, name, text, decode_json(checked_metadata(metadata)))

    async def recall(self, query: str, limit: int) -> tuple[Memory, ...]:
        wanted = vector_of(checked_text(query, "what is searched for"))
        checked_limit(limit)
        found = [replace(memory, score=_cosine(wanted, _vector_of(memory))) for memory in self.kept.values()]
        found.sort(key=lambda memory: -(memory.score or 0.0))
        return tuple(memory for memory in found[:limit] if (memory.score or 0.0) > 0)

    async def forget(self, key: str) -> bool:
        key = checked_key(key)
        for name, memory in self.kept.items():
            if key in (name, memory.id):
                del self.kept[name]
                return True
        return False

    async def search_docs(self, query: str, base: str, limit: int) -> tuple[Citation, ...]:
        checked_text(query, "what is searched for")
        checked_base(base)
        checked_limit(limit)
        return ()

    def _keep(self, id: str, key: str | None, text: str, metadata: dict[str, Any]) -> Memory:
        now, name = time.time(), key or id
        old = self.kept.pop(name, None)
        self.kept[name] = memory = Memory(
            id=id if old is None else old.id,
            key=key,
            text=text,
            metadata=metadata,
            created_at=now if old is None else old.created_at,
            updated_at=now,
        )
        return memory


def _vector_of(memory: Memory) -> bytes:
    return vector_of(memory.text if memory.key is None else f"{memory.key} {memory.text}")


def _cosine(one: bytes, other: bytes) -> float:
    return min(sum(a * b for a, b in zip(array("f", one), array("f", other), strict=True)), 1.0)
