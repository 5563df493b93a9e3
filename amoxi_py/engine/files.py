"""Files of principals: stored as they come, at a size that is bounded, and read in pieces."""

from __future__ import annotations

import functools
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from amoxi_py.declare.context import FileData, OpenFile
from amoxi_py.domain.file import File, clean_media_type, clean_name, saved_file_id
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease
from amoxi_py.errors import InvalidRequest, NotFound
from amoxi_py.ports.files import FileStore, NewFile, StoredFile

T = TypeVar("T")
PIECE = 256 * 1024
"""How much of a file is in memory for one reader or writer."""


class Files(Struct, frozen=True, kw_only=True):
    """The files of all principals. `max_size` is in bytes."""

    store: FileStore
    max_size: int

    async def add(
        self, principal: Principal, name: str, media_type: str | None, parts: AsyncIterable[bytes]
    ) -> StoredFile:
        """Store a file that a principal brings.

        Raises:
            InvalidRequest: it is larger than `max_size` (`file_too_large`).
        """
        name = clean_name(name)
        new = NewFile(id=new_id("file"), principal=principal, name=name, media_type=clean_media_type(media_type, name))
        return await self._save(new, parts)

    async def save(
        self,
        call_id: str,
        principal: Principal,
        lease: Lease | None,
        name: str,
        media_type: str | None,
        parts: AsyncIterable[bytes],
    ) -> StoredFile:
        """Store a file for a call; the one that the call has saved before under this name stays.

        Raises:
            InvalidRequest: it is larger than `max_size` (`file_too_large`).
            LeaseLost: the run is leased no more.
        """
        new = NewFile(
            id=saved_file_id(call_id, name),
            principal=principal,
            name=name,
            media_type=clean_media_type(media_type, name),
            lease=lease,
        )
        return await self._save(new, parts)

    async def _save(self, new: NewFile, parts: AsyncIterable[bytes]) -> StoredFile:
        async with aclosing(self._pieces(new.name, parts)) as pieces:
            return await self.store.save_file(new, pieces)

    async def get(self, file_id: str, principal: Principal, *, readable: Sequence[str] = ()) -> StoredFile:
        """Return the principal's file, or one used in another's conversation with an agent of `readable`.

        Raises:
            NotFound: there is none.
        """
        return await self.store.get_file(file_id, principal, readable=readable)

    async def read(
        self,
        stored: StoredFile,
        principal: Principal,
        start: int = 0,
        end: int | None = None,
        *,
        readable: Sequence[str] = (),
    ) -> AsyncIterator[bytes]:
        """Give the bytes from `start` up to `end`; raise `NotFound` when the file is deleted in the meantime."""
        end = stored.file.size if end is None else min(end, stored.file.size)
        while start < end:
            length = min(PIECE, end - start)
            piece = await self.store.read_file(stored.file.id, principal, start, length, readable=readable)
            if not piece:
                raise NotFound("file", stored.file.id)
            start += len(piece)
            yield piece

    async def delete(self, file_id: str, principal: Principal) -> None:
        """Delete the principal's file, wherever it is used; raise `NotFound`."""
        await self.store.delete_file(file_id, principal)

    async def _pieces(self, name: str, parts: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
        """Give the same bytes in pieces that are worth a write each."""
        size = 0
        kept = bytearray()
        try:
            async for part in parts:
                size += len(part)
                if size > self.max_size:
                    raise InvalidRequest(
                        f"the file {name!r} is larger than {self.max_size} bytes, which 'ai.files.max-mb' allows",
                        code="file_too_large",
                    )
                for start in range(0, len(part), PIECE):
                    kept += part[start : start + PIECE]
                    if len(kept) >= PIECE:
                        yield bytes(kept)
                        kept.clear()
            if kept:
                yield bytes(kept)
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()


class FileHost(Protocol):
    """What saving needs of the try that it is part of."""

    def run_in_thread(self, function: Callable[[], T], /) -> Awaitable[T]:
        """Run a sync function in a thread."""
        ...


class CallFiles(Protocol):
    """The files of one call's principal, as its context reaches them."""

    async def save(self, name: str, media_type: str | None, parts: AsyncIterable[bytes]) -> File:
        """Store a file, or find the one that an earlier try has stored under this name."""
        ...

    async def find(self, file_id: str) -> File:
        """Return a file; raise `NotFound`."""
        ...

    async def read(self, file: File, start: int, length: int) -> bytes:
        """Return a piece of a file; raise `NotFound`."""
        ...


class FilesToRead(Struct, frozen=True, kw_only=True):
    """`CallFiles` for code that only looks: `where` says which."""

    files: Files
    principal: Principal
    where: str

    async def save(self, name: str, media_type: str | None, parts: AsyncIterable[bytes]) -> File:
        raise ValueError(f"a file can only be saved in the tool itself, not in {self.where}")

    async def find(self, file_id: str) -> File:
        return (await self.files.get(file_id, self.principal)).file

    async def read(self, file: File, start: int, length: int) -> bytes:
        return await self.files.store.read_file(file.id, self.principal, start, length)


class FilesOfCall(FilesToRead, frozen=True, kw_only=True):
    """`CallFiles` under the lease of the call's run. `prove` raises when it is lost; `saved` is told each new id."""

    call_id: str
    lease: Lease
    prove: Callable[[], Awaitable[None]]
    saved: Callable[[str], None]

    async def save(self, name: str, media_type: str | None, parts: AsyncIterable[bytes]) -> File:
        await self.prove()
        stored = await self.files.save(self.call_id, self.principal, self.lease, name, media_type, parts)
        self.saved(stored.file.id)
        return stored.file


class PrincipalsFile(OpenFile):
    """A file that a tool reads; `guard` ends the tool when it should stop."""

    def __init__(self, files: CallFiles, file: File, guard: Callable[[], None]) -> None:
        super().__init__(file)
        self._files = files
        self._guard = guard
        self._place = 0

    async def read(self, size: int = -1) -> bytes:
        left = self.size - self._place
        wanted = left if size < 0 else min(size, left)
        pieces = []
        while wanted > 0:
            piece = await self._next(min(wanted, PIECE))
            pieces.append(piece)
            wanted -= len(piece)
        return b"".join(pieces)

    def seek(self, place: int) -> None:
        if place < 0:
            raise ValueError(f"the place {place!r} is before the beginning of the file; places count from 0")
        self._place = place

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self._place < self.size:
            yield await self._next(PIECE)

    async def _next(self, length: int) -> bytes:
        self._guard()
        piece = await self._files.read(self.file, self._place, length)
        if not piece:
            raise NotFound("file", self.id)
        self._place += len(piece)
        return piece


def check_name(name: object) -> str:
    """Return the name that a tool's file is stored under."""
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a file's name must be a text such as 'report.csv', not {name!r}")
    return clean_name(name)


def parts_of(data: FileData, host: FileHost) -> AsyncIterator[bytes]:
    """Return what a tool gives for a file, piece by piece; what may block is done in a thread.

    Raises:
        TypeError: it is none of bytes, a path, an open file, an iterator of bytes.
    """
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _of_bytes(bytes(data))
    if isinstance(data, os.PathLike):
        return _of_path(data, host)
    read = getattr(data, "read", None)
    if callable(read):
        return _of_iterator(iter(functools.partial(read, PIECE), b""), host)
    if isinstance(data, AsyncIterable):
        return _checked(data)
    if isinstance(data, Iterable) and not isinstance(data, str):
        return _of_iterator(iter(data), host)
    raise TypeError(
        f"a file is made of bytes, a pathlib.Path, a file opened for reading bytes, or an iterator of bytes, not of "
        f"{type(data).__name__!r}; text is made bytes with .encode()"
    )


async def _of_bytes(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


async def _of_path(path: os.PathLike[str], host: FileHost) -> AsyncIterator[bytes]:
    file = await host.run_in_thread(lambda: open(path, "rb"))  # noqa: SIM115 - it is closed below
    try:
        while piece := await host.run_in_thread(lambda: file.read(PIECE)):
            yield piece
    finally:
        file.close()


async def _of_iterator(parts: Iterator[Any], host: FileHost) -> AsyncIterator[bytes]:
    while (part := await host.run_in_thread(lambda: next(parts, None))) is not None:
        yield _bytes(part)


async def _checked(parts: AsyncIterable[Any]) -> AsyncIterator[bytes]:
    async for part in parts:
        yield _bytes(part)


def _bytes(part: object) -> bytes:
    if not isinstance(part, (bytes, bytearray, memoryview)):
        raise TypeError(f"a file is made of bytes, not of {type(part).__name__!r}; text is made bytes with .encode()")
    return bytes(part)
