"""Which allocator a server's processes have: it can only be chosen before the interpreter starts."""

from __future__ import annotations

import os
import sys

_SETTING = "PYTHONMALLOC"


def use_system_allocator() -> None:
    """Begin this program anew with the system's allocator for all objects, unless the environment names one.

    The process stays the same one. Only with glibc: others do not give memory back, or take long.
    """
    if os.environ.get(_SETTING) or not _has_glibc():
        return
    os.environ[_SETTING] = "malloc"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this program, as it was called


def _has_glibc() -> bool:
    if sys.platform != "linux":
        return False
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False
