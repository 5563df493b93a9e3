"""`amoxi doctor` and a store in PostgreSQL: what it says of servers, roles and poolers, and that its fixes work."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import psycopg
import pytest

from amoxi_py.cli.checks.postgres_store import tell
from amoxi_py.config.load import load_settings
from amoxi_py.stores.postgres.inspection import inspect_store
from pgbouncer import pgbouncer
from postgres_server import PostgresServer, own_postgres
from processes import free_port

PASSWORD = "hunter2-of-the-shop"
Doctor = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A server that keeps what is committed."""
    with own_postgres(fsync=True, max_connections=40, settings={"full_page_writes": "on"}) as server:
        yield server


@pytest.fixture
def doctor(amoxi: Any, app_folder: Any) -> Doctor:
    """Look at an app whose store is in a database: `doctor(url, AI_STORE_SCHEMA="shop")` gives exit code and report."""
    folder = app_folder(settings={"ai": {"model": "offline"}})

    def run(url: str, *arguments: str, **env: str) -> tuple[int, dict[str, Any]]:
        answer = amoxi(folder, "doctor", "--json", *arguments, env=environment(url, **env))
        assert PASSWORD not in answer.stdout + answer.stderr
        assert not (folder / "data").exists(), "the file store is none of its business"
        return answer.returncode, json.loads(answer.stdout)

    return run


@pytest.fixture
def migrated(amoxi: Any, app_folder: Any, postgres_url: str) -> str:
    """A database with a store in it."""
    answer = amoxi(app_folder(), "migrate", env=environment(postgres_url))
    place = urlsplit(postgres_url)
    told = f"the store in schema 'amoxi' of {place.hostname}:{place.port}{place.path} is up to date\n"
    assert (answer.returncode, answer.stdout) == (0, told), answer.stderr
    return postgres_url


