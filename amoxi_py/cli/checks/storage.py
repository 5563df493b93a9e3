"""The store: its folder's rights, the disk under it, and the state of its file; nothing in it is changed."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from amoxi_py.app.store import make_store
from amoxi_py.cli.checks.finding import Finding
from amoxi_py.config.settings import Settings
from amoxi_py.errors import AmoxiError, ConfigError
from amoxi_py.stores.sqlite.inspection import StoreState, inspect_store

_TOO_LITTLE = 64 * 1024 * 1024
_LITTLE = 1024 * 1024 * 1024
_AHEAD_S = 60.0
_MOUNTS = Path("/proc/self/mounts")
_FAR = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs"}
_FLEETING = {"tmpfs", "ramfs"}


def look_at_store(settings: Settings) -> Iterator[Finding]:
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
    yield from _look_at_disk(folder)


def _tell(state: StoreState) -> Iterator[Finding]:
    if state.size is None:
        yield Finding(check="store", level="ok", text=f"{str(state.file)!r} is not there yet: the first start makes it")
        return
    yield Finding(check="store", level="ok", text=f"{str(state.file)!r} is whole, {_amount(state.size)}")
    if state.missing:
        text = f"migrations that the next start makes: {', '.join(state.missing)}"
        yield Finding(check="migrations", level="note", text=text, fix="nothing; or amoxi migrate as a step of its own")
    elif state.newer:
        yield Finding(
            check="migrations",
            level="warning",
            text=f"a newer version of amoxi_py has changed the store (migration {state.newer[-1]})",
            fix="go back to the newer version soon; this one uses what it knows",
        )
    else:
        yield Finding(check="migrations", level="ok", text="the store is up to date")
    if state.file.stat().st_mtime > time.time() + _AHEAD_S:
        yield Finding(
            check="store",
            level="warning",
            text="the store was written at a time that is still to come: the clock was set back, or is wrong",
            fix="set the clock; on a server let NTP keep it",
        )


def _look_at_rights(folder: Path) -> Iterator[Finding]:
    place = _nearest(folder)
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


def _look_at_disk(folder: Path) -> Iterator[Finding]:
    place = _nearest(folder)
    free = shutil.disk_usage(place).free
    text = f"{_amount(free)} are free where {str(place)!r} is"
    if free < _TOO_LITTLE:
        yield Finding(check="disk", level="error", text=text, fix="make room: the store could not grow")
    elif free < _LITTLE:
        yield Finding(check="disk", level="warning", text=text, fix="make room before it is full")
    else:
        yield Finding(check="disk", level="ok", text=text)
    kind = _file_system(place)
    if kind in _FAR:
        yield Finding(
            check="disk",
            level="warning",
            text=f"{str(place)!r} is on a network ({kind}), where SQLite's locks and shared memory do not hold",
            fix="set 'ai.store.path' to a folder on a disk of this machine",
        )
    elif kind in _FLEETING:
        text = f"{str(place)!r} is in memory ({kind}): a restart of the machine loses all runs"
        yield Finding(check="disk", level="warning", text=text, fix="set 'ai.store.path' to a folder on a disk")
    elif kind == "overlay":
        text = f"{str(place)!r} is in a container's own layer, which goes with the container"
        yield Finding(check="disk", level="note", text=text, fix=f"mount a volume at {folder}")


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above that is there."""
    return next(place for place in (folder, *folder.parents) if place.is_dir())


def _file_system(place: Path) -> str:
    """Return the kind of the file system, or nothing where that cannot be known."""
    try:
        lines = _MOUNTS.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    best, kind = -1, ""
    for line in lines:
        _, point, found, *_ = line.split(" ")
        mounted = Path(point.replace("\\040", " "))
        if place.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), found
    return kind


def _amount(count: int) -> str:
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**power:
            return f"{count / 1024**power:.1f} {unit}"
    return f"{count} bytes"
