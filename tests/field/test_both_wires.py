"""The field cases of models and tools with both wire formats, on both stores, across a kill: O08-O12, O17-O23,
O28-O30, X07, X15-X17.

One server plays all cases at the same time, each in conversations of its own. It is killed when every case is where it
wants that; a door that executes nothing takes what people do meanwhile; and another server takes all runs up.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import wire_cases_models
import wire_cases_people
import wire_cases_values
from whole import WHOLE
from wire_app import AGENTS, MODULES
from wire_world import Cases, Stage

CASES = {**wire_cases_people.CASES, **wire_cases_values.CASES, **wire_cases_models.CASES}
LONGEST_REQUEST = 100_000
WORDS = ("the first result", "A-1003 instead", "word7 ", "Größe")
PAIRS = (("openai", "file"), ("anthropic", "postgres"), ("openai", "postgres"), ("anthropic", "file"))
"""The first two in an ordinary run; all of them with AMOXI_TEST_ALL=1."""
CANARIES = ("canary", "acme-token", "globex-token")


@pytest.fixture
def secret_env(store_env: dict[str, str]) -> dict[str, str]:
    """An address of a database with a password in it; one that nobody uses, where the store is a file."""
    url = store_env.get("DATABASE_URL", "postgresql://postgres@db.internal/shop")
    return {"DATABASE_URL": url.replace("postgres@", "postgres:canary-of-the-address@"), "LOG_LEVEL": "debug"}


def env_of(wire: str, model: Any) -> dict[str, str]:
    key = f"{wire_cases_models.KEY}\n"
    if wire == "openai":
        return {"AI_MODEL": "openai:test", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": key}
    url = model.anthropic_url
    return {"AI_MODEL": "anthropic:claude-sonnet-5-5", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key}


@pytest.mark.crash
@pytest.mark.parametrize(("wire", "store_kind"), PAIRS if WHOLE else PAIRS[:2], indirect=["store_kind"])
def test_every_case_of_the_field_holds_with_both_wire_formats_on_both_stores_across_a_kill(
    field_app: Any,
    start: Any,
    client: Any,
    reader: Any,
    until: Any,
    strict_model: Any,
    wire: str,
    store_kind: str,
    secret_env: dict[str, str],
) -> None:
    folder = field_app(AGENTS, **MODULES)
    stage = Stage(wire=wire, folder=folder, connect=client, follow=reader, until=until)
    stage.model = strict_model(stage.play, max_body=LONGEST_REQUEST)
    settings = {"AI_RUNS_PARALLEL_CALLS": "2", "AI_TOOLS_MAX_RESULT_KB": "32", **secret_env}
    env = {**env_of(wire, stage.model), **settings}
    cases = Cases(stage, CASES)
    first = stage.server = start(folder, env=env)
    cases.play_on()
    first.kill9()
    door = stage.server = start(folder, env={**env, "AI_RUNS_WORKER": "false"}, port=first.port)
    cases.play_on()
    second = stage.server = start(folder, env=env)
    cases.play_on(to_the_end=True)
    told = "\n\n".join(f"--- {name}\n{failure}" for name, failure in cases.failures.items())
    assert not cases.failures, f"{len(cases.failures)} of {len(CASES)} cases failed with {wire}: \n{told}"
    assert stage.model.refused == []
    assert set(stage.model.keys) == {wire_cases_models.KEY}

    logs = [server.log() for server in (first, door, second)]
    held = {f"log {n}": text for n, text in enumerate(logs)}
    assert "cannot connect with password=***" in logs[0], "what went wrong is told, without the password"
    assert [words for words in WORDS if words in "".join(logs)] == [], "no words of people, models and tools"
    held["runs"] = client(second).get_path("/runs?limit=100").text
    assert second.stop() == door.stop() == 0
    held |= stored(folder, secret_env["DATABASE_URL"] if store_kind == "postgres" else None)
    found = [
        (where, text[max(0, text.index(word) - 80) :][:120])
        for where, text in held.items()
        for word in CANARIES
        if word in text
    ]
    assert found == []


def stored(folder: Any, url: str | None) -> dict[str, str]:
    """All that is in the store."""
    if url is None:
        return {
            file.name: file.read_bytes().decode("latin-1") for file in (folder / "data").rglob("*") if file.is_file()
        }
    with psycopg.connect(url) as connection:
        tables = [name for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'amoxi'")]
        rows = {name: connection.execute(f"SELECT t::text FROM amoxi.{name} t").fetchall() for name in tables}
    return {name: repr(texts) for name, texts in rows.items()}
