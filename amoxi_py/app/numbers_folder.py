"""Where the processes of one machine leave their numbers, so that each of them can tell those of all.

A process writes its own into a file each second and keeps a lock on another. A file whose lock nobody has is of a
process that is dead: what it counted stays, what it had does not. The folder is the one that `prometheus_client` uses
for the app's own metrics.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from amoxi_py.app.numbers import Numbers, without_gauges
from amoxi_py.stores.sqlite.file_lock import FileLock

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


class Found(NamedTuple):
    """What others have left: the numbers of each process, and the process ids of the dead and of the living."""

    numbers: list[Numbers]
    dead: set[int]
    living: set[int]


class NumbersFolder:
    """A process's place in the folder, until `close`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder
        self._file = folder / f"amoxi_{os.getpid()}_{secrets.token_hex(4)}.json"
        self._lock = FileLock(self._file.with_suffix(".lock"))
        self._lock.acquire()
        self._writing = threading.Lock()
        self._written_at = 0.0

    def write(self, numbers: Numbers, at: float) -> None:
        """Leave this process's numbers as they were at a time; they are there whole or not at all.

        Older ones than those that are there change nothing: threads may come out of their order.
        """
        new = self._file.with_suffix(".new")
        with self._writing:
            if at < self._written_at:
                return
            new.write_text(json.dumps(numbers), "utf-8")
            new.replace(self._file)
            self._written_at = at

    def close(self, numbers: Numbers, at: float) -> None:
        """Leave what stays of this process."""
        with suppress(OSError):  # whoever made the folder may have removed it
            self.write(numbers, at)
        self._lock.close()

    def others(self) -> Found:
        """Return what the other processes have left."""
        found = Found([], set(), {os.getpid()})  # which may have left numbers before it started anew
        for file in self._files():
            try:
                numbers: Numbers = json.loads(file.read_text("utf-8"))
            except (OSError, ValueError):
                continue
            dead = _is_free(file.with_suffix(".lock"))
            found.numbers.append(without_gauges(numbers) if dead else numbers)
            (found.dead if dead else found.living).add(int(file.stem.split("_")[1]))
        return found

    def _files(self) -> Iterator[Path]:
        return (file for file in sorted(self.path.glob("amoxi_*_*.json")) if file != self._file)


def folder_of_environment() -> Path | None:
    """Return the folder that the environment names, or None: then each process tells of itself alone."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def _is_free(path: Path) -> bool:
    """Whether nobody has a lock."""
    if not path.exists():
        return True
    try:
        lock = FileLock(path)
    except OSError:
        return False
    try:
        if not lock.try_acquire():
            return False
        lock.release()
        return True
    finally:
        lock.close()
