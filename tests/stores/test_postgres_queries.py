"""Every statement of the PostgreSQL store walks along indexes: none looks at all rows of a table that grows."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from amoxi_py.stores.postgres.statements import statements
from amoxi_py.stores.postgres.store import PostgresStore

SMALL = {"worker", "handler", "event_key_seq"}
"""What has a row for each process or each handler of the app, and a sequence, which is one row."""


@pytest.fixture(scope="module")
def plans(postgres: object) -> dict[str, str]:
    dsn = postgres.fresh_database()  # type: ignore[attr-defined]

    async def make() -> None:
        store = PostgresStore(dsn)
        await store.open(lambda events: None)
        await store.close()

    asyncio.run(make())
    found = {}
    known = statements("amoxi")
    with psycopg.connect(dsn) as connection:
        for name, statement in known.items():
            with connection.transaction(force_rollback=True):
                psycopg.RawCursor(connection).execute(known["begin_writing"].text, ["1s"])
                cursor = psycopg.RawCursor(connection)
                explained = cursor.execute(b"EXPLAIN (GENERIC_PLAN) " + statement.text, prepare=False)
                found[name] = "\n".join(line for (line,) in explained.fetchall())
    return found


def test_no_statement_reads_a_whole_table(plans: dict[str, str]) -> None:
    whole = {
        name: line.strip()
        for name, plan in plans.items()
        for line in plan.splitlines()
        if "Seq Scan on" in line and not any(f"Seq Scan on {table} " in line for table in SMALL)
    }
    assert whole == {}


def test_due_runs_are_found_along_their_own_indexes(plans: dict[str, str]) -> None:
    """An index that holds ended runs too would make a claim slower with each run that ever was."""
    assert plans["due_runs"].count("using run_due") == 3
    assert "run_due_of" in plans["due_runs_by_principal"]
    assert "run_open" in plans["wake_next_runs"]
    assert "event_delta" in plans["drop_deltas"]
    assert "event_place" in plans["arrivals"]


def test_what_is_in_flight_is_counted_along_an_index_of_that_alone(plans: dict[str, str]) -> None:
    for name in ("count_in_flight", "standings"):
        assert "using run_in_flight on" in plans[name], plans[name]
    assert "run_open" in plans["in_flight_in_conversation"], plans["in_flight_in_conversation"]
    for name in ("old_usage", "sweep_usage"):
        assert "principal_usage_day" in plans[name], plans[name]


def test_tasks_and_webhooks_are_found_along_their_own_indexes(plans: dict[str, str]) -> None:
    assert "Sort" not in plans["list_tasks"], "a page is read no further than it goes"
    for name in ("list_tasks", "count_tasks", "tasks_that_ask"):
        assert "using run_task on" in plans[name], name
    assert "Index Only Scan using run_task" in plans["count_tasks"]
    assert "using run_open on" in plans["waiting_before"], "what has ended in a conversation costs nothing"
    assert plans["due_webhooks"].count("using webhook_due on") == 2
    assert "webhook_holder" in plans["renew_webhooks"]
    assert "webhook_over" in plans["sweep_webhooks"]
