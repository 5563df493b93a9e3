"""What a process of ours asks of the interpreter and the system, once, when it starts."""

from __future__ import annotations

import gc
import sys

_SWITCH_INTERVAL_S = 0.0001
_COLLECT_AFTER = 50_000


def tune_process() -> None:
    """Keep the event loop quick beside threads that compute, and allow as many sockets as the system does.

    With the default switch interval a single computing tool holds the whole server back. With the default thresholds
    of the garbage collector a server under load looks for cycles hundreds of times a second and finds none.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    gc.freeze()  # what was imported and declared stays to the end: not to be looked at each time
    gc.set_threshold(_COLLECT_AFTER, 20, 100)
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
