"""What the engine needs of durable storage for files: bytes that are written once, and read in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterable, Sequence
from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.file import File
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease


class NewFile(Struct, frozen=True, kw_only=True):
    """A file to be stored; the engine makes the id, so that it can be sent twice.

    `lease` is that of the run whose tool saves it: the file is then used in the run's conversation.
    """

    id: str
    principal: Principal
    name: str
    media_type: str
    lease: Lease | None = None


class StoredFile(Struct, frozen=True, kw_only=True):
    """A file and how its bytes are known: `digest` is their SHA-256 in hex. `created_at` is seconds since 1970."""

    file: File
    digest: str
    created_at: float


class FileStore(Protocol):
    """Files, durably. Bytes that an owner stores twice take their space once; other owners' are never shared."""

    async def save_file(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        """Store a file whole, or not at all; memory holds a piece of it at a time.

        A file of this id that is there stays as it is, and its parts are not read. What the parts raise is raised
        here, and nothing is stored.

        Raises:
            LeaseLost: the run of `new.lease` is not leased by it any more.
        """
        ...

    async def get_file(self, file_id: str, principal: Principal, *, readable: Sequence[str] = ()) -> StoredFile:
        """Return the principal's file; raise `NotFound`.

        `readable` names agents of which the principal may also read what others of its tenant own: files that are used
        in conversations with them; also below.
        """
        ...

    async def find_files(self, file_ids: Sequence[str], principal: Principal) -> tuple[File, ...]:
        """Return those of the principal's files that exist, in no order."""
        ...

    async def files_of_run(self, lease: Lease) -> tuple[str, ...]:
        """Return the ids of the files that the run's tools have saved and that exist, in the order of saving."""
        ...

    async def read_file(
        self, file_id: str, principal: Principal, start: int, length: int, *, readable: Sequence[str] = ()
    ) -> bytes:
        """Return bytes of the file, fewer than `length` only at its end; raise `NotFound`."""
        ...

    async def delete_file(self, file_id: str, principal: Principal) -> None:
        """Delete the principal's file and give its space back, wherever it is used; raise `NotFound`."""
        ...
