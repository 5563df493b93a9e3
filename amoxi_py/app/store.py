"""The store that the settings name."""

from __future__ import annotations

import asyncio
import os

from amoxi_py.app.declarations import require_package
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.errors import ConfigError
from amoxi_py.ports.operator_store import OperatorStore
from amoxi_py.ports.store import Store
from amoxi_py.stores.sqlite.store import SqliteStore


def make_store(settings: Settings) -> OperatorStore:
    """Return the store, not opened yet.

    Raises:
        ConfigError: a file stands where its folder should be.
    """
    folder = settings.store_folder
    for place in (folder, *folder.parents):
        if os.path.isfile(place):  # unlike Path's it is False for what this user may not look at
            source = settings.sources.get("ai.store.path", "the defaults")
            raise ConfigError(
                f"'ai.store.path' from {source} is {settings.ai.store.path!r}, a folder for the store's files, "
                f"but {str(place)!r} is a file: name another folder, or move the file away"
            )
    return SqliteStore(folder)


def migrate_store() -> str:
    """Bring the store of the app in the current folder up to date, and say so.

    Raises:
        DeclarationError: the folder has no app.
    """
    settings = load_settings()
    require_package(settings)
    asyncio.run(_open_and_close(make_store(settings)))
    return f"the store in {settings.store_folder} is up to date"


async def _open_and_close(store: Store) -> None:
    await store.open(lambda events: None)
    await store.close()
