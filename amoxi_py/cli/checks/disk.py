"""The disk under the embedded store: what is free on it, and whether it is one that keeps what is written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from amoxi_py.cli.checks.amount import amount
from amoxi_py.cli.checks.finding import Finding

_TOO_LITTLE = 64 * 1024 * 1024
_LITTLE = 1024 * 1024 * 1024
_MOUNTS = Path("/proc/self/mounts")
_FAR = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "fuse.s3fs"}
_FLEETING = {"tmpfs", "ramfs"}


def look_at_disk(folder: Path) -> Iterator[Finding]:
    """Look at the disk that a folder is on, or will be."""
    place = nearest(folder).resolve()  # the file system is that of what a link leads to
    free = shutil.disk_usage(place).free
    text = f"{amount(free)} are free where {str(place)!r} is"
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


def nearest(folder: Path) -> Path:
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
