"""A lock on a file between processes; the system lets go of it when the process that holds it dies."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

if sys.platform == "win32":
    import msvcrt

    _PLACE = 1 << 30  # beyond what is written, because Windows' locks keep others from reading

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _lock(descriptor: int) -> None:
        while not _try_lock(descriptor):
            time.sleep(0.001)

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _PLACE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


class FileLock:
    """An exclusive lock. The file is made when it is missing, and stays."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self) -> None:
        """Wait for the lock."""
        _lock(self._descriptor)

    def try_acquire(self) -> bool:
        """Take the lock if nobody has it."""
        return _try_lock(self._descriptor)

    def release(self) -> None:
        """Let go of it."""
        _unlock(self._descriptor)

    def close(self) -> None:
        """Let go of it, and of the file."""
        os.close(self._descriptor)

    @property
    def note(self) -> bytes:
        """What is written in the file, up to 100 bytes."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        return os.read(self._descriptor, 100)

    @note.setter
    def note(self, text: bytes) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.write(self._descriptor, text)
