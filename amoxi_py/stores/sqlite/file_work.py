"""The work on files' bytes, in threads of its own.

Reads and writes of bytes never wait for a database that another process keeps busy, so they have other threads than
what must wait until nobody writes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.sql import files
from amoxi_py.stores.sqlite.connection import SqliteTransaction, connect_to_read, store_error
from amoxi_py.stores.sqlite.files import FileFolder, IncomingFile, portions

T = TypeVar("T")
_THREADS = 4
_REMOVED_AT_ONCE = 32  # others cannot write meanwhile


class FileWork:
    """The folder of files, for the event loop; `database` is the file whose rows refer to its bytes."""

    def __init__(self, folder: FileFolder, database: Path) -> None:
        self._folder = folder
        self._database = database
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="amoxi-files")
        self._waiting_thread = ThreadPoolExecutor(1, thread_name_prefix="amoxi-files-remove")

    async def do(self, work: Callable[[], T]) -> T:
        """Do work that does not wait for the database."""
        return await self._do(self._threads, work)

    async def begin(self) -> IncomingFile:
        """Return a new file for bytes; when the waiting for it is cancelled, it is discarded."""
        if not self._folder.ready:
            await self._do(self._waiting_thread, self._folder.get_ready)
        begun = asyncio.ensure_future(self.do(self._folder.begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(self._discard_begun)
            raise

    async def discard(self, incoming: IncomingFile) -> None:
        """Remove bytes on their way, whatever becomes of who waits for it."""
        with suppress(StoreUnavailable):  # closing has removed them
            await asyncio.shield(asyncio.ensure_future(self.do(incoming.discard)))

    async def read(self, blob: str, start: int, length: int) -> bytes | None:
        """Return a piece of the bytes of a name, or None when there are none."""

        def read() -> bytes | None:
            try:
                return self._folder.read(blob, start, length)
            except FileNotFoundError:
                return None

        return await self.do(read)

    async def remove(self, blobs: Iterable[str]) -> None:
        """Remove the bytes of names that no committed row refers to."""
        for some in portions(sorted(blobs), _REMOVED_AT_ONCE):
            await self._do(self._waiting_thread, partial(self._folder.remove, some, self._without_owner))

    async def sweep(self) -> None:
        """Remove what crashes have left behind."""
        await self._do(self._waiting_thread, self._folder.sweep_incoming)
        orphans = self._folder.orphans(self._without_owner)
        while (found := await self.do(lambda: next(orphans, None))) is not None:
            await self.remove(found)

    def close(self) -> None:
        """Wait for work that goes on, and remove what this process has not finished; blocks."""
        self._threads.shutdown(wait=True)
        self._waiting_thread.shutdown(wait=True)
        self._folder.close()

    async def _do(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        try:
            future = threads.submit(work)
        except RuntimeError:
            raise StoreUnavailable(f"the store {str(self._database)!r} is not open") from None
        try:
            return await asyncio.wrap_future(future)
        except (sqlite3.Error, OSError) as error:
            raise store_error(self._database, error) from error

    def _discard_begun(self, begun: asyncio.Future[IncomingFile]) -> None:
        if begun.cancelled() or begun.exception() is not None:
            return
        with suppress(RuntimeError):  # closed in the meantime, which removes it
            self._threads.submit(begun.result().discard)

    def _without_owner(self, blobs: Sequence[str]) -> Sequence[str]:
        """Return the names that no row refers to; blocks, and reads what is committed now."""
        with closing(connect_to_read(self._database)) as connection:
            return files.without_owner(SqliteTransaction(connection), blobs)
