"""The first start: of several servers at one instant, on an old schema, and with roles that may not make anything."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.rows import dict_row

from amoxi_py.stores.postgres.migrate import migrations

TIMES = min(10, int(os.environ.get("AMOXI_TRIALS", "1")))
PROCESSES = 4
APP = {
    "app/__init__.py": "",
    "app/agents.py": '''
from amoxi_py import agent, tool


@tool(read_only=True)
def look(thing: str) -> str:
    """Look at a thing."""
    return f"saw {thing}"


@agent(tools=[look], model="offline")
class Looker:
    """You look."""
''',
}


def ask(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def as_role(url: str, name: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{name}:secret@{parts.netloc.rpartition('@')[2]}").geturl()


@pytest.fixture
def role(postgres: Any, postgres_url: str) -> Any:
    """A role that may connect and no more; what it owns and was granted goes with the test's database."""
    name = f"shop_{secrets.token_hex(4)}"
    ask(postgres_url, f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    yield name
    ask(postgres_url, f"DROP OWNED BY {name}")
    ask(postgres_url, f"DROP ROLE {name}")


def only_first_migration(url: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Leave a store as its first version made it, with these rows, and as last position of each key what they have."""
    number, name, script = migrations()[0]
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA amoxi")
        connection.execute(
            "CREATE TABLE amoxi.migration "
            '(number integer PRIMARY KEY, name text COLLATE "C" NOT NULL, made_at bigint NOT NULL)'
        )
        connection.execute(script.replace("@", "amoxi."), prepare=False)
        connection.execute("INSERT INTO amoxi.migration VALUES (%s, %s, 0)", (number, name))
        for table, its in rows.items():
            there = connection.execute(f"SELECT * FROM amoxi.{table} LIMIT 0").description or ()
            known = {column.name for column in there}
            for whole in its:
                row = {name: value for name, value in whole.items() if name in known}
                statement = f"INSERT INTO amoxi.{table} ({', '.join(row)}) OVERRIDING SYSTEM VALUE VALUES "
                places = ", ".join(["%s"] * len(row))
                connection.execute(f"{statement} ({places})", list(row.values()))
        for table in ("worker", "conversation", "run", "event"):
            connection.execute(
                f"SELECT setval(pg_get_serial_sequence('amoxi.{table}', 'key'), (SELECT max(key) FROM amoxi.{table}))"
            )


def rows_in_flight(url: str) -> dict[str, list[dict[str, Any]]]:
    """Make of a store with queued runs the rows of one whose workers died with half of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    with psycopg.connect(url, row_factory=dict_row) as connection:
        worker = "INSERT INTO amoxi.worker (id, expires_at) VALUES ('worker_gone', 1) RETURNING key"
        key = connection.execute(worker).fetchall()[0]["key"]
        connection.execute(
            "UPDATE amoxi.run SET status = 'running', wake_at = NULL, worker = %s, claim = 1, fence = 1, attempt = 1 "
            "WHERE key %% 2 = 0",
            (key,),
        )
        for table in ("worker", "conversation", "run", "message", "event"):
            found[table] = connection.execute(f"SELECT * FROM amoxi.{table}").fetchall()
    return found


def test_several_servers_start_at_one_instant_on_an_empty_database_and_on_an_old_one_with_runs_in_flight(
    postgres: Any, app_folder: Any, start: Any, client: Any, database_env: Any, at_once: Any
) -> None:
    folder = app_folder(APP)
    url = postgres.fresh_database()
    before = start(folder, env={**database_env(url), "AI_RUNS_WORKER": "false"})
    in_flight = [client(before).submit("looker", f"look at number {n}")["id"] for n in range(6)]
    before.kill9()
    rows = rows_in_flight(url)
    assert {row["status"] for row in rows["run"]} == {"queued", "running"}
    for time in range(TIMES):
        for old in (False, True):
            url = postgres.fresh_database()
            if old:
                only_first_migration(url, rows)
            env = database_env(url, connections=5)
            servers = at_once(*(lambda env=env: start(folder, env=env, wait_ready=False) for _ in range(PROCESSES)))
            for server in servers:
                server.wait_ready()
            api = client(servers[time % PROCESSES])
            run = api.submit("looker", "hello", wait=20)
            assert run["status"] == "completed"
            for run_id in in_flight if old else ():
                assert api.until_status(run_id)["status"] == "completed"
            for server in servers:
                assert client(server).run(run["id"])["output"] == run["output"]
                assert "Traceback" not in server.log()
                assert '"level": "error"' not in server.log()
            made = ask(url, "SELECT number, name FROM amoxi.migration ORDER BY number")
            assert made == [(number, name) for number, name, _ in migrations()]
            for server in servers:
                server.kill9()
            postgres.drop_database(url)


def test_a_role_that_may_make_nothing_is_told_the_command_and_works_with_the_documented_rights_after_it(
    postgres_url: str, role: str, app_folder: Any, serve: Any, start: Any, client: Any, database_env: Any
) -> None:
    folder = app_folder(APP)
    restricted = database_env(as_role(postgres_url, role))
    refused = serve(folder, env=restricted, wait_ready=False)
    assert refused.wait_exit() != 0
    assert "amoxi migrate" in refused.log()
    assert "Traceback" not in refused.log()
    assert "secret" not in refused.log()

    migrating = serve(folder, command="migrate", env=database_env(postgres_url), wait_ready=False)
    assert migrating.wait_exit() == 0, migrating.log()
    for grant in documented_grants():
        ask(postgres_url, re.sub(r"\bshop\b", role, grant))
    servers = [start(folder, env=restricted) for _ in range(2)]
    api = client(servers[0])
    run = api.submit("looker", "look at the moon", wait=20)
    assert run["status"] == "completed"
    assert client(servers[1]).run(run["id"])["status"] == "completed"
    path = f"/agents/looker/conversations/{run['conversation_id']}"
    uploaded = api.post_path("/files", files={"file": ("a.txt", b"hello")})
    assert uploaded.status_code in (200, 201), uploaded.text
    assert api.get_path(f"/files/{uploaded.json()['id']}").content == b"hello"
    assert api.http.delete(path).status_code == 204
    for server in servers:
        assert "Traceback" not in server.log()
        assert "permission denied" not in server.log()


def documented_grants() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text("utf-8")
    (block,) = [block for block in re.findall(r"```sql\n(.*?)```", page, re.DOTALL) if "GRANT USAGE" in block]
    return [line.strip() for line in block.split(";") if line.strip()]


def test_tables_of_the_same_names_and_a_search_path_of_the_apps_own_are_left_alone(
    postgres: Any, postgres_url: str, app_folder: Any, start: Any, client: Any, database_env: Any
) -> None:
    names = ("message", "event", "run", "migration", "worker", "conversation")
    for name in names:
        ask(postgres_url, f"CREATE TABLE public.{name} (id int PRIMARY KEY, mine text)")
        ask(postgres_url, f"INSERT INTO public.{name} VALUES (1, 'mine')")
    ask(postgres_url, "CREATE SCHEMA shop")
    database = urlsplit(postgres_url).path.strip("/")
    ask(postgres_url, f"ALTER DATABASE {database} SET search_path = shop, public")
    server = start(app_folder(APP), env=database_env(postgres_url))
    assert client(server).submit("looker", "hello", wait=20)["status"] == "completed"
    for name in names:
        assert ask(postgres_url, f"SELECT * FROM public.{name}") == [(1, "mine")]
    places = "SELECT n.nspname, count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
    kinds = "WHERE c.relkind IN ('r', 'S', 'v', 'f') AND n.nspname IN ('public', 'shop') GROUP BY 1"
    assert ask(postgres_url, places + kinds) == [("public", len(names))]
    assert ask(postgres_url, "SELECT count(*) FROM amoxi.run") == [(1,)]


@pytest.mark.parametrize("name", ["Amoxi", "my-schema", 'a"b', "a.b", "pg_amoxi", "1st", "a" * 64])
def test_a_schema_whose_name_would_need_quotes_stops_the_start(
    app_folder: Any, serve: Any, database_env: Any, name: str, postgres_url: str
) -> None:
    server = serve(app_folder(APP), env=database_env(postgres_url, schema=name), wait_ready=False)
    assert server.wait_exit() != 0
    assert "ai.store.schema" in server.log()
    assert ask(
        postgres_url, "SELECT count(*) FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema|public)'"
    ) == [(0,)]