@pytest.fixture
def shop(postgres_url: str) -> Iterator[str]:
    """The address of the database for a role `shop` without any right in it."""
    do(postgres_url, f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
    yield postgres_url.replace("postgres@", f"shop:{PASSWORD}@")
    do(postgres_url, "DROP OWNED BY shop")
    do(postgres_url, "DROP ROLE shop")


def environment(url: str, **more: str) -> dict[str, str]:
    return {"AI_STORE_TYPE": "postgres", "DATABASE_URL": url, "SERVER_PORT": str(free_port()), **more}


def do(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def of(report: dict[str, Any], check: str) -> list[tuple[str, str]]:
    return [(finding["level"], finding["text"]) for finding in report["findings"] if finding["check"] == check]


def one(report: dict[str, Any], check: str) -> tuple[str, str, str]:
    [finding] = [finding for finding in report["findings"] if finding["check"] == check]
    return finding["level"], finding["text"], finding["fix"]


def test_a_database_in_order_is_said_so_and_nothing_is_made_in_it(doctor: Doctor, postgres_url: str) -> None:
    code, report = doctor(postgres_url)
    assert code == 0
    place = urlsplit(postgres_url)
    level, text, _ = one(report, "store")
    assert (level, text) == (
        "ok",
        f"schema 'amoxi' of {place.hostname}:{place.port}{place.path} is not there yet: the first start makes it",
    )
    for check in ("database", "durability", "connections", "news"):
        assert one(report, check)[0] == "ok", report
    assert of(report, "disk") == []
    assert do(postgres_url, "SELECT nspname FROM pg_namespace WHERE nspname = 'amoxi'") == []


def test_a_store_is_there_after_amoxi_migrate(doctor: Doctor, migrated: str) -> None:
    code, report = doctor(migrated)
    assert code == 0
    assert re.search(r"is there, [\d.]+ [KM]iB$", one(report, "store")[1])
    assert one(report, "migrations")[:2] == ("ok", "the store is up to date")


def test_migrations_that_are_missing_or_unknown_are_told(doctor: Doctor, migrated: str) -> None:
    do(migrated, "INSERT INTO amoxi.migration SELECT 9999, '9999_later.sql', made_at FROM amoxi.migration LIMIT 1")
    assert one(doctor(migrated)[1], "migrations")[:2] == (
        "warning",
        "a newer version of amoxi_py has changed the store (migration 9999)",
    )
    do(migrated, "DELETE FROM amoxi.migration")
    code, report = doctor(migrated)
    level, text, _ = one(report, "migrations")
    assert (code, level) == (0, "note")
    assert "0001_runs.sql" in text


def test_a_role_that_may_not_make_the_store_is_told_a_way_that_works(
    doctor: Doctor, shop: str, postgres_url: str
) -> None:
    code, report = doctor(shop)
    level, text, fix = one(report, "store")
    assert (code, level) == (1, "error")
    assert "is not there yet, and the role 'shop' may not make it" in text
    assert "amoxi migrate" in fix
    do(postgres_url, statement_in(fix))
    code, report = doctor(shop)
    assert (code, one(report, "store")[0]) == (0, "ok")


def test_a_role_that_may_not_use_the_store_is_told_ways_that_work(doctor: Doctor, migrated: str, shop: str) -> None:
    for part in (
        "may not use the schema",
        "may not read and write",
        "may not read conversation_key_seq, event_key_seq",
    ):
        code, report = doctor(shop)
        level, text, fix = one(report, "store")
        assert (code, level) == (1, "error")
        assert part in text
        do(migrated, statement_in(fix))
    code, report = doctor(shop)
    assert (code, one(report, "store")[0]) == (0, "ok")
    do(migrated, "DELETE FROM amoxi.migration WHERE number > 1")
    code, report = doctor(shop)
    level, text, fix = one(report, "migrations")
    assert (code, level) == (1, "error")
    assert "which the role 'shop' may not make" in text
    assert "amoxi migrate" in fix


def test_tables_of_something_else_are_not_taken_for_a_store(doctor: Doctor, postgres_url: str) -> None:
    do(postgres_url, "CREATE TABLE public.message (id integer)")
    do(postgres_url, "CREATE TABLE public.migration (version integer)")
    do(postgres_url, "CREATE TABLE public.stock (id integer)")
    assert doctor(postgres_url)[0] == 0, "they are in another schema"
    code, report = doctor(postgres_url, AI_STORE_SCHEMA="public")
    level, text, fix = one(report, "store")
    assert (code, level) == (1, "error")
    assert text.endswith("holds no store, but tables of something else: message, migration")
    assert "'ai.store.schema'" in fix
    do(postgres_url, "DROP TABLE public.message, public.migration")
    code, report = doctor(postgres_url, AI_STORE_SCHEMA="public")
    level, text, fix = one(report, "store")
    assert (code, level) == (0, "warning")
    assert text.endswith("is not there yet: the first start makes it, beside stock")
    assert "'ai.store.schema'" in fix


@pytest.mark.parametrize(
    ("change", "reason", "cure"),
    [
        ({"port": "1"}, "Connection refused", "start the database"),
        ({"path": "/nowhere"}, 'database "nowhere" does not exist', "CREATE DATABASE"),
        ({"user": "nobody"}, 'role "nobody" does not exist', "CREATE ROLE"),
        ({"host": "no-such-host.invalid"}, "no-such-host.invalid", "correct the name of its host"),
    ],
)
def test_a_database_that_does_not_answer_is_told_with_the_reason_and_the_cure(
    doctor: Doctor, postgres_url: str, change: dict[str, str], reason: str, cure: str
) -> None:
    place = urlsplit(postgres_url)
    got = {"user": "shop", "host": place.hostname, "port": place.port, "path": place.path, **change}
    url = f"postgresql://{got['user']}:{PASSWORD}@{got['host']}:{got['port']}{got['path']}"
    if "user" not in change:
        url = url.replace("shop:", "postgres:")
    code, report = doctor(url)
    level, text, fix = one(report, "store")
    assert (code, level) == (1, "error")
    assert text.startswith(f"schema 'amoxi' of {got['host']}:{got['port']}{got['path']}: ")
    assert reason in text
    assert cure in fix
    assert "DATABASE_URL" in fix


def test_a_store_without_an_address_is_an_error_of_the_settings(doctor: Doctor) -> None:
    code, report = doctor("")
    assert code == 1
    assert "DATABASE_URL is not set" in of(report, "settings")[0][1]
    assert one(report, "store")[0] == "error"


@pytest.mark.parametrize("form", ["--json", ""])
def test_no_password_is_in_the_output_wherever_it_stands(amoxi: Any, app_folder: Any, form: str) -> None:
    other = "hunter3 of the bell"
    files = {"app/__init__.py": "", "app/bad.py": f"raise RuntimeError({PASSWORD + ', ' + other!r})\n"}
    listen = f"host=127.0.0.1 port=1 user=shop password='{other}'"
    for url in (f"postgresql://shop:{PASSWORD}@127.0.0.1:1/shop", f"postgresql://shop:{PASSWORD}@x@127.0.0.1:1/shop"):
        env = environment(url, AI_STORE_LISTEN_URL=listen)
        answer = amoxi(app_folder(files), "doctor", *form.split(), env=env)
        assert answer.returncode == 1
        assert "RuntimeError: ***, ***" in answer.stdout
        assert PASSWORD not in answer.stdout + answer.stderr
        assert other not in answer.stdout + answer.stderr
        if form:
            rows = {row["key"]: row["value"] for row in json.loads(answer.stdout)["settings"]}
            assert (rows["DATABASE_URL"], rows["ai.store.listen-url"]) == ("set", "set")


def test_a_server_that_loses_what_is_committed_is_an_error_that_the_app_starts_with(
    doctor: Doctor, amoxi: Any, app_folder: Any
) -> None:
    with own_postgres() as careless:
        url = careless.fresh_database()
        code, report = doctor(url)
        answer = amoxi(app_folder(settings={"ai": {"model": "offline"}}), "doctor", env=environment(url))
    assert answer.stdout.splitlines()[-1].endswith("the app can start, but not keep its promises")
    level, text, fix = one(report, "durability")
    assert (code, level) == (1, "error")
    assert text == "fsync and full_page_writes off: what is committed can be lost when the machine fails"
    assert "fsync = on" in fix


def test_a_role_whose_commits_do_not_wait_is_warned_about(doctor: Doctor, postgres_url: str, shop: str) -> None:
    do(postgres_url, 'CREATE SCHEMA "amoxi" AUTHORIZATION shop')
    do(postgres_url, "ALTER ROLE shop SET synchronous_commit = off")
    code, report = doctor(shop)
    level, text, fix = one(report, "durability")
    assert (code, level) == (0, "warning")
    assert text.startswith("synchronous_commit is off")
    do(postgres_url, fix)
    assert one(doctor(shop)[1], "durability")[0] == "ok"


def test_a_standby_that_no_commit_waits_for_is_warned_about(
    doctor: Doctor, postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    with standby(postgres, tmp_path):
        code, report = doctor(postgres_url)
        level, text, fix = one(report, "durability")
        assert (code, level) == (0, "warning")
        assert text == "a standby is attached, and none is synchronous: a failover can lose what was committed"
        assert "synchronous_standby_names" in fix


def test_a_pooler_in_transaction_mode_needs_a_second_address(
    doctor: Doctor, postgres: PostgresServer, postgres_url: str
) -> None:
    with pgbouncer(postgres) as pooler:
        code, report = doctor(pooler.dsn(postgres_url))
        level, text, fix = one(report, "news")
        assert (code, level) == (0, "warning")
        assert text.startswith("LISTEN does not work over DATABASE_URL, so servers look for news every 250 ms")
        assert "'ai.store.listen-url'" in fix
        code, report = doctor(pooler.dsn(postgres_url), AI_STORE_LISTEN_URL=postgres_url)
        assert (code, one(report, "news")[0]) == (0, "ok")
        code, report = doctor(pooler.dsn(postgres_url), AI_STORE_LISTEN_URL="postgresql://127.0.0.1:1/x")
        level, text, _ = one(report, "news")
        assert (code, level) == (0, "warning")
        assert "Connection refused" in text


def test_connections_that_are_too_few_are_told_before_they_run_out(
    doctor: Doctor, postgres_url: str, shop: str
) -> None:
    do(postgres_url, 'CREATE SCHEMA "amoxi" AUTHORIZATION shop')
    level, text, _ = one(doctor(shop)[1], "connections")
    assert level == "ok"
    assert "can have 37 connections here" in text
    assert text.endswith("a process opens 10 at most: enough for 3 processes")
    do(postgres_url, "ALTER ROLE shop CONNECTION LIMIT 12")
    level, text, _ = one(doctor(shop)[1], "connections")
    assert (level, text.endswith("enough for 1 process")) == ("warning", True)
    code, report = doctor(shop, AI_STORE_CONNECTIONS="13")
    assert (code, one(report, "connections")[0]) == (1, "error")


def test_a_database_in_another_encoding_or_that_only_reads_is_an_error(
    doctor: Doctor, postgres: PostgresServer, postgres_url: str, shop: str
) -> None:
    do(postgres_url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    latin = postgres.dsn("latin")
    code, report = doctor(latin)
    assert code == 1
    assert ("error", "the database's encoding is LATIN1, which cannot hold every text") in of(report, "database")
    postgres.drop_database(latin)
    do(postgres_url, 'CREATE SCHEMA "amoxi" AUTHORIZATION shop')
    do(postgres_url, "ALTER ROLE shop SET default_transaction_read_only = on")
    code, report = doctor(shop)
    assert code == 1
    assert any("only read: default_transaction_read_only is on" in text for _, text in of(report, "database"))


def test_pgvector_is_told_where_it_is(doctor: Doctor, postgres_url: str) -> None:
    assert one(doctor(postgres_url)[1], "pgvector")[0] == "note"
    do(postgres_url, "CREATE EXTENSION vector")
    assert one(doctor(postgres_url)[1], "pgvector")[0] == "ok"


def test_a_standby_and_a_server_that_is_too_old_are_errors(postgres_url: str, tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ=environment(postgres_url))
    state = inspect_store(postgres_url, "amoxi")
    for wrong, part in (
        (replace(state, replica=True), "this is a standby, which takes no writes"),
        (replace(state, version="14.12", version_number=140012), "PostgreSQL 14.12 is too old"),
    ):
        assert [finding.text for finding in tell(wrong, settings) if finding.level == "error"] == [part]


def statement_in(fix: str) -> str:
    """Return the statement that a fix names."""
    found = re.search(r"(?:GRANT|CREATE) [^;]*", fix)
    assert found is not None, fix
    return found[0]


@contextmanager
def standby(server: PostgresServer, folder: Path) -> Iterator[None]:
    """Attach something that takes the server's log, as a standby does."""
    program = server.binaries.folder / "pg_receivewal"
    receiver = subprocess.Popen([program, "-D", str(folder), "-d", server.dsn(), "--no-loop"])
    try:
        deadline = time.monotonic() + 60
        while not cast(Any, server.ask("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"))[0][0]:
            assert receiver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield
    finally:
        receiver.kill()
        receiver.wait(20)
