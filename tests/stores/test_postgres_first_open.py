"""A database that a store is opened in for the first time: what is made there, and what stops it, with the way out."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from amoxi_py.app.store import migrate_store
from amoxi_py.errors import StoreDamaged, StoreUnavailable
from amoxi_py.stores.postgres.inspection import inspect_store
from amoxi_py.stores.postgres.store import PostgresStore
from postgres_server import Binaries, debian_binaries, own_postgres, wheel_binaries

PASSWORD = "hunter2-of-the-shop"


def do(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def open_store(url: str, schema: str = "amoxi") -> None:
    async def go() -> None:
        store = PostgresStore(url, schema=schema)
        try:
            await store.open(lambda events: None)
        finally:
            await store.close()

    asyncio.run(go())


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """A role that may log in and no more."""
    name = f"shop_{secrets.token_hex(4)}"
    do(postgres_url, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    yield name
    do(postgres_url, f"DROP OWNED BY {name}")
    do(postgres_url, f"DROP ROLE {name}")


@pytest.fixture
def role_url(postgres_url: str, role: str) -> str:
    place = urlsplit(postgres_url)
    return f"postgresql://{role}:{PASSWORD}@{place.hostname}:{place.port}{place.path}"


@pytest.mark.parametrize("binaries", [wheel_binaries, debian_binaries])
def test_pgvector_is_made_where_the_server_has_it_and_not_missed_where_it_has_not(
    binaries: Callable[[], Binaries | None],
) -> None:
    with own_postgres(binaries=binaries()) as server:
        url = server.fresh_database()
        has_it = bool(do(url, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"))
        assert has_it is (binaries is wheel_binaries)
        open_store(url)
        assert bool(do(url, "SELECT 1 FROM pg_extension WHERE extname = 'vector'")) is has_it
        state = inspect_store(url, "amoxi")
        assert (state.migrated, state.missing) == (True, ())


def test_a_server_that_is_too_old_is_refused_by_a_start_and_by_migrate(
    postgres_url: str, app_folder: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server is older than 15 here, so what is old is set.
    monkeypatch.setattr("amoxi_py.stores.postgres.migrate.OLDEST_SERVER", 990000)
    monkeypatch.chdir(app_folder())
    monkeypatch.setenv("AI_STORE_TYPE", "postgres")
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    for refused in (lambda: open_store(postgres_url), migrate_store):
        with pytest.raises(StoreDamaged, match="is too old; 15 or newer is needed"):
            refused()
    assert do(postgres_url, "SELECT 1 FROM pg_namespace WHERE nspname = 'amoxi'") == []


def test_tables_of_something_else_in_its_schema_stop_it_in_the_words_of_doctor(postgres_url: str) -> None:
    do(postgres_url, "CREATE TABLE public.run (id integer)")
    do(postgres_url, "CREATE TABLE public.stock (id integer)")
    with pytest.raises(StoreDamaged) as caught:
        open_store(postgres_url, "public")
    assert "it holds no store, but tables of something else: run; set 'ai.store.schema' to" in str(caught.value)
    assert inspect_store(postgres_url, "public").tables_in_the_way == ["run"]
    do(postgres_url, "DROP TABLE public.run")
    assert inspect_store(postgres_url, "public").tables_in_the_way == []
    open_store(postgres_url, "public")
    assert do(postgres_url, "SELECT FROM public.stock") == []


def test_a_role_that_may_not_connect_is_told_the_grant(postgres_url: str, role_url: str) -> None:
    database = urlsplit(postgres_url).path.strip("/")
    do(postgres_url, f"REVOKE CONNECT ON DATABASE {database} FROM PUBLIC")
    with pytest.raises(StoreUnavailable, match=r"CONNECT privilege.*; let its role in .GRANT CONNECT ON DATABASE"):
        open_store(role_url)


def test_a_database_that_only_reads_is_told_where_writes_are_taken(postgres_url: str, role: str, role_url: str) -> None:
    do(postgres_url, f"CREATE SCHEMA amoxi AUTHORIZATION {role}")
    do(postgres_url, f"ALTER ROLE {role} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match=r"read-only transaction.*let the address name the primary"):
        open_store(role_url)


def test_a_lock_that_is_not_given_in_time_is_told_to_try_again(postgres_url: str, role: str, role_url: str) -> None:
    do(postgres_url, f"CREATE SCHEMA amoxi AUTHORIZATION {role}")
    open_store(role_url)
    do(postgres_url, f"ALTER ROLE {role} SET lock_timeout = '50ms'")
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE amoxi.migration")
        with pytest.raises(StoreUnavailable, match=r"lock timeout.*; another server is changing the store, so try"):
            open_store(role_url)
