"""Passages in PostgreSQL: pgvector's index finds what looking at all would find, and is made once."""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import numpy
import psycopg
import pytest

from amoxi_py.domain.memory import space_of_documents
from amoxi_py.errors import ConfigError
from amoxi_py.ports.passages import NewPassage, NewVector
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.postgres.vectors import SEARCHED_THROUGH, index_name

pytestmark = pytest.mark.anyio
MINE, OTHER = space_of_documents("mine"), space_of_documents("other")


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url)
    await store.open(lambda events: None)
    yield store
    await store.close()


def do(url: str, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def is_valid(url: str, index: str) -> bool:
    return do(url, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", f"amoxi.{index}") == [(True,)]


def made_vectors(count: int, dimensions: int, seed: int) -> Any:
    """Around as many centres as texts have subjects; always the same."""
    around = numpy.random.default_rng(7).normal(size=(200, dimensions))
    chance = numpy.random.default_rng(seed)
    vectors = around[chance.integers(200, size=count)] + chance.normal(size=(count, dimensions))
    return (vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")


def fill(url: str, space: str, vectors: Any, embedder: str) -> None:
    """Store passages as the store does, by COPY: the index is what is tried here."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO amoxi.passage_space (name) VALUES (%s) RETURNING key", (space,))
        ((key,),) = cursor.fetchall()
        cursor.execute(
            "INSERT INTO amoxi.passage (space, id, name, digest, metadata, text, embedder, created_at, updated_at)"
            " SELECT %s, 'mem_' || n, 'n' || n, '', '{}', 'text', %s, 0, 0 FROM generate_series(0, %s) AS n"
            " RETURNING key",
            (key, embedder, len(vectors) - 1),
        )
        passages = [passage for (passage,) in cursor.fetchall()]
        with cursor.copy("COPY amoxi.passage_vector (passage, space, embedder, vector) FROM STDIN") as copy:
            for passage, vector in zip(passages, vectors.tolist(), strict=True):
                copy.write_row((passage, key, embedder, "{" + ",".join(map(repr, vector)) + "}"))


def spy_on_statements(store: PostgresStore) -> list[str]:
    """The names of the statements about vectors that searches use."""
    used: list[str] = []
    search = store._vectors
    given = search._statement

    def statement(name: str, *more: Any) -> Any:
        used.append(name)
        return given(name, *more)

    search._statement = statement  # type: ignore[method-assign]  # it only looks
    return used


async def test_the_index_finds_at_least_95_of_100_of_what_looking_at_all_would_find(postgres_url: str) -> None:
    vectors, asked = made_vectors(10_000, 384, seed=1), made_vectors(50, 384, seed=2)
    async with open_store(postgres_url) as store:
        await asyncio.to_thread(fill, postgres_url, MINE, vectors, "e")
        await asyncio.to_thread(fill, postgres_url, OTHER, vectors[:100], "e")
        await store.prepare_embedder("e", 384)
        used = spy_on_statements(store)
        right = numpy.argsort(-(asked @ vectors.T), axis=1)[:, :10]
        hits = 0
        for vector, best in zip(asked, right, strict=True):
            found = await store.search_passages(MINE, "", vector.tobytes(), "e", 10)
            hits += len({int(one.name[1:]) for one in found} & set(best.tolist()))
        assert set(used) == {"along_index"}
        assert hits / 500 >= 0.95
        small = await store.search_passages(OTHER, "", vectors[50].tobytes(), "e", 3)
        assert (small[0].name, len(small), used[-1]) == ("n50", 3, "through_all")


async def test_the_searches_go_along_their_own_indexes(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await store.prepare_embedder("e", 8)
        search, address = store._vectors, store._address
        plans = {}
        with psycopg.connect(postgres_url) as connection:
            cursor = psycopg.RawCursor(connection)
            cursor.execute(address.statements["begin_reading"].text)
            cursor.execute(search._widen.text, ["400"])
            for name in ("along_index", "through_all"):
                statement = search._statement(name, "public", "e", 8)
                explained = cursor.execute(b"EXPLAIN (GENERIC_PLAN) " + statement.text, prepare=False)
                plans[name] = "\n".join(line for (line,) in explained.fetchall())
        assert f"Index Scan using {index_name('e', 8)}" in plans["along_index"]
        assert "passage_vector_space" in plans["through_all"]


async def test_two_servers_that_start_at_once_make_one_index(postgres_url: str) -> None:
    async with open_store(postgres_url) as one, open_store(postgres_url) as two:
        await asyncio.to_thread(fill, postgres_url, MINE, made_vectors(500, 32, seed=1), "e")
        await asyncio.gather(*(store.prepare_embedder("e", 32) for store in (one, two, one, two)))
        name = index_name("e", 32)
        async with asyncio.timeout(60):
            while not is_valid(postgres_url, name):
                await asyncio.sleep(0.05)
        await one.prepare_embedder("e", 32)
        made = do(postgres_url, "SELECT indexname FROM pg_indexes WHERE indexname LIKE 'passage_vector_near%%'")
        assert made == [(name,)]


async def test_who_is_stopped_by_another_server_that_makes_the_index_looks_again(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        search, stopped = store._vectors, [psycopg.errors.InternalError_("tuple concurrently updated")]
        run = search._run

        def run_in_the_end(*what: Any) -> None:
            if stopped:
                raise stopped.pop()
            run(*what)

        search._run = run_in_the_end  # type: ignore[method-assign]  # as the database does at such a moment
        await store.prepare_embedder("e", 4)
        assert is_valid(postgres_url, index_name("e", 4))


async def test_vectors_are_stored_a_few_at_a_time_because_the_index_holds_others_up(postgres_url: str) -> None:
    vectors = made_vectors(20, 4, seed=1)
    async with open_store(postgres_url) as store:
        await store.keep_passages(MINE, [NewPassage(id=f"m_{n}", name=f"n{n}", text="t") for n in range(20)], "e")
        waiting = await store.unembedded("e", 100)
        before = store.commits
        await store.keep_vectors(
            "e",
            [
                NewVector(key=one.key, version=one.version, vector=vector.tobytes())
                for one, vector in zip(waiting, vectors, strict=True)
            ],
        )
        assert store.commits - before == 3
        assert await store.unembedded("e", 100) == ()


async def test_an_index_that_was_left_half_made_is_made_anew(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        await store.prepare_embedder("e", 4)
        name = index_name("e", 4)
        do(postgres_url, "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass", f"amoxi.{name}")
    async with open_store(postgres_url) as store:
        await store.prepare_embedder("e", 4)
        assert is_valid(postgres_url, name)


@pytest.mark.parametrize("dimensions", [3, 2001, 4000])
async def test_vectors_of_any_usual_size_are_found(postgres_url: str, dimensions: int) -> None:
    vectors = made_vectors(5, dimensions, seed=5)
    async with open_store(postgres_url) as store:
        await store.prepare_embedder('it\'s "e" {0} @x :y', dimensions)
        new = [NewPassage(id=f"m_{n}", name=f"n{n}", text="t", vector=one.tobytes()) for n, one in enumerate(vectors)]
        await store.keep_passages(MINE, new, 'it\'s "e" {0} @x :y')
        for n, one in enumerate(vectors):
            found = await store.search_passages(MINE, "", one.tobytes(), 'it\'s "e" {0} @x :y', 1)
            assert [each.name for each in found] == [f"n{n}"]


async def test_more_numbers_than_an_index_takes_are_refused(postgres_url: str) -> None:
    async with open_store(postgres_url) as store:
        with pytest.raises(ConfigError, match="at most 4000"):
            await store.prepare_embedder("e", 4001)


@pytest.fixture
def plain_url(postgres_url: str) -> Iterator[str]:
    """The database of a store for a role that may use its tables, and make nothing."""
    role = f"plain_{secrets.token_hex(4)}"

    async def make() -> None:
        async with open_store(postgres_url):
            pass

    asyncio.run(make())
    do(postgres_url, f"CREATE ROLE {role} LOGIN")
    do(postgres_url, f"GRANT USAGE ON SCHEMA amoxi TO {role}")
    do(postgres_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA amoxi TO {role}")
    do(postgres_url, f"GRANT SELECT ON ALL SEQUENCES IN SCHEMA amoxi TO {role}")
    place = urlsplit(postgres_url)
    yield place._replace(netloc=f"{role}@{place.netloc.rpartition('@')[2]}").geturl()
    do(postgres_url, f"DROP OWNED BY {role}")
    do(postgres_url, f"DROP ROLE {role}")


async def test_without_pgvector_passages_are_found_by_words_and_vectors_wait_for_it(
    postgres_url: str, plain_url: str
) -> None:
    do(postgres_url, "DROP EXTENSION vector")
    async with open_store(plain_url) as store:
        north = struct.pack("<2f", 1, 0)
        with pytest.raises(ConfigError, match=r"has no pgvector.*CREATE EXTENSION vector"):
            await store.prepare_embedder("openai:x", 2)
        pony = NewPassage(id="mem_1", name="pet", text="a pony", vector=north)
        await store.keep_passages(MINE, [pony], "openai:x")
        (found,) = await store.search_passages(MINE, "pony", north, "openai:x", 5)
        assert (found.name, found.score) == ("pet", 1.0)
        assert await store.search_passages(MINE, "", north, "openai:x", 5) == ()
    async with open_store(postgres_url) as store:  # whose role may make it
        await store.prepare_embedder("openai:x", 2)
        (found,) = await store.search_passages(MINE, "", north, "openai:x", 5)
        assert found.name == "pet"


async def test_a_role_that_may_make_no_index_searches_without_one_and_is_told(
    plain_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    north = struct.pack("<2f", 1, 0)
    async with open_store(plain_url) as store:
        await store.prepare_embedder("e", 2)
        assert "the index of vectors" in caplog.text
        assert "owns the store's tables" in caplog.text
        await store.keep_passages(MINE, [NewPassage(id="mem_1", name="pet", text="a pony", vector=north)], "e")
        (found,) = await store.search_passages(MINE, "", north, "e", 5)
        assert found.name == "pet"


async def test_a_small_part_of_a_large_whole_is_found_whole(postgres_url: str) -> None:
    """A search along the index that gives up before it has enough of a space is done through the space."""
    chance = made_vectors(SEARCHED_THROUGH + 5, 8, seed=6)
    near, far = (chance + 9 * numpy.eye(8)[0], chance + 5 * numpy.eye(8)[0] + 5 * numpy.eye(8)[1])
    near, far = ((one / numpy.linalg.norm(one, axis=1, keepdims=True)).astype("<f4") for one in (near, far))
    do(postgres_url, f"ALTER DATABASE {postgres_url.rpartition('/')[2]} SET hnsw.max_scan_tuples = 1")
    async with open_store(postgres_url) as store:
        await asyncio.to_thread(fill, postgres_url, MINE, near, "e")
        await asyncio.to_thread(fill, postgres_url, OTHER, far, "e")
        await store.prepare_embedder("e", 8)
        used = spy_on_statements(store)
        found = await store.search_passages(OTHER, "", near[0].tobytes(), "e", 10)
        right = numpy.argsort(-(far @ near[0]))[:10]
        assert {one.name for one in found} == {f"n{n}" for n in right.tolist()}
        assert used == ["along_index", "through_all"]
