"""Records in PostgreSQL, where two servers may take and forget the same one at the same moment."""

from __future__ import annotations

import asyncio

import psycopg

from amoxi_py.ports.records import Record
from amoxi_py.stores.postgres.store import PostgresStore


async def opened(url: str) -> PostgresStore:
    store = PostgresStore(url)
    await store.open(lambda events: None)
    return store


def test_a_record_that_is_forgotten_while_somebody_takes_it_is_had_by_nobody(postgres_url: str) -> None:
    async def main() -> None:
        store = await opened(postgres_url)
        await store.keep_record(Record(kind="code", key="k", group="g", content="{}"))
        with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as watch:
            other.execute("SELECT FROM amoxi.record WHERE key = 'k' FOR UPDATE")
            taking = asyncio.create_task(store.take_record("code", "k"))
            async with asyncio.timeout(30):
                while not watch.execute("SELECT FROM pg_locks WHERE NOT granted").fetchall():
                    await asyncio.sleep(0.005)
            assert other.execute("DELETE FROM amoxi.record WHERE family = 'g'").rowcount == 1
            other.commit()
            assert await taking is None
        await store.close()

    asyncio.run(main())


def test_of_a_take_and_a_forget_at_the_same_moment_one_has_the_record(postgres_url: str) -> None:
    async def main() -> None:
        mine, theirs = await opened(postgres_url), await opened(postgres_url)
        keys = [f"k{n}" for n in range(20)]
        for key in keys:
            await mine.keep_record(Record(kind="code", key=key, group=key, content="{}"))
        took = asyncio.gather(*[mine.take_record("code", key) for key in keys])
        forgot = asyncio.gather(*[theirs.forget_records("code", key) for key in keys])
        for record, number in zip(await took, await forgot, strict=True):
            assert (record is not None) + number == 1
        await mine.close()
        await theirs.close()

    asyncio.run(main())
