"""Passages in files: vectors in memory are never stale, and what was forgotten is in no file any more."""

from __future__ import annotations

import asyncio
import math
import random
import sqlite3
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.memory import space_of
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import StoreDamaged
from amoxi_py.ports.passages import NewPassage
from amoxi_py.stores.sql.transaction import Row
from amoxi_py.stores.sqlite.connection import connect_to_write
from amoxi_py.stores.sqlite.matrices import BLOCK, Matrices, NumpyBlock, PlainBlock, block_of
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")
SPACE = space_of(ANN)
SECRETS = (b"zyxwomat", b"quirxlbop")


def random_vectors(count: int, dimensions: int) -> list[bytes]:
    chance = random.Random(4)
    vectors = []
    for _ in range(count):
        numbers = [chance.gauss(0, 1) for _ in range(dimensions)]
        length = math.sqrt(sum(number * number for number in numbers))
        vectors.append(struct.pack(f"<{dimensions}f", *(number / length for number in numbers)))
    return vectors


def reading(vectors: Sequence[bytes], reads: list[int]) -> Callable[[int], list[Row]]:
    """Give vectors as a store does, and note where each read begins."""

    def read(after: int) -> list[Row]:
        reads.append(after)
        return [(key + 1, 1000 + key, vector) for key, vector in enumerate(vectors)][after : after + BLOCK]

    return read


def folder_holds(folder: Path, text: bytes) -> bool:
    return any(text in file.read_bytes() for file in folder.rglob("amoxi.db*"))


async def keep(store: SqliteStore, *texts: str) -> None:
    new = [NewPassage(id=f"mem_{text}", name=text, text=text, vector=random_vectors(1, 8)[0]) for text in texts]
    await store.keep_passages(SPACE, new, "e")


async def test_nothing_of_what_was_remembered_of_a_forgotten_principal_is_in_any_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    await keep(store, *(f"word{n} and other{n}" for n in range(50)), "zyxwomat is her pony", "quirxlbop")
    assert all(folder_holds(tmp_path, secret) for secret in SECRETS)
    assert (await store.forget_principal(ANN)).memories == 52
    assert [secret for secret in SECRETS if folder_holds(tmp_path, secret)] == []
    with closing(sqlite3.connect(tmp_path / "amoxi.db")) as database:
        assert database.execute("SELECT name FROM passage_space").fetchall() == []
    await store.close()


async def test_words_that_were_forgotten_leave_the_index_and_then_all_files_soon_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amoxi_py.stores.sqlite.store._WIPE_AFTER_S", 0.01)
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    await keep(store, "zyxwomat is her pony")
    await keep(store, "something else")

    def indexed() -> bytes:
        with closing(sqlite3.connect(tmp_path / "amoxi.db")) as database:
            return b"".join(block for (block,) in database.execute("SELECT block FROM passage_words_data"))

    async def until_gone(word: bytes) -> None:
        async with asyncio.timeout(60):
            while word in indexed():
                await asyncio.sleep(0.02)

    assert b"zyxwomat" in indexed()
    await store.forget_passages(SPACE, ["zyxwomat is her pony"])
    await until_gone(b"zyxwomat")
    for text in ("quirxlbop was written", "and is written over"):
        await store.keep_passages(SPACE, [NewPassage(id="mem_1", name="pet", text=text)], "e")
    await until_gone(b"quirxlbop")
    async with asyncio.timeout(60):
        while any(folder_holds(tmp_path, secret) for secret in (b"zyxwomat", b"quirxlbop")):
            await asyncio.sleep(0.02)
    assert [one.name for one in await store.search_passages(SPACE, "something", None, "e", 5)] == ["something else"]
    await store.close()


async def test_what_is_forgotten_while_the_index_is_rewritten_leaves_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amoxi_py.stores.sqlite.store._WIPE_AFTER_S", 0.01)
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    await keep(store, "first", "quirxlbop")
    await keep(store, "something else")
    forgotten = asyncio.Event()
    wipe = store._wipe_words

    async def wipe_and_forget() -> None:
        await wipe()
        if not forgotten.is_set():
            await store.forget_passages(SPACE, ["quirxlbop"])
            forgotten.set()

    store._wipe_words = wipe_and_forget  # type: ignore[method-assign]  # somebody forgets at its end
    await store.forget_passages(SPACE, ["first"])
    await forgotten.wait()
    async with asyncio.timeout(60):
        while folder_holds(tmp_path, b"quirxlbop"):
            await asyncio.sleep(0.02)
    await store.close()


