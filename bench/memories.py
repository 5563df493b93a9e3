"""How well and how soon passages are found: recall at 10 and milliseconds of a search, on both stores.

Vectors are made of chance around some hundred centres, as texts of a few hundred subjects have, and all of chance,
which is the hardest there is for an index. What is right is what numpy finds by looking at all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from database import database

from amoxi_py.domain.memory import space_of_documents
from amoxi_py.ports.passages import NewPassage
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sqlite.store import SqliteStore

_AT_ONCE = 500
_CENTRES = 300
_WORDS = [f"{first}{second:03}" for first in ("red", "sea", "oak", "fox", "ice") for second in range(200)]


def made(count: int, dimensions: int, *, centres: int, seed: int) -> Any:
    """Return vectors of length 1."""
    chance = numpy.random.default_rng(seed)
    vectors = chance.normal(size=(count, dimensions)).astype("<f4")
    if centres:
        around = numpy.random.default_rng(7).normal(size=(centres, dimensions)).astype("<f4")
        vectors = around[chance.integers(centres, size=count)] + 0.7 * vectors
    return (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")


def texts(count: int) -> list[str]:
    """Return texts of 60 words."""
    chance = numpy.random.default_rng(3)
    return [" ".join(_WORDS[n] for n in row) for row in chance.integers(len(_WORDS), size=(count, 60))]


async def fill(store: Any, space: str, vectors: Any, embedder: str) -> float:
    """Store all, and return the seconds."""
    begun = time.perf_counter()
    rows = [
        NewPassage(id=f"mem_{n}", name=f"n{n}", text=text, vector=vector.tobytes())
        for n, (text, vector) in enumerate(zip(texts(len(vectors)), vectors, strict=True))
    ]
    for start in range(0, len(rows), _AT_ONCE):
        await store.keep_passages(space, rows[start : start + _AT_ONCE], embedder)
    return time.perf_counter() - begun


async def measure(store: Any, name: str, vectors: Any, asked: Any, space: str) -> None:
    """Print what a search of one space by vectors alone, and by both, comes to."""
    embedder = f"bench-{name}"
    filled = await fill(store, space, vectors, embedder)
    await store.prepare_embedder(embedder, vectors.shape[1])
    right = numpy.argsort(-(asked @ vectors.T), axis=1)[:, :10]
    await store.search_passages(space, "", asked[0].tobytes(), embedder, 10)
    recall, alone = await _search(store, space, embedder, asked, lambda n: "", right)
    words = texts(len(asked))
    _, together = await _search(store, space, embedder, asked, lambda n: " ".join(words[n].split()[:8]), right)
    print(
        f"{name:28} recall {recall:.4f}   vectors {_told(alone)}   with 8 words {_told(together)}   "
        f"filled in {filled:.1f} s",
        flush=True,
    )


async def _search(
    store: Any, space: str, embedder: str, asked: Any, words: Callable[[int], str], right: Any
) -> tuple[float, list[float]]:
    hits, times = 0, []
    for n, vector in enumerate(asked):
        given = vector.tobytes()
        begun = time.perf_counter()
        found = await store.search_passages(space, words(n), given, embedder, 10)
        times.append((time.perf_counter() - begun) * 1000)
        hits += len({int(one.name[1:]) for one in found} & set(right[n].tolist()))
    return hits / (10 * len(asked)), times


def _told(times: list[float]) -> str:
    return f"{statistics.median(times):.1f} ms ({min(times):.1f} to {statistics.quantiles(times, n=20)[-1]:.1f})"


async def main(count: int, dimensions: int, asked: int, dsn: str | None) -> None:
    for kind, centres in (("subjects", _CENTRES), ("chance", 0)):
        vectors = made(count, dimensions, centres=centres, seed=1)
        questions = made(asked, dimensions, centres=centres, seed=2)
        space = space_of_documents(kind)
        with tempfile.TemporaryDirectory() as folder:
            embedded = SqliteStore(Path(folder))
            await embedded.open(lambda events: None)
            await measure(embedded, f"SQLite, {kind}", vectors, questions, space)
            await embedded.close()
        with database(dsn) as postgres:
            store = PostgresStore(postgres.url, schema=f"bench_{kind}")
            await store.open(lambda events: None)
            await measure(store, f"PostgreSQL, {kind}", vectors, questions, space)
            await store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--asked", type=int, default=200)
    parser.add_argument("--dsn", help="of a PostgreSQL with pgvector; without it one is started")
    given = parser.parse_args()
    asyncio.run(main(given.count, given.dimensions, given.asked, given.dsn))
