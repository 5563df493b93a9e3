"""The commands on a store in PostgreSQL: the same as on a folder, for as many servers as there are."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

ROOT = Path(__file__).parents[2]
TOKEN = "a-token-that-is-long-enough"
CALLER = {"AI_API_CALLERS_ACME": TOKEN}
PASSWORD = "hunter2-of-the-shop"


@pytest.fixture
def env(postgres_url: str) -> dict[str, str]:
    """The environment of a command whose store is in an empty database."""
    return {"AI_STORE_TYPE": "postgres", "DATABASE_URL": postgres_url}


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """The address of the same database for a role `shop` that may make nothing in it."""
    do(postgres_url, f"CREATE ROLE shop LOGIN PASSWORD '{PASSWORD}'")
    place = urlsplit(postgres_url)
    yield f"postgresql://shop:{PASSWORD}@{place.hostname}:{place.port}{place.path}"
    do(postgres_url, "DROP OWNED BY shop")
    do(postgres_url, "DROP ROLE shop")


def do(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in script.split(";\n"):
            connection.execute(statement.encode())


def rows(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        return connection.execute(statement.encode()).fetchall()


def schemas(url: str) -> list[str]:
    return [name for (name,) in rows(url, "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'")]


def place_of(url: str) -> str:
    place = urlsplit(url)
    return f"schema 'amoxi' of {place.hostname}:{place.port}{place.path}"


def call(server: Any, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        server.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for(condition: Any, timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def test_an_operator_is_told_that_there_is_no_store_yet_and_makes_none(
    shop: Path, amoxi: Any, env: dict[str, str]
) -> None:
    answer = amoxi(shop, "runs", "list", env=env)
    assert answer.returncode == 1
    place = place_of(env["DATABASE_URL"])
    assert f"there is no store yet: {place} is the store of the profile 'production'; the first start" in answer.stderr
    assert "amoxi" not in schemas(env["DATABASE_URL"])


def test_an_empty_list_names_the_database_and_no_folder_is_made(shop: Path, amoxi: Any, env: dict[str, str]) -> None:
    place = place_of(env["DATABASE_URL"])
    for _ in range(2):  # the second time there is nothing to do
        answer = amoxi(shop, "migrate", env=env)
        assert (answer.returncode, answer.stdout) == (0, f"the store in {place} is up to date\n"), answer.stderr
    answer = amoxi(shop, "runs", "list", env=env)
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr == f"no runs: {place} is the store of the profile 'production'\n"
    answer = amoxi(shop, "runs", "show", "nothing", env=env)
    assert answer.returncode == 1
    assert f"{place} is the store of the profile 'production'" in answer.stderr
    assert not (shop / "data").exists()


@pytest.mark.parametrize(
    "command",
    [("runs", "list"), ("approvals", "list"), ("migrate",), ("chat", "--message", "x"), ("worker",)],
)
def test_a_database_that_is_away_ends_a_command_with_its_place_and_without_the_password(
    shop: Path, amoxi: Any, command: tuple[str, ...]
) -> None:
    env = {"AI_STORE_TYPE": "postgres", "DATABASE_URL": f"postgresql://shop:{PASSWORD}@127.0.0.1:1/shop"}
    answer = amoxi(shop, *command, env=env)
    assert answer.returncode == 1
    assert "the store in schema 'amoxi' of 127.0.0.1:1/shop cannot be asked: " in answer.stderr
    assert "port 1 failed: Connection refused" in answer.stderr
    assert PASSWORD not in answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_chat_in_dev_finds_the_database_in_dotenv_and_the_operator_by_the_profile(
    shop: Path, amoxi: Any, postgres_url: str
) -> None:
    (shop / "application.json").write_text('{"ai": {"store": {"type": "postgres", "schema": "shop_dev"}}}', "utf-8")
    (shop / ".env").write_text(f"DATABASE_URL={postgres_url}\n", "utf-8")
    answer = amoxi(shop, "chat", "--message", "Look up order A-1001", "--json")
    assert answer.returncode == 0, answer.stderr
    run = json.loads(answer.stdout)
    assert run["status"] == "completed"
    assert "shop_dev" in schemas(postgres_url)
    listed = amoxi(shop, "runs", "list", "--profile", "dev", "--json")
    assert [one["id"] for one in json.loads(listed.stdout)["items"]] == [run["id"]]
    refused = amoxi(shop, "runs", "list")
    assert refused.returncode == 1
    assert "DATABASE_URL is not set" in refused.stderr
    assert ".env is read in the profile 'dev' only" in refused.stderr
    waiting = amoxi(shop, "chat", "--message", "Cancel order A-1002")
    assert re.search(r"amoxi approvals decide \w+ approve\|decline --profile dev", waiting.stdout + waiting.stderr)


def test_servers_and_operators_in_different_folders_share_one_store(
    app_folder: Any, shop: Path, serve: Any, amoxi: Any, env: dict[str, str]
) -> None:
    copies = [app_folder({str(file.relative_to(shop)): file.read_text() for file in shop.rglob("*.py")}) for _ in "ab"]
    server = serve(shop, env={**CALLER, **env, "AI_RUNS_WORKER": "false"}, args=["--workers", "2"])
    server.wait_log(f"store: {place_of(env['DATABASE_URL'])}")
    run_id = call(server, "/agents/shop/runs", {"message": "Cancel order A-1002"})["id"]
    assert call(server, f"/runs/{run_id}")["status"] == "queued"
    worker = serve(copies[0], env=env, command="worker", wait_ready=False)
    wait_for(lambda: call(server, f"/runs/{run_id}")["status"] == "waiting")
    [approval] = json.loads(amoxi(copies[1], "approvals", "list", "--json", env=env).stdout)["items"]
    decided = amoxi(copies[1], "approvals", "decide", approval["call_id"], "approve", env=env)
    assert decided.returncode == 0, decided.stderr
    wait_for(lambda: call(server, f"/runs/{run_id}")["status"] == "completed")
    assert (copies[0] / "cancelled.log").read_text().startswith("A-1002 ")
    assert (worker.stop(), server.stop()) == (0, 0)


def test_a_role_that_may_not_make_the_store_is_told_to_migrate_and_its_documented_rights_are_enough(
    shop: Path, serve: Any, amoxi: Any, env: dict[str, str], role: str
) -> None:
    limited = {**env, "DATABASE_URL": role}
    server = serve(shop, env=limited, wait_ready=False)
    assert server.wait_exit() == 1
    assert "amoxi migrate" in server.log()
    assert "Traceback" not in server.log()
    assert PASSWORD not in server.log()
    assert amoxi(shop, "migrate", env=env).returncode == 0
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    [rights] = re.findall(r"```sql\n(.*?);\n```", page, re.DOTALL)
    do(env["DATABASE_URL"], rights)
    answer = amoxi(shop, "chat", "--message", "Look up order A-1001", env={**limited, "AMOXI_PROFILE": "dev"})
    assert answer.returncode == 0, answer.stderr
    assert amoxi(shop, "doctor", env=limited).stdout.count("the store is up to date") == 1


def test_processes_that_want_more_connections_than_there_are_are_told_of_once(
    shop: Path, serve: Any, env: dict[str, str]
) -> None:
    [(most,)] = rows(env["DATABASE_URL"], "SELECT current_setting('max_connections')::integer")
    wanted = most // 3
    server = serve(shop, env={**env, "AI_STORE_CONNECTIONS": str(wanted)}, args=["--workers", "3"])
    server.wait_log("(3 processes)")
    told = f"a process opens {wanted} at most: enough for 2 of the 3 processes; raise max_connections, lower"
    assert server.log().count(told) == 1
    server.kill9()
    server = serve(shop, env={**env, "AI_STORE_CONNECTIONS": "5"}, args=["--workers", "2"])
    server.wait_log("(2 processes)")
    assert "a process opens" not in server.log()


def test_what_is_old_is_purged_and_all_of_a_caller_exported_and_erased(
    shop: Path, serve: Any, amoxi: Any, env: dict[str, str]
) -> None:
    url = env["DATABASE_URL"]
    server = serve(shop, env=env | CALLER)
    for message in ("Look up order A-1001", "Cancel order A-1002"):
        call(server, "/agents/shop/runs?wait=1", {"message": message})
    wait_for(lambda: len(call(server, "/approvals")["items"]) == 1)
    call(server, "/agents/shop/runs?wait=30", {"message": "Look up order A-1003"})
    do(url, "UPDATE amoxi.conversation SET created_at = 0, updated_at = 0 WHERE key <= 2")
    purged = amoxi(shop, "runs", "purge", "--older-than", "30", env=env)
    assert purged.stdout == "older than 30 days and ended: 1 conversations with 1 runs deleted\n", purged.stderr
    lines = [json.loads(line) for line in amoxi(shop, "export", "api:acme", env=env).stdout.splitlines()]
    assert [line["status"] for line in lines if line["type"] == "run"] == ["completed", "waiting"]
    erased = json.loads(amoxi(shop, "erase", "api:acme", "--yes", "--json", env=env).stdout)
    assert erased["conversations"] == 2
    assert call(server, "/agents/shop/conversations")["items"] == []
    tables = rows(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'amoxi'")
    assert [
        name for (name,) in tables if rows(url, f"SELECT 1 FROM amoxi.{name} AS t WHERE t::text LIKE '%acme%'")
    ] == []
