"""What state a store's file is in, looked at without changing it, also while servers use it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from amoxi_py.errors import AmoxiError
from amoxi_py.stores.sqlite.connection import connect_to_read, damaged, store_error
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.migrate import DATABASE, LOCK, migrations, refuse_emptied

_CHECKED_IN_FULL = 256 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class StoreState:
    """What was found in a store's folder.

    Attributes:
        file: The database.
        size: Its bytes, with its log; None when it has not been made yet.
        missing: Migrations that the next start makes.
        newer: Numbers of migrations that a newer version has made.
    """

    file: Path
    size: int | None = None
    missing: tuple[str, ...] = ()
    newer: tuple[int, ...] = ()


def inspect_store(folder: Path) -> StoreState:
    """Return the state of the store in `folder`.

    Raises:
        StoreDamaged: the file is no whole database.
        StoreUnavailable: it cannot be read.
    """
    file = folder / DATABASE
    try:
        if (folder / LOCK).exists():
            lock = FileLock(folder / LOCK)
            try:
                refuse_emptied(file, lock)
            finally:
                lock.close()
        if not file.exists():
            return StoreState(file=file)
        with closing(connect_to_read(file)) as connection:
            return _state(file, connection)
    except (sqlite3.Error, OSError) as error:
        raise store_error(file, error) from error


def _state(file: Path, connection: sqlite3.Connection) -> StoreState:
    log = file.with_name(file.name + "-wal")
    size = file.stat().st_size + (log.stat().st_size if log.exists() else 0)
    check = "integrity_check(3)" if size <= _CHECKED_IN_FULL else "quick_check(3)"
    problems = [str(found) for (found,) in connection.execute(f"PRAGMA {check}") if found != "ok"]
    if problems:
        raise _damage(file, problems)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    made = {n for (n,) in connection.execute("SELECT number FROM migration")} if "migration" in tables else set()
    known = {number: name for number, name, _ in migrations()}
    return StoreState(
        file=file,
        size=size,
        missing=tuple(name for number, name in known.items() if number not in made),
        newer=tuple(sorted(made - known.keys())),
    )


def _damage(file: Path, problems: list[str]) -> AmoxiError:
    return damaged(file, "; ".join(" ".join(problem.split()) for problem in problems))
