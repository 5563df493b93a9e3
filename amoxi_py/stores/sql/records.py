"""Small records that expire.

One that was taken stays as an empty row for an hour at most, and knows who took it: who takes it again because the
answer to the commit was lost, finds that it was the one.
"""

from __future__ import annotations

from amoxi_py.domain.ids import new_id
from amoxi_py.ports.records import Record
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.times import millis_up, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction

_TAKEN_LIFE_MS = 3600 * 1000
_SWEPT_AT_ONCE = 500


def names_of_keeping(record: Record) -> tuple[str, ...]:
    """Return what a verb names that stores this record."""
    group = () if record.group is None else (_group_name(record.kind, record.group),)
    return (_key_name(record.kind, record.key), *group)


def names_of_taking(kind: str, key: str) -> tuple[str, ...]:
    """Return what a verb names that takes a record, of which it does not know the group."""
    return (_key_name(kind, key), _removal_name(kind))


def names_of_forgetting(kind: str, group: str) -> tuple[str, ...]:
    """Return what a verb names that removes a group, of which it does not know the keys."""
    return (_group_name(kind, group), _removal_name(kind))


def keep_record(batch: Batch, record: Record) -> None:
    """Store a record in place of the one that is there."""
    batch.tx.run(
        "keep_record",
        kind=record.kind,
        key=record.key,
        family=record.group,
        content=record.content,
        expires_at=None if record.expires_at is None else millis_up(record.expires_at),
    )


def find_record(tx: Transaction, kind: str, key: str, now: int) -> Record | None:
    """Return the record of this kind and key."""
    rows = tx.rows("find_record", kind=kind, key=key, now=now)
    return _record(rows[0]) if rows else None


def find_records(tx: Transaction, kind: str, group: str, limit: int, now: int) -> tuple[Record, ...]:
    """Return those of a group, by key."""
    return tuple(map(_record, tx.rows("find_records", kind=kind, family=group, limit=limit, now=now)))


class Take:
    """One taker of one record; it may be done again until its answer arrives."""

    def __init__(self, kind: str, key: str) -> None:
        self._kind = kind
        self._key = key
        self._taker = new_id("take")
        self._found: Record | None = None

    def __call__(self, batch: Batch) -> Record | None:
        """Return the record, unless another taker has it."""
        if self._found is not None and batch.tx.rows(
            "taken_record", kind=self._kind, key=self._key, taken_by=self._taker
        ):
            return self._found
        self._found = find_record(batch.tx, self._kind, self._key, batch.now)
        if self._found is not None:
            gone_at = batch.now + _TAKEN_LIFE_MS
            if not batch.tx.rows(
                "take_record", kind=self._kind, key=self._key, taken_by=self._taker, gone_at=gone_at
            ):  # it was removed since it was found
                self._found = None
        return self._found


class Forget:
    """Removes all of a group; done again, it still knows how many there were."""

    def __init__(self, kind: str, group: str) -> None:
        self._kind = kind
        self._group = group
        self._most = 0

    def __call__(self, batch: Batch) -> int:
        """Return how many there were."""
        rows = batch.tx.rows("forget_records", kind=self._kind, family=self._group)
        there = sum(expires_at is None or expires_at > batch.now for expires_at, taken_by in rows if taken_by is None)
        self._most = max(self._most, there)
        return self._most


def sweep_records(batch: Batch) -> bool:
    """Remove some that have expired; return whether there may be more."""
    if not batch.tx.rows("expired_records", now=batch.now):  # the rule: nothing is written then
        return False
    rows = batch.tx.rows("sweep_records", now=batch.now, limit=_SWEPT_AT_ONCE)
    return len(rows) == _SWEPT_AT_ONCE


def _key_name(kind: str, key: str) -> str:
    return f"record\0{kind}\0{key}"


def _group_name(kind: str, group: str) -> str:
    return f"records\0{kind}\0{group}"


def _removal_name(kind: str) -> str:
    return f"records-removed\0{kind}"


def _record(row: Row) -> Record:
    kind, key, group, content, expires_at = row
    expires = None if expires_at is None else seconds(expires_at)
    return Record(kind=kind, key=key, group=group, content=content, expires_at=expires)
