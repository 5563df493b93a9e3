"""The app under load, as `amoxi start` runs it: on a store of its own, and with the played provider for a model."""

from __future__ import annotations

import json
import os
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from amoxi_py.config.load import load_settings
from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.child import Child
from amoxi_py.testing.bench.server import Server
from amoxi_py.testing.bench.target import amoxi_target

_ANSWER_S = 10.0
_READY = r"is ready: (\S+)"
_KEYS_OF_PROVIDERS = ("OPENAI_API_KEY_FILE", "ANTHROPIC_API_KEY_FILE")
_SMALL_APP = '''\
from amoxi_py import agent


@agent
class Assistant:
    """You are a helpful assistant."""
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """What is started for each measurement.

    Attributes:
        folder: The app's, or None for a small one with a chat agent.
        agent: Whom the clients talk to; None takes the only one.
        workers: Server processes.
        postgres: Whether the store is the PostgreSQL of `DATABASE_URL`, in a schema of its own that is dropped at the
            end; else it is the embedded one, in a folder of its own.
        headers: Lines of each request, `Name: value`, for an app that wants to know who asks.
        settings: Of the environment, by variable; they win over the app's own.
    """

    folder: Path | None = None
    agent: str | None = None
    workers: int
    postgres: bool = False
    headers: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def app_server(app: App, place: Path, provider_url: str, **settings: str) -> Iterator[Server]:
    """Run an app's server; `place` is an empty folder for its store and log; `settings` are by variable.

    Raises:
        CommandRefused: it does not start, or it is not clear which agent is asked.
    """
    with _store(app, place) as (store, stored):
        env = {**os.environ, **_told(provider_url), **store, **app.settings, **settings}
        for name in _KEYS_OF_PROVIDERS:
            env.pop(name, None)
        command = [sys.executable, "-m", "amoxi_py", "start", "--workers", str(app.workers)]
        command += ["--host", "127.0.0.1", "--port", "0"]
        folder = app.folder or _small_app(place)
        with Child("the app", command, folder=folder, log=place / "app.log", env=env) as child:
            port = urlsplit(child.wait_for(_READY)).port
            assert port is not None
            prefix = load_settings(folder, environ=env).ai.http.prefix or ""
            agent = app.agent or _only_agent(f"http://127.0.0.1:{port}{prefix}", app.headers)
            target = amoxi_target(agent, prefix=prefix, headers=app.headers)
            yield Server("amoxi", child, port, target, stored)


def _told(provider_url: str) -> dict[str, str]:
    """Return the environment's part that makes every provider the played one: nothing is asked of a real one."""
    return {
        "AI_MODEL": "openai:bench",
        "OPENAI_API_KEY": "bench",
        "OPENAI_BASE_URL": f"{provider_url}/v1",
        "ANTHROPIC_API_KEY": "bench",
        "ANTHROPIC_BASE_URL": provider_url,
        "AI_HTTP_ANONYMOUS": "true",
        "PYTHONUNBUFFERED": "1",
    }


@contextmanager
def _store(app: App, place: Path) -> Iterator[tuple[dict[str, str], Callable[[], int | None]]]:
    if not app.postgres:
        store = place / "store"
        yield {"AI_STORE_TYPE": "file", "AI_STORE_PATH": str(store.absolute())}, lambda: _size(store)
        return
    url = os.environ.get("DATABASE_URL")
    if not url:
        raise CommandRefused(
            "--store postgres measures on the PostgreSQL of DATABASE_URL, which is not set: "
            "export DATABASE_URL=postgresql://...; a schema is made there and dropped at the end"
        )
    schema = f"amoxi_bench_{secrets.token_hex(4)}"
    try:
        yield {"AI_STORE_TYPE": "postgres", "AI_STORE_SCHEMA": schema}, lambda: _size_of_schema(url, schema)
    finally:
        _drop(url, schema)


def _size(folder: Path) -> int:
    sizes = []
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:
            pass  # the store has just removed it
    return sum(sizes)


def _size_of_schema(url: str, schema: str) -> int | None:
    import psycopg  # here: the embedded store goes without it

    statement = (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind = 'r'"
    )
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            return int(connection.execute(statement, (schema,)).fetchall()[0][0])
    except psycopg.Error:
        return None  # such as too many connections: the measurement goes on without this figure


def _drop(url: str, schema: str) -> None:
    import psycopg
    from psycopg import sql

    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
    except psycopg.Error as error:  # what ended the measurement is not hidden by it
        told = f"amoxi: schema {schema!r}, if it was made, is still there ({type(error).__name__}): drop it by hand"
        print(told, file=sys.stderr)  # noqa: T201 - a command's message


def _small_app(place: Path) -> Path:
    folder = place / "bench-app"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "__init__.py").write_text(_SMALL_APP, "utf-8")
    (folder / "application.json").write_text("{}\n", "utf-8")
    return folder


def _only_agent(url: str, headers: tuple[str, ...]) -> str:
    lines = (line.partition(":") for line in headers)
    asked = urllib.request.Request(  # noqa: S310 - our own server
        f"{url}/agents", headers={name: value.strip() for name, _, value in lines}
    )
    try:
        with urllib.request.urlopen(asked, timeout=_ANSWER_S) as answer:  # noqa: S310
            told: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            raise CommandRefused(
                f"the app answers GET /agents with {error.code}: give what it wants of a caller with --header"
            ) from error
    names = [item["name"] for item in told["items"]]
    if len(names) != 1:
        there = ", ".join(names) or "none that this caller may use"
        raise CommandRefused(f"name the agent that is to be asked with --agent; there are: {there}")
    return str(names[0])
