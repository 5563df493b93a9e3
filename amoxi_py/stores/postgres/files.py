"""The bytes of files, in the database, in parts; they get their name in the transaction that adds their first row.

What is on its way has no name, and is removed when its last part is an hour old.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Iterable, Sequence

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.readers import PostgresReaders
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.files import Written
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.transaction import Transaction

_PART_BYTES = 512 * 1024
_UNFINISHED_LIFE_MS = 3600 * 1000


class Upload:
    """Bytes on their way: parts are written while they come, so memory holds one of them at a time."""

    def __init__(self, address: Address, readers: PostgresReaders) -> None:
        self._address = address
        self._readers = readers
        self._hash = hashlib.sha256()
        self._size = 0
        self._part = bytearray()
        self.key = -1

    async def take(self, parts: AsyncIterable[bytes]) -> Written:
        """Store all parts durably."""
        ((self.key,),) = await self._readers.do(lambda line: self._address.transaction(line).rows("begin_upload"))
        async for part in parts:
            self._part += part
            self._hash.update(part)
            while len(self._part) >= _PART_BYTES:
                await self._flush(_PART_BYTES)
        if self._part:
            await self._flush(len(self._part))
        return Written(size=self._size, digest=self._hash.hexdigest())

    async def _flush(self, length: int) -> None:
        piece, start = bytes(self._part[:length]), self._size
        added = await self._readers.do(
            lambda line: self._address.transaction(line).rows("add_part", upload=self.key, start=start, bytes=piece)
        )
        if not added:
            raise StoreUnavailable("the file came too slowly, and what had come is gone: send it again")
        del self._part[:length]
        self._size += length


def names_of_bytes(blobs: Iterable[str]) -> tuple[str, ...]:
    """Return what a verb names that gives these bytes a row, or removes them."""
    return tuple(f"bytes\0{blob}" for blob in blobs)


def name_upload(batch: Batch, upload: int, blob: str) -> None:
    """Give bytes their name, unless the owner has the same bytes already."""
    batch.tx.run("name_upload", upload=upload, blob=blob)
    if not batch.tx.rows("named_upload", blob=blob):
        raise StoreUnavailable("the file came too slowly, and what had come is gone: send it again")


def read_part(tx: Transaction, blob: str, start: int, length: int) -> bytes:
    """Return bytes from a place on, fewer than `length` only at the end."""
    pieces: list[bytes] = []
    while length > 0:
        rows = tx.rows("part_at", blob=blob, start=start, length=length)
        piece = bytes(rows[0][1]) if rows else b""
        if not piece:
            break
        pieces.append(piece)
        start += len(piece)
        length -= len(piece)
    return b"".join(pieces)


def has_bytes(tx: Transaction, blob: str) -> bool:
    """Whether there are bytes of this name."""
    return bool(tx.rows("named_upload", blob=blob))


def remove_bytes(batch: Batch, blobs: Sequence[str]) -> None:
    """Remove bytes of these names that no file refers to."""
    _delete(batch, [key for (key,) in batch.tx.rows("uploads_without_owner", rows=json_rows(blobs))])


def remove_unfinished(batch: Batch, key: int = -1) -> int:
    """Remove what was on its way and comes no more, or an upload by its key; return how many there were."""
    rows = batch.tx.rows("unfinished_uploads", before=batch.now - _UNFINISHED_LIFE_MS, key=key)
    _delete(batch, [found for (found,) in rows])
    return len(rows)


def _delete(batch: Batch, uploads: Sequence[int]) -> None:
    if uploads:
        batch.tx.run("delete_parts", rows=json_rows(uploads))
        batch.tx.run("delete_uploads", rows=json_rows(uploads))
