"""The store that the settings name."""

from __future__ import annotations

import asyncio
import os

from amoxi_py.app.declarations import require_package
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.domain.budget import BILLION
from amoxi_py.domain.limits import Limits
from amoxi_py.errors import ConfigError
from amoxi_py.ports.clock import Clock, SystemClock
from amoxi_py.ports.operator_store import OperatorStore
from amoxi_py.ports.store import Store
from amoxi_py.stores.postgres.place import place_of
from amoxi_py.stores.sqlite.migrate import DATABASE
from amoxi_py.stores.sqlite.store import SqliteStore

DAY_S = 86_400.0


def make_store(settings: Settings, *, clock: Clock | None = None) -> OperatorStore:
    """Return the store, not opened yet; one in files may have another clock than the machine's.

    Raises:
        ConfigError: a file stands where its folder should be.
    """
    store, days = settings.ai.store, settings.ai.retention.days
    keep_s = None if days is None else days * DAY_S
    if store.type == "postgres":
        from amoxi_py.stores.postgres.store import PostgresStore  # its driver is not loaded where nobody needs it

        return PostgresStore(
            settings.database_url,
            schema=store.schema_,
            listen_url=settings.listen_url,
            connections=store.connections,
            keep_s=keep_s,
            limits=limits_of(settings),
        )
    folder = settings.store_folder
    for place in (folder, *folder.parents):
        if os.path.isfile(place):  # unlike Path's it is False for what this user may not look at
            source = settings.sources.get("ai.store.path", "the defaults")
            raise ConfigError(
                f"'ai.store.path' from {source} is {store.path!r}, a folder for the store's files, "
                f"but {str(place)!r} is a file: name another folder, or move the file away"
            )
    return SqliteStore(folder, clock=clock or SystemClock(), keep_s=keep_s, limits=limits_of(settings))


def limits_of(settings: Settings) -> Limits:
    """Return what is admitted."""
    limits = settings.ai.limits
    return Limits(
        in_flight=settings.ai.runs.max_in_flight,
        runs_at_once=limits.runs_at_once,
        requests_per_minute=limits.requests_per_minute,
        runs_per_day=limits.runs_per_day,
        tokens_per_day=limits.tokens_per_day,
        cost_per_day=round(limits.usd_per_day * BILLION),
    )


def place_of_store(settings: Settings) -> str:
    """Return where the store is, without any secret: a folder, or a schema and its database."""
    if settings.ai.store.type == "postgres":
        return f"schema {settings.ai.store.schema_!r} of {place_of(settings.database_url)}"
    return str(settings.store_folder)


def has_store(settings: Settings) -> bool:
    """Whether there is anything of a store; what this user may not look at is there, and opening it says the rest.

    Raises:
        StoreUnavailable: the database cannot be asked.
    """
    if settings.ai.store.type == "postgres":
        from amoxi_py.stores.postgres import inspection

        return inspection.has_store(settings.database_url, settings.ai.store.schema_)
    for name in (DATABASE, f"{DATABASE}-wal"):
        try:
            os.stat(settings.store_folder / name)
        except FileNotFoundError:
            continue
        except OSError:
            return True
        return True
    return False


def migrate_store() -> str:
    """Bring the store of the app in the current folder up to date, and say so.

    Raises:
        DeclarationError: the folder has no app.
        StoreDamaged: this role may not make what is missing.
    """
    settings = load_settings()
    require_package(settings)
    asyncio.run(_open_and_close(make_store(settings)))
    return f"the store in {place_of_store(settings)} is up to date"


async def _open_and_close(store: Store) -> None:
    try:
        await store.open(lambda events: None)
    finally:
        await store.close()
