"""The JSON of memories, with its type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NotRequired

from typing_extensions import TypedDict  # pydantic takes this one before Python 3.12

from amoxi_py.domain.event import time_text
from amoxi_py.domain.memory import Memory


class MemoryJson(TypedDict):
    """Something that is remembered of the caller; `score`, above 0 and at most 1, where something was looked for."""

    id: str
    key: str | None
    text: str
    metadata: dict[str, Any]
    created_at: str
    updated_at: str
    score: NotRequired[float]


class MemoriesJson(TypedDict):
    """Some memories: the newest first, or those that fit best."""

    items: list[MemoryJson]
    next_cursor: str | None


def memory_json(memory: Memory) -> MemoryJson:
    """Return a memory as its owner reads it."""
    told: MemoryJson = {
        "id": memory.id,
        "key": memory.key,
        "text": memory.text,
        "metadata": memory.metadata,
        "created_at": time_text(memory.created_at),
        "updated_at": time_text(memory.updated_at),
    }
    if memory.score is not None:
        told["score"] = memory.score
    return told


def memories_json(memories: Iterable[Memory], next_cursor: str | None) -> MemoriesJson:
    """Return a page of memories."""
    return {"items": [memory_json(memory) for memory in memories], "next_cursor": next_cursor}
