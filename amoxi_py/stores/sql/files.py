"""Rows of files: which principal owns which bytes, and in which conversations a file is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from msgspec import Struct

from amoxi_py.domain.file import File
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import KEY_LIFE_MS, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import seen_by

UNUSED_LIFE_MS = KEY_LIFE_MS
"""How long a file is kept that is used nowhere: for as long as a message that names it can be sent again."""
_WALKED_AT_ONCE = 500


class Written(Struct, frozen=True, kw_only=True):
    """Bytes that are durable, but nobody's yet."""

    size: int
    digest: str


def blob_name(principal: Principal, digest: str) -> str:
    """Return the name of an owner's bytes; it tells nothing of either, and no two owners have the same."""
    return hashlib.sha256(f"{principal.owner_key}\0{digest}".encode()).hexdigest()


def save_file(batch: Batch, new: NewFile, written: Written, place: Callable[[str], None]) -> StoredFile:
    """Add a file; `place` makes its bytes available under a name, and is called before anything refers to them."""
    if known := batch.tx.rows("file_of_owner", id=new.id, principal=new.principal.owner_key):
        return stored(known[0])
    lease = new.lease
    if lease is not None and not batch.tx.rows("leased_run", run=lease.run, worker=lease.worker, fence=lease.fence):
        raise LeaseLost(lease.run_id)
    blob = blob_name(new.principal, written.digest)
    place(blob)
    row = (
        new.id,
        new.principal.owner_key,
        new.name,
        new.media_type,
        written.size,
        batch.now,
        written.digest,
        blob,
        None if lease is None else lease.run,
    )
    keys = batch.tx.insert_all("insert_files", [row])
    if lease is not None:
        batch.tx.run_all("insert_file_uses", [(keys[0], lease.conversation)])
    file = File(id=new.id, name=new.name, media_type=new.media_type, size=written.size)
    return StoredFile(file=file, digest=written.digest, created_at=seconds(batch.now))


def get_file(tx: Transaction, file_id: str, principal: Principal, readable: Sequence[str]) -> StoredFile:
    """Return a file that a principal may read; raise `NotFound`."""
    return stored(_find_seen(tx, file_id, principal, readable))


def blob_of(tx: Transaction, file_id: str, principal: Principal, readable: Sequence[str]) -> str:
    """Return the name of the bytes of a file that a principal may read; raise `NotFound`."""
    blob: str = _find_seen(tx, file_id, principal, readable)[7]
    return blob


def find_files(tx: Transaction, file_ids: Sequence[str], principal: Principal) -> tuple[File, ...]:
    """Return those of a principal's files that exist."""
    rows = tx.rows("files_of_owner", rows=json_rows(file_ids), principal=principal.owner_key)
    return tuple(stored(row).file for row in rows)


def files_of_run(tx: Transaction, lease: Lease) -> tuple[str, ...]:
    """Return the files that a run's tools have saved."""
    return tuple(file_id for (file_id,) in tx.rows("files_of_run", run=lease.run))


def keys_of_files(tx: Transaction, file_ids: Sequence[str], principal: Principal) -> list[int]:
    """Return the keys of a principal's files; raise `NotFound` for the first one that is not its own."""
    rows = tx.rows("files_to_use", rows=json_rows(file_ids), principal=principal.owner_key)
    keys: dict[str, int] = {file_id: key for key, file_id in rows}
    for file_id in file_ids:
        if file_id not in keys:
            raise NotFound("file", file_id)
    return [keys[file_id] for file_id in file_ids]


def use_files(batch: Batch, files: Sequence[int], conversation: int) -> None:
    """Take note that files are used in a conversation."""
    if files:
        batch.tx.run_all("insert_file_uses", [(file, conversation) for file in files])


def delete_file(batch: Batch, file_id: str, principal: Principal) -> list[str]:
    """Delete a principal's file, and return the names of the bytes that may belong to nobody now."""
    key, *_, blob = _find(batch.tx, file_id, principal)
    return _delete(batch, [(key, blob)])


def forget_files_of(batch: Batch, principal: Principal, limit: int) -> tuple[int, list[str]]:
    """Delete up to `limit` files of a principal; return how many, and names of bytes that may belong to nobody now."""
    found = batch.tx.rows("files_to_forget", principal=principal.owner_key, limit=limit)
    return len(found), _delete(batch, found)


def erase_files(batch: Batch, conversation: int) -> list[str]:
    """Delete the files that are used in this conversation alone, and return the names of their bytes."""
    if batch.tx.concurrent:
        batch.tx.rows("lock_files_of", conversation=conversation)
    only_here = batch.tx.rows("files_used_only_in", conversation=conversation)
    batch.tx.run("erase_file_uses", conversation=conversation)
    return _delete(batch, only_here)


def find_abandoned(tx: Transaction, after: int, now: int) -> tuple[list[int], int | None]:
    """Return which of the next files are used nowhere and past their time, and where to go on; None at the end."""
    rows = tx.rows("files_after", key=after, limit=_WALKED_AT_ONCE)
    abandoned = [key for key, created_at, used in rows if not used and created_at <= now - UNUSED_LIFE_MS]
    return abandoned, rows[-1][0] if len(rows) == _WALKED_AT_ONCE else None


def delete_abandoned(batch: Batch, keys: Sequence[int]) -> list[str]:
    """Delete those of the files that still are abandoned, and return the names of their bytes."""
    if batch.tx.concurrent:
        keys = [key for (key,) in batch.tx.rows("lock_files", rows=json_rows(keys))]
    rows = batch.tx.rows("files_unused", rows=json_rows(keys), before=batch.now - UNUSED_LIFE_MS)
    return _delete(batch, rows)


def without_owner(tx: Transaction, blobs: Sequence[str]) -> list[str]:
    """Return those names of bytes that no file refers to."""
    owned = {blob for (blob,) in tx.rows("blobs_with_owner", rows=json_rows(blobs))}
    return [blob for blob in blobs if blob not in owned]


def _delete(batch: Batch, files: Sequence[Row]) -> list[str]:
    if not files:
        return []
    rows = json_rows(key for key, _ in files)
    batch.tx.run("delete_file_uses", rows=rows)
    batch.tx.run("delete_files", rows=rows)
    return list({blob for _, blob in files})


def _find(tx: Transaction, file_id: str, principal: Principal) -> Row:
    rows = tx.rows("file_of_owner", id=file_id, principal=principal.owner_key)
    if not rows:
        raise NotFound("file", file_id)
    return rows[0]


def _find_seen(tx: Transaction, file_id: str, principal: Principal, readable: Sequence[str]) -> Row:
    rows = tx.rows("file_seen", id=file_id, **seen_by(principal, readable))
    if not rows:
        raise NotFound("file", file_id)
    return rows[0]


def stored(row: Row) -> StoredFile:
    """Return a file from its columns."""
    _, file_id, name, media_type, size, created_at, digest, _ = row
    file = File(id=file_id, name=name, media_type=media_type, size=size)
    return StoredFile(file=file, digest=digest, created_at=seconds(created_at))
