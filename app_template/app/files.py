"""Files of lines in `data/`, to which several processes of this app may write."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def alone_with(file: Path) -> Iterator[None]:
    """Let nobody else in, thread or process: an empty SQLite file beside it is a lock, which ends with its process."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file.with_suffix(".lock"), timeout=30, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def read_lines(file: Path) -> list[str]:
    """Return the lines of a file; one that is not there has none."""
    return file.read_text("utf-8").splitlines() if file.exists() else []


def add_line(file: Path, line: str) -> None:
    """Add a line, which is on the disk when this returns."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(f"{line}\n")
        lines.flush()
        os.fsync(lines.fileno())
