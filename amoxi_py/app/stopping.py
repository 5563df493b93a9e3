"""Signals that ask a process to stop: the first one begins the hand-over at once, further ones change nothing.

A web server waits for its connections before it tells the app to stop. An open event stream would hold it up for ever,
and every second of waiting is one in which runs are not handed over. So the app hears the signal first.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

log = logging.getLogger("amoxi_py.app")

STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)
if sys.platform == "win32":
    STOP_SIGNALS += (signal.SIGBREAK,)


class StopSignals:
    """Stands before the handlers that were there, from `install` to `restore`; it does nothing outside the main thread.

    `on_first` is called in the handler, so it may only set things and wake the loop. `forward` says whether the handler
    that was there hears the first signal as well.
    """

    def __init__(self, on_first: Callable[[], None], *, forward: bool = True) -> None:
        self._on_first = on_first
        self._forward = forward
        self._before: dict[signal.Signals, Any] = {}
        self._stopping = False

    def install(self) -> None:
        """Hear signals first."""
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in STOP_SIGNALS}

    def restore(self) -> None:
        """Give the signals back to who had them."""
        for number, handler in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._on_first()
        before = self._before.get(signal.Signals(number))
        if self._forward and callable(before):
            before(number, frame)
