"""What a process of ours asks of the interpreter and the system, once, when it starts."""

from __future__ import annotations

import gc
import sys

_COLLECT_AFTER = (5_000, 10, 10)


def tune_process() -> None:
    """Allow as many sockets as the system does."""
    if sys.platform == "win32":
        return
    import resource  # it exists on POSIX systems only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        pass  # macOS names a hard limit that it does not grant; the soft one stays


def tune_memory() -> None:
    """Let the garbage collector look less often, and not at what stays to the end; for a process that is ours alone.

    Under load there are a few thousand young objects at any time, and each look at them is for nothing: an ended run
    is freed by its reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
