"""The database of the settings: where its address may come from, which one stops the start, and what is never told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from amoxi_py.config.load import load_settings
from amoxi_py.errors import ConfigError
from amoxi_py.stores.postgres.place import place_of

POSTGRES = {"AI_STORE_TYPE": "postgres"}
URL = "postgresql://shop:hunter2@db.internal:5433/orders"


def refusal(folder: Path, **environ: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(folder, environ=environ)
    return str(caught.value)


def test_the_address_comes_from_a_variable_or_a_file_and_the_rest_from_settings(tmp_path: Path) -> None:
    settings = load_settings(tmp_path, environ={**POSTGRES, "DATABASE_URL": f"{URL}\n"})
    store = settings.ai.store
    assert (settings.database_url, settings.listen_url) == (URL, None)
    assert (store.schema_, store.connections) == ("amoxi", 10)
    (tmp_path / "url").write_text(f"{URL}\n", "utf-8")
    given = {"AI_STORE_SCHEMA": "shop_2", "AI_STORE_CONNECTIONS": "5", "AI_STORE_LISTEN_URL": f"{URL}?sslmode=require"}
    settings = load_settings(tmp_path, environ={**POSTGRES, **given, "DATABASE_URL_FILE": str(tmp_path / "url")})
    store = settings.ai.store
    assert (settings.database_url, settings.listen_url) == (URL, f"{URL}?sslmode=require")
    assert (store.schema_, store.connections) == ("shop_2", 5)
    assert "hunter2" not in repr(settings)


def test_in_dev_the_address_may_stand_in_dotenv_and_elsewhere_it_is_said_that_it_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"DATABASE_URL={URL}\n", "utf-8")
    assert load_settings(tmp_path, profile="dev", environ=POSTGRES).database_url == URL
    assert ".env is read in the profile 'dev' only" in refusal(tmp_path, **POSTGRES)


def test_postgres_without_an_address_stops_with_the_variable_to_set(tmp_path: Path) -> None:
    message = refusal(tmp_path, **POSTGRES)
    assert "'ai.store.type' from AI_STORE_TYPE is 'postgres', but DATABASE_URL is not set" in message
    assert "postgresql://user:password@host:5432/database" in message
    assert ".env" not in message


@pytest.mark.parametrize("url", ["mysql://shop:hunter2@db/shop", "nonsense", URL])
def test_a_file_store_does_not_care_what_a_platform_sets(tmp_path: Path, url: str) -> None:
    settings = load_settings(tmp_path, environ={"DATABASE_URL": url, "AI_STORE_LISTEN_URL": url})
    assert (settings.ai.store.type, settings.warnings) == ("file", ())


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://shop:hunter2@db/shop", "it does not begin with 'postgresql://': write it as postgresql://"),
        ("postgresql+asyncpg://shop:hunter2@db/shop", "it does not begin with 'postgresql://'"),
        ("hunter2://db/shop", "it does not begin with 'postgresql://'"),
        ("postgresql://shop:hunter2@word@db/shop", "an '@' in it that is not the one before the host"),
        ("postgresql://shop:hunter2/word@db/shop", "%40 is for @"),
        ("postgresql://shop:hunter2%zz@db/shop", "%40 is for @"),
        ("postgresql://shop:hunter2@db:hunter2/shop", "its port is no number"),
        ("postgresql://shop:hunter2@db/shop?schema=public&pgbouncer=true", "its parameters 'schema', 'pgbouncer'"),
        ("host=db password=hunter2 word", "write it as postgresql://"),
        ("hunter2", "write it as postgresql://"),
    ],
)
def test_an_address_that_cannot_be_used_stops_with_the_way_out_and_is_not_told(
    tmp_path: Path, url: str, told: str
) -> None:
    for variable, rest in (("DATABASE_URL", {}), ("AI_STORE_LISTEN_URL", {"DATABASE_URL": "postgresql://db/shop"})):
        message = refusal(tmp_path, **POSTGRES, **rest, **{variable: url})
        assert f"{variable} (not shown) is no address of a PostgreSQL database: " in message
        assert told in message
        assert "hunter2" not in message


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (URL, "db.internal:5433/orders"),
        ("postgres://shop:hunter2@db/orders?sslmode=require", "db:5432/orders"),
        ("postgresql://shop:hunter2@a:1,b:2/orders", "a:1,b:2/orders"),
        ("postgresql://[::1]/orders", "[::1]:5432/orders"),
        ("host=/run/postgresql dbname=orders password='hunter 2'", "/run/postgresql:5432/orders"),
        ("postgresql://shop:hunt?er#2@db", "db:5432/shop"),
    ],
)
def test_a_database_is_called_by_its_place(
    tmp_path: Path, url: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER"):
        monkeypatch.delenv(name, raising=False)
    assert place_of(load_settings(tmp_path, environ={**POSTGRES, "DATABASE_URL": url}).database_url) == place


def test_the_driver_is_loaded_only_where_a_database_is_named(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom amoxi_py.app.store import make_store\nfrom amoxi_py.config.load import load_settings\n"
        "import amoxi_py.app.runtime, amoxi_py.cli.start, amoxi_py.cli.checks.storage\n"
        f"make_store(load_settings(environ={{'DATABASE_URL': {URL!r}}}))\n"
        "assert not [name for name in sys.modules if name.startswith('psycopg')]\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
