"""Secrets and what hangs on them, kept as small records under their digests: any server of the app takes each step."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.principal import Principal, principal_from_json, principal_to_json
from amoxi_py.ports.records import Record
from amoxi_py.ports.store import Store


class Keeping:
    """The records of OAuth; `store` gives the store of this life of the process."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def now(self) -> float:
        """Return the time that records expire by, in seconds since 1970."""
        return self._store().clock.now()

    async def keep(
        self, kind: str, key: str, content: dict[str, Any], life: float, *, group: str | None = None
    ) -> None:
        """Keep something for `life` seconds from now."""
        expires_at = self.now() + life
        text = encode_json(content)
        record = Record(kind=f"oauth.{kind}", key=key, group=group, content=text, expires_at=expires_at)
        await self._store().keep_record(record)

    async def find(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what is kept, or None."""
        return _content(await self._store().find_record(f"oauth.{kind}", key))

    async def find_with_rest(self, kind: str, key: str) -> tuple[dict[str, Any], float] | None:
        """Return what is kept and how many seconds it has left."""
        record = await self._store().find_record(f"oauth.{kind}", key)
        content = _content(record)
        if record is None or content is None or record.expires_at is None:
            return None
        return content, record.expires_at - self.now()

    async def find_all(self, kind: str, group: str, *, most: int = 100) -> list[tuple[str, dict[str, Any]]]:
        """Return keys and contents of a group, at most so many."""
        records = await self._store().find_records(f"oauth.{kind}", group, limit=most)
        return [(record.key, decode_json(record.content)) for record in records]

    async def take(self, kind: str, key: str) -> dict[str, Any] | None:
        """Return what is kept and remove it; of all who try, one gets it."""
        return _content(await self._store().take_record(f"oauth.{kind}", key))

    async def forget(self, kind: str, group: str) -> None:
        """Remove all of a group."""
        await self._store().forget_records(f"oauth.{kind}", group)


def new_secret() -> str:
    """Return 256 bits of chance as text."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """Return what is kept of a secret: its SHA-256 in hex."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def kept_principal(principal: Principal) -> dict[str, Any]:
    """Return a principal as it is kept."""
    return {"id": principal.id, **principal_to_json(principal)}


def read_principal(kept: Mapping[str, Any]) -> Principal:
    """Return the principal that was kept."""
    return principal_from_json(kept["id"], kept)


def _content(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    content: dict[str, Any] = decode_json(record.content)
    return content
