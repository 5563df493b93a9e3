"""A worker stays known after it has retired, because its commits may be on their way; its lease is checked late."""

from __future__ import annotations

import asyncio
import threading
import time

import psycopg
import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.errors import LeaseLost
from amoxi_py.stores.postgres.store import PostgresStore


def test_a_retired_worker_is_known_as_dead_for_a_while(postgres_url: str) -> None:
    """A commit of it may still be on its way, and claims find the runs of dead workers by their rows."""

    async def main() -> None:
        store = PostgresStore(postgres_url)
        await store.open(lambda events: None)
        worker = await store.enroll(new_id("worker"), 30.0)
        await store.retire(worker)
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute(
                "SELECT expires_at <= extract(epoch FROM clock_timestamp()) * 1000 FROM amoxi.worker"
            )
            assert found.fetchall() == [(True,)]
        with pytest.raises(LeaseLost):
            await asyncio.to_thread(store.renew, worker, 30.0)
        await store.close()

    asyncio.run(main())


def test_a_renewal_that_waited_until_the_lease_had_expired_is_refused(postgres_url: str) -> None:
    async def main() -> None:
        store = PostgresStore(postgres_url)
        await store.open(lambda events: None)
        worker = await store.enroll(new_id("worker"), 0.5)
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT key FROM amoxi.worker FOR UPDATE")
            undo = threading.Timer(1.0, other.rollback)  # beyond the lease, and within the patience of the renewal
            undo.start()
            begun = time.monotonic()
            with pytest.raises(LeaseLost):
                await asyncio.to_thread(store.renew, worker, 30.0)
            assert time.monotonic() - begun > 0.5, "it waited"
            undo.join()
        await store.close()

    asyncio.run(main())
