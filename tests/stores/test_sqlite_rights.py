"""Who may read the store's files: nobody but the user of the server; they hold messages and the cookies' secret."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

from amoxi_py.stores.sqlite.store import SqliteStore


def test_the_stores_folder_and_files_are_for_its_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "ai"
    found: dict[str, int] = {}

    async def main() -> None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        await store.enroll("worker-1", 30.0)
        found.update({str(path.relative_to(folder)): path.stat().st_mode for path in (folder, *folder.rglob("*"))})
        await store.close()

    before = os.umask(0)
    try:
        asyncio.run(main())
    finally:
        os.umask(before)
    assert {".", "amoxi.db", "amoxi.db-wal", "amoxi.db-shm", "amoxi.lock", "workers", "workers/worker-1.lock"} <= {
        *found
    }
    if sys.platform != "win32":  # which has rights of another kind
        assert [name for name, mode in found.items() if stat.S_IMODE(mode) & 0o077] == []
