"""Rows of what principals have used are locked last and in one order: nobody who has one waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from amoxi_py.domain.limits import Limits
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sql.admission import sweep_usage
from amoxi_py.stores.sql.verb import Act

pytestmark = pytest.mark.anyio


async def test_who_waits_for_the_row_of_one_principal_holds_no_row_of_a_day_that_is_over(
    postgres_url: str, submission: Callable[..., Submission]
) -> None:
    store = PostgresStore(postgres_url, limits=Limits(runs_per_day=5))
    await store.open(lambda events: None)
    with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url, autocommit=True) as direct:
        await asyncio.gather(store.submit(submission()), store.submit(submission(principal=Principal(id="user:old"))))
        direct.execute("UPDATE amoxi.principal_usage SET day = 20000 WHERE principal = 'user:old'")
        other.execute("SELECT 1 FROM amoxi.principal_usage WHERE principal = 'user:ann' FOR UPDATE")
        together = asyncio.gather(store._perform(Act(sweep_usage)), store.submit(submission()))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        async with asyncio.timeout(60):
            while direct.execute(waiting).fetchone() is None:
                await asyncio.sleep(0.01)
        other.execute("SELECT 1 FROM amoxi.principal_usage WHERE principal = 'user:old' FOR UPDATE NOWAIT")
        other.rollback()
        await together
        left = direct.execute("SELECT principal, runs FROM amoxi.principal_usage").fetchall()
    await store.close()
    assert left == [("user:ann", 2)]
