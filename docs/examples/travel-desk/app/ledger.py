"""Files of lines, to which one thread of one process writes at a time. It needs a POSIX system, for `flock`."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def open_ledger(file: Path) -> Iterator[tuple[list[str], TextIO]]:
    """Give the lines of a ledger, and the ledger itself; what is written to it is on the disk at the end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)  # given back when the file is closed, or the process ends
        ledger.seek(0)
        yield ledger.read().splitlines(), ledger
        ledger.flush()
        os.fsync(ledger.fileno())
