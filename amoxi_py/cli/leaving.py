"""How a process of ours ends: with 0 when it was asked to, and in time, whatever still runs in it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    STOP_SIGNALS += (signal.SIGBREAK,)

_AFTER_GRACE_S = 1.8


def leave_on_signal() -> None:
    """Let a signal end the process with 0; what starts later puts its own orderly stop before this."""
    for number in STOP_SIGNALS:
        signal.signal(number, _leave)


def end_in_time(grace: float, stopped: Callable[[], bool]) -> None:
    """End the process after the grace in any case: a thread of a tool that never returns must not keep it.

    The exit code is 0 when everything was handed over by then.
    """

    def end() -> None:
        time.sleep(grace + _AFTER_GRACE_S)
        handed_over = stopped()
        if not handed_over:
            print(
                "amoxi: the stop took too long; what still runs is left as after a crash", file=sys.stderr, flush=True
            )
        os._exit(0 if handed_over else 1)

    threading.Thread(target=end, name="amoxi-end", daemon=True).start()


class _Leaving(SystemExit):
    """A signal came; unlike `sys.exit()` in a module of the app, it is nobody's mistake and goes all the way up."""


def _leave(number: int, frame: FrameType | None) -> None:
    raise _Leaving(0)
