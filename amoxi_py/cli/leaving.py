"""How a process of ours ends: with 0 when it was asked to, and in time, whatever still runs in it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    STOP_SIGNALS += (signal.SIGBREAK,)

_AFTER_GRACE_S = 1.8
_AGAIN_AFTER_S = 0.05


def leave_on_signal() -> None:
    """Let a signal end the process with 0; what starts later puts its own orderly stop before this."""
    for number in STOP_SIGNALS:
        signal.signal(number, _leave)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # with nohup it is ignored
        signal.signal(signal.SIGHUP, _stop_at_hang_up)
    sys.unraisablehook = _Unraisable(sys.unraisablehook)


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

    def __init__(self, number: int) -> None:
        super().__init__(0)
        self.number = number


def _stop_at_hang_up(number: int, frame: FrameType | None) -> None:
    """Take a terminal that was closed for what asks to stop, whoever hears that at the moment."""
    signal.raise_signal(signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    raise _Leaving(number)


class _Unraisable:
    """Sends a signal once more that was heard where no exception goes up: in a destructor, in a weakref's callback."""

    def __init__(self, tell: Callable[[Any], object]) -> None:
        self._tell = tell

    def __call__(self, unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, _Leaving):
            threading.Timer(_AGAIN_AFTER_S, _send_again, [unraisable.exc_value.number]).start()
        else:
            self._tell(unraisable)


def _send_again(number: int) -> None:
    if sys.platform == "win32":
        signal.raise_signal(number)
    else:
        signal.pthread_kill(threading.main_thread().ident or 0, number)  # it may be waiting in a system call
