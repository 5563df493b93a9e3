"""The statements of the guide to many servers: each alert is silent while all is well and fires when it is not."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from amoxi_py.domain.event import EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunRows
from amoxi_py.errors import StoreDamaged
from amoxi_py.ports.deliveries import Behind
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.store import PostgresStore
from pgbouncer import pgbouncer

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "many-servers.md"
BLOCK = re.compile(r'^```(?:sql|ini) title="([^"]+)"\n(.*?)^```', re.MULTILINE | re.DOTALL)
STATEMENTS = dict(BLOCK.findall(GUIDE.read_text("utf-8")))
ALERTS = sorted(set(STATEMENTS) - {"roles.sql", "grants.sql", "pgbouncer.ini"})
LEASE_S = 30.0
Work = Callable[[PostgresStore], Awaitable[None]]


def submission(principal: str = "user:ann") -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent="support-agent",
        principal=Principal(id=principal, tenant="acme"),
        text="hello",
    )


def with_store(url: str, work: Work) -> None:
    async def go() -> None:
        store = PostgresStore(url)
        try:
            await store.open(lambda events: None)
            await work(store)
        finally:
            await store.close()

    asyncio.run(go())


async def busy(store: PostgresStore) -> list[RunRows]:
    """What is there on an ordinary day: two workers, a run that goes on, one that has just come in."""
    for _ in range(2):
        worker = await store.enroll(new_id("worker"), LEASE_S)
    await store.submit(submission())
    claimed = list(await store.claim(worker, 1, 10))
    await store.submit(submission())
    await store.claim_handlers(["app.audit"], worker)
    return claimed


class Alerts:
    """The rows that each alert gives, and a way to make things worse."""

    def __init__(self, connection: psycopg.Connection[Any], url: str) -> None:
        self._connection = connection
        self.url = url

    def ask(self, name: str) -> list[dict[str, Any]]:
        cursor = self._connection.execute(STATEMENTS[name].encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def change(self, statement: str) -> None:
        self._connection.execute(statement.encode())

    def expect_alone(self, name: str) -> list[dict[str, Any]]:
        """Return the rows of one alert; no other one has any."""
        assert [one for one in ALERTS if one != name and self.ask(one)] == []
        rows = self.ask(name)
        assert rows
        return rows


@pytest.fixture
def alerts(postgres_url: str) -> Iterator[Alerts]:
    async def work(store: PostgresStore) -> None:
        assert len(await busy(store)) == 1

    with_store(postgres_url, work)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield Alerts(connection, postgres_url)


def test_no_alert_fires_while_all_is_well(alerts: Alerts) -> None:
    assert len(ALERTS) == 7
    assert {name: alerts.ask(name) for name in ALERTS} == {name: [] for name in ALERTS}


def test_the_alert_of_stuck_leases_tells_of_a_dead_worker_whose_runs_nobody_took(alerts: Alerts) -> None:
    alerts.change(
        "UPDATE amoxi.worker SET expires_at = expires_at - 90000"
        " WHERE key IN (SELECT worker FROM amoxi.run WHERE status = 'running')"
    )
    [row] = alerts.ask("stuck-leases.sql")
    assert row["runs"] == 1
    assert 50 <= row["expired_s"] <= 70
    assert row["worker"].startswith("worker_")
    assert [(row["alive"], row["dead"]) for row in alerts.ask("workers.sql")] == [(1, 1)]


def test_the_alert_of_stuck_leases_tells_of_runs_whose_worker_is_gone(alerts: Alerts) -> None:
    alerts.change("DELETE FROM amoxi.worker WHERE key IN (SELECT worker FROM amoxi.run WHERE status = 'running')")
    assert [(row["worker"], row["runs"]) for row in alerts.ask("stuck-leases.sql")] == [("gone", 1)]


def test_the_alert_of_the_oldest_waiting_run_says_how_long_it_has_waited(alerts: Alerts) -> None:
    alerts.change("UPDATE amoxi.run SET wake_at = wake_at - 120000 WHERE status = 'queued'")
    [row] = alerts.expect_alone("oldest-waiting-run.sql")
    assert row["run"].startswith("run_")
    assert row["principal"].startswith("user:ann")
    assert 120 <= row["waits_s"] < 180


def test_the_alert_of_a_long_queue_says_whose_it_is(alerts: Alerts) -> None:
    async def flood(store: PostgresStore) -> None:
        await asyncio.gather(*(store.submit(submission("user:bob")) for _ in range(1000)))

    with_store(alerts.url, flood)
    rows = alerts.expect_alone("queue.sql")
    assert [(row["principal"], row["runs"], row["all_runs"]) for row in rows] == [
        ("user:bob", 1000, 1001),
        ("user:ann", 1, 1001),
    ]


def test_the_alert_of_too_few_workers_counts_those_that_are_alive(alerts: Alerts) -> None:
    alerts.change("DELETE FROM amoxi.run")
    alerts.change("DELETE FROM amoxi.worker")
    assert alerts.expect_alone("workers.sql") == [{"alive": 0, "dead": 0}]


def test_the_alert_of_a_run_that_kills_its_workers_names_its_agent(alerts: Alerts) -> None:
    alerts.change("UPDATE amoxi.run SET crashes = 2 WHERE status = 'running'")
    [row] = alerts.expect_alone("killing-runs.sql")
    assert (row["agent"], row["crashes"]) == ("support-agent", 2)


def test_the_alert_of_a_failing_handler_counts_its_tries(alerts: Alerts) -> None:
    async def fail(store: PostgresStore) -> None:
        worker = await store.enroll(new_id("worker"), LEASE_S)
        [lease] = await store.claim_handlers(["app.other"], worker)
        submitted = await store.submit(submission())
        page = await store.arrivals(lease, list(EventType), None, 100)
        conversation = page.arrivals[0].conversation
        assert submitted.created
        await store.fall_behind(lease, [Behind(conversation=conversation, seq=1, tries=5)])

    with_store(alerts.url, fail)
    [row] = alerts.expect_alone("handlers.sql")
    assert (row["handler"], row["conversations"], row["tries"]) == ("app.other", 1, 5)


def test_the_alert_of_old_transactions_looks_at_the_time_since_their_begin(alerts: Alerts) -> None:
    shorter = STATEMENTS["old-transactions.sql"].replace("5 minutes", "0 minutes")
    assert shorter != STATEMENTS["old-transactions.sql"]
    with psycopg.connect(alerts.url, application_name="left open") as other:
        other.execute("SELECT 1")
        with psycopg.connect(alerts.url) as asking:
            found = [row[1] for row in asking.execute(shorter.encode()).fetchall()]
    assert "left open" in found


def test_a_role_with_the_rights_of_the_guide_does_all_that_a_server_does_and_makes_no_tables(
    postgres: Any, postgres_url: str
) -> None:
    mark = secrets.token_hex(4)
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(named(STATEMENTS["roles.sql"], mark))
        try:
            owner, app = (as_role(postgres_url, f"{name}_{mark}") for name in ("shop_owner", "shop"))
            with psycopg.connect(owner, autocommit=True) as connection:
                connection.execute(named(STATEMENTS["grants.sql"], mark))
            with pytest.raises(StoreDamaged, match="amoxi migrate"):
                with_store(app, nothing)
            with_store(owner, nothing)  # the tables that come later
            with_store(app, everything)
            with psycopg.connect(app, autocommit=True) as connection, pytest.raises(psycopg.errors.Error):
                connection.execute("CREATE TABLE amoxi.mine ()")
        finally:
            postgres.drop_database(postgres_url)
    for name in ("shop", "shop_owner"):
        postgres.ask(sql.SQL("DROP ROLE {}").format(sql.Identifier(f"{name}_{mark}")))


def named(statements: str, mark: str) -> bytes:
    """Give the roles of the guide names of their own, since all databases of a server share them."""
    return re.sub(r"\b(shop_owner|shop)\b", rf"\1_{mark}", statements).encode()


def as_role(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()


async def nothing(store: PostgresStore) -> None:
    """Open and close it."""


async def everything(store: PostgresStore) -> None:
    [rows] = await busy(store)
    worker = await store.enroll(new_id("worker"), LEASE_S)
    [handler] = await store.claim_handlers(["app.other"], worker)
    await store.arrivals(handler, list(EventType), None, 100)
    principal = Principal(id="user:ann", tenant="acme")
    run = await store.get_run(rows.lease.run_id, principal)
    await store.cancel(run.id, principal)
    await store.erase(run.conversation_id, principal)
    await store.retire(worker)


def test_the_settings_of_pgbouncer_are_ones_that_it_takes(postgres: Any, postgres_url: str) -> None:
    lines = STATEMENTS["pgbouncer.ini"].partition("[pgbouncer]")[2].strip().splitlines()
    settings = dict(re.split(r"\s*=\s*", line) for line in lines)
    assert settings["pool_mode"] == "transaction"
    settings.pop("max_prepared_statements")  # of 1.21; Debian 12 has an older one, which would not start

    async def work(store: PostgresStore) -> None:
        await busy(store)

    with pgbouncer(postgres, **settings) as pooler:
        with_store(pooler.dsn(postgres_url), work)


def test_what_the_guide_says_of_connections_is_what_a_store_shares_out(postgres_url: str) -> None:
    table = re.search(r"\| of 10 \|.*?\n\n", GUIDE.read_text("utf-8"), re.DOTALL)
    assert table is not None
    shares = [int(number) for number in re.findall(r"^\| (\d+) \|", table[0], re.MULTILINE)]
    assert sum(shares) == 10
    assert shares[:3] == [1, 1, 1]
    assert PostgresStore(postgres_url).for_transactions == shares[3]
