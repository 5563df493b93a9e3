"""Files that come with messages: stored as their caller's own, once, however often a message is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct
from msgspec.json import decode, encode

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import RequestError
from amoxi_py.ports.records import Record, RecordStore, group_of
from amoxi_py.surfaces.a2a.caller_keys import caller_key
from amoxi_py.surfaces.a2a.incoming import GivenFile, Incoming

KIND = "a2a.files"
_KEPT_S = 24 * 3600.0
"""As long as a message is known by its id."""


class MessageFiles(Struct, frozen=True, kw_only=True):
    """The files of a message: their ids, and whether they were stored for this time that it was sent."""

    ids: tuple[str, ...] = ()
    new: bool = False


class _Kept(Struct, frozen=True, kw_only=True):
    digest: str
    ids: tuple[str, ...]


class FilesOfMessages:
    """Stores the files of messages; where an id may come again with another message, those of each."""

    def __init__(self, engine: Engine, records: RecordStore, *, deduplicate: bool) -> None:
        self._engine = engine
        self._records = records
        self._deduplicate = deduplicate

    async def save(self, message_id: str, given: Incoming, principal: Principal) -> MessageFiles:
        """Store what has come with a message, all or nothing; when it was sent before, what was stored then is it.

        Raises:
            TooMany: it is known that no more is admitted now; nothing was stored.
        """
        if not given.files:
            return MessageFiles()
        gate, owner = self._engine.gate, principal.owner_key
        if not self._deduplicate:
            gate.refuse(owner)
            return MessageFiles(ids=await self._save_all(given.files, principal), new=True)
        key, digest = caller_key(principal, message_id), given.digest()
        record = await self._records.find_record(KIND, key)
        kept = None if record is None else decode(record.content, type=_Kept)
        if kept is not None and kept.digest == digest:
            return MessageFiles(ids=kept.ids)
        gate.refuse(owner)
        ids = await self._save_all(given.files, principal)
        if kept is None:
            content = encode(_Kept(digest=digest, ids=ids)).decode()
            expires_at = self._engine.now() + _KEPT_S
            kept_for = group_of(principal)
            await self._records.keep_record(
                Record(kind=KIND, key=key, group=kept_for, content=content, expires_at=expires_at)
            )
        return MessageFiles(ids=ids, new=True)

    async def drop(self, message_id: str, files: MessageFiles, principal: Principal) -> None:
        """Delete the files of a message that has become no task, or had become one before."""
        if not files.new:
            return
        if self._deduplicate:
            key = caller_key(principal, message_id)
            record = await self._records.find_record(KIND, key)
            if record is not None and decode(record.content, type=_Kept).ids == files.ids:
                await self._records.take_record(KIND, key)
        await self._drop_all(files.ids, principal)

    async def _save_all(self, given: Sequence[GivenFile], principal: Principal) -> tuple[str, ...]:
        saved: list[str] = []
        try:
            for one in given:
                stored = await self._engine.files.add(principal, one.name, one.media_type, _piece(one.data))
                saved.append(stored.file.id)
        except RequestError:
            await self._drop_all(saved, principal)
            raise
        return tuple(saved)

    async def _drop_all(self, ids: Sequence[str], principal: Principal) -> None:
        for file_id in ids:
            await self._engine.files.delete(file_id, principal)


async def _piece(data: bytes) -> AsyncIterator[bytes]:
    yield data
