"""The embedded store: its folder's rights, and the state of its file; nothing in it is changed."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from amoxi_py.app.store import make_store
from amoxi_py.cli.checks.amount import amount
from amoxi_py.cli.checks.disk import nearest
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.cli.checks.migrations import tell_migrations
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError, ConfigError
from amoxi_py.stores.sqlite.inspection import StoreState, inspect_store

_AHEAD_S = 60.0


def look_at_file_store(settings: Settings) -> Iterator[Finding]:
    """Look at the embedded store."""
    folder = settings.store_folder
    try:
        make_store(settings)  # it is not opened
    except ConfigError as error:
        for problem in error.problems:
            yield Finding(check="store", level="error", text=problem, fix="name another folder, or move the file away")
        return
    try:
        state = inspect_store(folder)
    except AmoxiError as error:
        reason, _, way_out = str(error).rpartition("; ")
        yield Finding(check="store", level="error", text=reason or str(error), fix=way_out or str(error))
    else:
        yield from _tell(state)
    yield from _look_at_rights(folder)


def _tell(state: StoreState) -> Iterator[Finding]:
    if state.size is None:
        yield Finding(check="store", level="ok", text=f"{str(state.file)!r} is not there yet: the first start makes it")
        return
    yield Finding(check="store", level="ok", text=f"{str(state.file)!r} is whole, {amount(state.size)}")
    yield tell_migrations(state.missing, state.newer)
    if state.file.stat().st_mtime > time.time() + _AHEAD_S:
        yield Finding(
            check="store",
            level="warning",
            text="the store was written at a time that is still to come: the clock was set back, or is wrong",
            fix="set the clock; on a server let NTP keep it",
        )


def _look_at_rights(folder: Path) -> Iterator[Finding]:
    place = nearest(folder)
    fix = f"let the server's user write to {str(place)!r}, or set 'ai.store.path' to a folder where it may"
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            probe.write(b"x" * 4096)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        text = f"{str(place)!r} cannot be written: {error.strerror or error}"
        yield Finding(check="store", level="error", text=text, fix=fix)
        return
    if place == folder and sys.platform != "win32" and folder.stat().st_mode & 0o077:
        text = f"{str(folder)!r} can be read by other users of this machine; it holds people's messages"
        yield Finding(check="store", level="warning", text=text, fix=f"chmod 700 {folder}")
    else:
        yield Finding(check="store", level="ok", text=f"{str(place)!r} can be written")
