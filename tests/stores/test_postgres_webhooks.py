"""Webhooks in PostgreSQL, where two servers may claim the same one at the same moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.store import PostgresStore

SHOP = Principal(id="a2a:shop", channel="a2a")


async def opened(url: str) -> PostgresStore:
    store = PostgresStore(url)
    await store.open(lambda events: None)
    return store


def test_what_another_server_claims_at_this_moment_is_passed_by(
    postgres_url: str, submission: Callable[..., Submission]
) -> None:
    async def main() -> None:
        store = await opened(postgres_url)
        run = (await store.submit(submission(principal=SHOP))).run
        for name in ("w1", "w2"):
            await store.keep_webhook(run.id, SHOP, name, "{}", limit=9)
        with psycopg.connect(postgres_url) as other:
            other.execute("SELECT FROM amoxi.webhook WHERE id = 'w1' FOR UPDATE")
            (mine,) = await store.claim_webhooks("here", 30.0, 10)
            assert mine.webhook.id == "w2"
        await store.close()

    asyncio.run(main())


def test_claims_renewals_and_notes_of_two_servers_at_once_leave_each_webhook_to_one(
    postgres_url: str, submission: Callable[..., Submission]
) -> None:
    async def main() -> None:
        servers = [await opened(postgres_url) for _ in range(2)]
        run = (await servers[0].submit(submission(principal=SHOP))).run
        for n in range(30):
            await servers[0].keep_webhook(run.id, SHOP, f"w{n:02}", "{}", limit=99)
        claims = [store.claim_webhooks(f"h{n}", 30.0, 5) for n in range(6) for store in (servers[n % 2],)]
        got = await asyncio.gather(*claims)
        held = [one for of_claim in got for one in of_claim]
        assert len({one.key for one in held}) == len(held)
        renewals = [servers[n % 2].renew_webhooks(f"h{n}", 30.0) for n in range(6)]
        notes = [servers[one.key % 2].note_delivery(one, 3) for one in held]
        renewed, noted = await asyncio.gather(asyncio.gather(*renewals), asyncio.gather(*notes))
        assert all(noted)
        assert [set(keys) for keys in renewed] == [{one.key for one in of_claim} for of_claim in got]
        for store in servers:
            await store.close()

    asyncio.run(main())