@pytest.mark.parametrize("kind", [PlainBlock, NumpyBlock])
async def test_the_nearest_are_exact_with_numpy_and_without(kind: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if kind is PlainBlock:
        monkeypatch.setitem(sys.modules, "numpy", None)
    vectors = random_vectors(300, 24)
    rows = [(n, n, vector) for n, vector in enumerate(vectors)]
    block = block_of([*rows, (300, 300, b"\0" * 8)], 24)
    assert isinstance(block, kind)
    (asked,) = random_vectors(1, 24)[-1:]
    wanted = struct.unpack("<24f", asked)
    cosines = [sum(map(float.__mul__, wanted, struct.unpack("<24f", vector))) for vector in vectors]
    best = sorted(range(300), key=lambda n: -cosines[n])[:10]
    found = sorted(block.nearest(asked, 10), reverse=True)
    assert [key for _, key in found] == best
    assert [cosine for cosine, _ in found] == pytest.approx([cosines[n] for n in best], abs=1e-6)
    opposite = struct.pack("<24f", *(-number for number in struct.unpack("<24f", vectors[0])))
    assert 0 not in [key for _, key in block.nearest(opposite, 300)]
    assert block_of([], 24).nearest(asked, 10) == []


async def test_a_python_without_fts5_is_told_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutFts5:
        def __init__(self, *given: Any) -> None:
            self._connection = connect_to_write(*given)
            self.close = self._connection.close

        def execute(self, statement: str) -> Any:
            return self._connection.execute(statement.replace("'fts5'", "'it has not'"))

    monkeypatch.setattr("amoxi_py.stores.sqlite.migrate.connect_to_write", WithoutFts5)
    with pytest.raises(StoreDamaged, match="no FTS5"):
        await SqliteStore(tmp_path).open(lambda events: None)
    with closing(sqlite3.connect(tmp_path / "amoxi.db")) as database:
        assert database.execute("SELECT name FROM sqlite_schema").fetchall() == []


async def test_vectors_are_read_once_for_each_version_of_a_space() -> None:
    matrices, reads = Matrices(), list[int]()
    vectors = random_vectors(5, 8)
    for version, count in ((1, 5), (1, 5), (2, 4), (2, 4)):
        found = matrices.nearest(reading(vectors[:count], reads), 7, version, vectors[0], "e", 10)
        assert found[0] == 1000
        assert (1004 in matrices.nearest(reading(vectors[:count], reads), 7, version, vectors[4], "e", 10)) is (
            count == 5
        )
    assert reads == [0, 0]
    assert matrices.nearest(reading(vectors[3:], reads), 8, 2, vectors[3], "e", 1) == [1000]
    assert matrices.nearest(reading(vectors[4:], reads), 7, 2, vectors[4], "other", 1) == [1000]
    assert len(reads) == 4, "another space and another embedder are of their own"


async def test_searches_at_once_read_a_space_once_and_not_each_into_memory_of_its_own() -> None:
    matrices, reads, begun, second = Matrices(), list[int](), threading.Event(), threading.Event()
    vectors = random_vectors(5, 8)

    def read(after: int) -> list[Row]:
        if begun.is_set():
            second.set()
        begun.set()
        second.wait(0.2)
        return reading(vectors, reads)(after)

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(matrices.nearest, read, 7, 1, vectors[0], "e", 1)
        begun.wait()
        other = threads.submit(matrices.nearest, read, 7, 1, vectors[1], "e", 1)
        assert [*one.result(), *other.result()] == [1000, 1001]
    assert reads == [0]


async def test_vectors_of_another_size_are_never_compared_and_need_no_memory_of_the_first() -> None:
    matrices, reads = Matrices(), list[int]()
    vectors = [*random_vectors(2, 8), *random_vectors(2, 4)]
    for wanted, best in ((vectors[1], 1001), (vectors[3], 1003), (vectors[0], 1000)):
        assert matrices.nearest(reading(vectors, reads), 7, 1, wanted, "e", 1) == [best]
    assert len(reads) == 2


async def test_an_older_version_never_takes_the_place_of_a_newer_one() -> None:
    matrices, reads = Matrices(), list[int]()
    vectors = random_vectors(3, 8)
    matrices.nearest(reading(vectors, reads), 7, 5, vectors[0], "e", 1)
    assert matrices.nearest(reading(vectors[1:], reads), 7, 4, vectors[1], "e", 1) == [1000]
    matrices.nearest(reading(vectors, reads), 7, 5, vectors[0], "e", 1)
    assert len(reads) == 2


async def test_memory_is_bounded_and_what_is_too_large_for_it_is_found_all_the_same() -> None:
    vectors = random_vectors(BLOCK + 10, 4)
    of_ten, reads = block_of([(n, n, vector) for n, vector in enumerate(vectors[:10])], 4).size, list[int]()
    matrices = Matrices(2 * of_ten)
    for space in (1, 2, 3, 2, 1):
        matrices.nearest(reading(vectors[:10], reads), space, 1, vectors[0], "e", 1)
        assert matrices.size <= 2 * of_ten
    assert len(reads) == 4, "the space that was not used for the longest time had to be read again"
    assert matrices.nearest(reading(vectors, reads), 4, 1, vectors[-1], "e", 1) == [1000 + BLOCK + 9]
    assert matrices.nearest(reading(vectors, reads), 4, 1, vectors[0], "e", 1) == [1000]
    assert reads[4:] == [0, BLOCK, 0, BLOCK]
    assert matrices.size <= 2 * of_ten
