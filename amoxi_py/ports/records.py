"""What a surface needs of durable storage for things of its own: small records that expire.

Such as a code that may be used once, or which run a request has started. What is kept by one process is there for all.
A secret is never in a record: its `key` is a digest of it.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.principal import Principal


class Record(Struct, frozen=True, kw_only=True):
    """Something small that is kept.

    Attributes:
        kind: What it is, such as `oauth.code`.
        key: Its name among those of its kind.
        group: What it belongs to, so that all of a group can be found and forgotten together. What belongs to a
            conversation or to a run, by its id, or to a principal (`group_of`), is erased with it.
        content: JSON text.
        expires_at: When it is gone, in seconds since 1970; None: never.
    """

    kind: str
    key: str
    group: str | None = None
    content: str
    expires_at: float | None = None


def group_of(principal: Principal) -> str:
    """Return the group of what belongs to a principal: 64 hex digits, from which nobody reads who it is."""
    return hashlib.sha256(principal.owner_key.encode("utf-8", "surrogatepass")).hexdigest()


class RecordStore(Protocol):
    """Records, durably. One that has expired is found by nobody, and is removed some time later."""

    async def keep_record(self, record: Record) -> None:
        """Store a record, in place of the one of its kind and key if there is one, taken or not.

        Its key is nobody's business before this has answered: done again because an answer was lost, it would bring
        back what was taken or forgotten in between.
        """
        ...

    async def find_record(self, kind: str, key: str) -> Record | None:
        """Return the record of this kind and key."""
        ...

    async def find_records(self, kind: str, group: str, *, limit: int = 100) -> tuple[Record, ...]:
        """Return the records of a kind that belong to a group, by key, at most `limit`."""
        ...

    async def take_record(self, kind: str, key: str) -> Record | None:
        """Return the record of this kind and key and remove it: of all who take it, one gets it."""
        ...

    async def forget_records(self, kind: str, group: str) -> int:
        """Remove the records of a kind that belong to a group; return how many there were."""
        ...
