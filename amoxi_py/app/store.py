"""The store that the settings name."""

from __future__ import annotations

import asyncio

from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.ports.store import Store
from amoxi_py.stores.sqlite.store import SqliteStore


def make_store(settings: Settings) -> Store:
    """Return the store, not opened yet."""
    return SqliteStore(settings.store_folder)


def migrate_store() -> str:
    """Bring the store of the app in the current folder up to date, and say so."""
    settings = load_settings()
    asyncio.run(_open_and_close(make_store(settings)))
    return f"the store in {settings.store_folder} is up to date"


async def _open_and_close(store: Store) -> None:
    await store.open(lambda events: None)
    await store.close()
