"""The bytes of files, in a folder beside the database; each under a name that rows of the database refer to.

Bytes are written to a file of the process's own in `incoming`, made durable, and put in their place by the transaction
that adds the first row, so no half file is ever seen. They are removed while nobody can write to the database, and
only if no row refers to them. What a crash leaves behind has no row, or is in the `incoming` of a process that is gone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from amoxi_py.domain.ids import new_id
from amoxi_py.stores.sql.files import Written
from amoxi_py.stores.sqlite.file_lock import FileLock

_LOOKED_AT_ONCE = 500
_INCOMING = "incoming"

WithoutOwner = Callable[[Sequence[str]], Sequence[str]]
"""Says which of some names no committed row refers to."""


class IncomingFile:
    """Bytes on their way; all methods block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "xb", opener=_for_this_user)  # noqa: SIM115 - it is open for as long as it grows
        self._hash = hashlib.sha256()
        self._size = 0

    def write(self, part: bytes) -> None:
        """Add bytes."""
        self._file.write(part)
        self._hash.update(part)
        self._size += len(part)

    def finish(self) -> Written:
        """Make them durable."""
        self._file.flush()
        _sync(self._file.fileno())
        self._file.close()
        return Written(size=self._size, digest=self._hash.hexdigest())

    def discard(self) -> None:
        """Remove them, unless they have been put in their place."""
        with suppress(OSError):  # a full disk may refuse what is still to be flushed
            self._file.close()
        with suppress(OSError):
            self.path.unlink(missing_ok=True)


class FileFolder:
    """The folder `files` of a store; made when the first file comes. `database_lock` is what writers hold."""

    def __init__(self, folder: Path, database_lock: Path) -> None:
        self._folder = folder
        self._database_lock = database_lock
        self._mine: FileLock | None = None
        self._token = new_id("in")
        self._making = threading.Lock()

    @property
    def ready(self) -> bool:
        """Whether `begin` may be called."""
        return self._mine is not None

    def get_ready(self) -> None:
        """Make the place for bytes on their way; waits until nobody writes to the database."""
        with self._making:
            if self._mine is None:
                self._make_incoming()

    def begin(self) -> IncomingFile:
        """Return a new file for bytes; it is gone when this process dies before they are placed."""
        return IncomingFile(self._incoming / self._token / new_id("file"))

    def place(self, incoming: Path, blob: str) -> None:
        """Put bytes in their place, durably; called inside the transaction that adds their row, also again."""
        target = self.path(blob)
        if not target.parent.exists():
            target.parent.mkdir(mode=0o700, exist_ok=True)
            _sync_folder(self._folder)
        try:
            os.replace(incoming, target)
        except FileNotFoundError:
            if not target.exists():
                raise
        _sync_folder(target.parent)

    def path(self, blob: str) -> Path:
        """Return where the bytes of a name are."""
        return self._folder / blob[:2] / blob

    def read(self, blob: str, start: int, length: int) -> bytes:
        """Return a piece of the bytes of a name."""
        with open(self.path(blob), "rb", buffering=0) as file:
            file.seek(start)
            pieces: list[bytes] = []
            while length > 0 and (piece := file.read(length)):
                pieces.append(piece)
                length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def remove(self, blobs: Sequence[str], without_owner: WithoutOwner) -> None:
        """Remove the bytes of names that no committed row refers to."""
        if not blobs:
            return
        with self._nobody_writes():  # else the same bytes could be given a row now
            for blob in without_owner(blobs):
                with suppress(FileNotFoundError):
                    self.path(blob).unlink()

    def orphans(self, without_owner: WithoutOwner) -> Iterator[Sequence[str]]:
        """Give the names of bytes that no row refers to at this moment, from a portion of the folder at a time."""
        if self._folder.exists():
            for names in portions(self._names(), _LOOKED_AT_ONCE):
                yield without_owner(names)

    def sweep_incoming(self) -> None:
        """Remove what processes that are gone had on its way."""
        if not any(self._incoming.glob("*.lock")):
            return
        gone: dict[Path, FileLock] = {}
        try:
            with self._nobody_writes():
                for path in self._incoming.glob("*.lock"):
                    lock = FileLock(path)
                    if path.stem != self._token and lock.try_acquire():
                        gone[path] = lock
                    else:
                        lock.close()
            for path in gone:
                shutil.rmtree(self._incoming / path.stem, ignore_errors=True)
        finally:
            for path, lock in gone.items():
                lock.close()
                with suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Remove what this process has not finished."""
        mine, self._mine = self._mine, None
        if mine is not None:
            shutil.rmtree(self._incoming / self._token, ignore_errors=True)
            mine.close()
            with suppress(OSError):
                self._lock_file(self._token).unlink(missing_ok=True)

    @property
    def _incoming(self) -> Path:
        return self._folder / _INCOMING

    def _make_incoming(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._incoming.mkdir(mode=0o700, exist_ok=True)
        with self._nobody_writes():  # nor looks whose owner is gone
            lock = FileLock(self._lock_file(self._token))
            lock.acquire()
        (self._incoming / self._token).mkdir(mode=0o700, exist_ok=True)
        self._mine = lock

    def _lock_file(self, token: str) -> Path:
        return self._incoming / f"{token}.lock"

    def _names(self) -> Iterator[str]:
        for folder in self._folder.iterdir():
            if folder.name != _INCOMING and folder.is_dir():
                for file in folder.iterdir():
                    yield file.name

    @contextmanager
    def _nobody_writes(self) -> Iterator[None]:
        lock = FileLock(self._database_lock)  # one of its own: the writer's would let this thread in
        try:
            lock.acquire()
            yield
        finally:
            lock.close()


def portions(names: Iterable[str], size: int) -> Iterator[list[str]]:
    """Give names as lists of at most `size`."""
    portion: list[str] = []
    for name in names:
        portion.append(name)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion


def _for_this_user(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600)


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # macOS' fsync stops at the drive's cache


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # where a folder cannot be opened, and a rename is in the journal
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
