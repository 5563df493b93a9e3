"""Which allocator a server's processes have: it can only be chosen before the interpreter starts."""

from __future__ import annotations

import contextlib
import os
import sys

_SETTING = "PYTHONMALLOC"


def use_system_allocator() -> None:
    """Begin this program anew with the system's allocator for all objects, unless somebody has chosen another one.

    The process stays the same one. Only with glibc: others do not give memory back, or take long. Where it cannot begin
    anew the server works all the same, and keeps more memory.
    """
    if os.environ.get(_SETTING) or not sys.executable or not _is_heard() or not _has_glibc():
        return
    environment = {**os.environ, _SETTING: "malloc"}
    with contextlib.suppress(OSError):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - as it was called


def _is_heard() -> bool:
    """Whether the interpreter would take the setting: with -E and -I it reads none.

    Its development mode has an allocator that checks, which stays. Without the GIL it knows only its own, and would
    refuse to start.
    """
    free_threaded = "t" in getattr(sys, "abiflags", "")  # Windows has no flags
    return not (sys.flags.ignore_environment or sys.flags.dev_mode or free_threaded)


def _has_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False
