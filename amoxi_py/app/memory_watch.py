"""The memory of a process that is ours alone: when garbage is collected, and when memory goes back to the system.

The collector's own rule counts objects. With a thousand runs at once it looks at half a million that are no garbage,
several times a second, and each look stops the process for up to 0.2 s; what has piled up meanwhile goes on in step.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

_LOOK_EVERY_S = 1.0
_LOOKS_BETWEEN = 10
_GROWN = 1.5
_QUIET = 0.1
_SHARE = 0.005
_COLLECT_AFTER = (100_000, 1_000, 10)
_STATM = Path("/proc/self/statm")


class MemoryWatch:
    """Looks every second, on the loop of the process.

    It is quiet while at most a tenth as many runs are executed as at most since memory was given back. It is given back
    every ten seconds then, because conversations leave memory one after the other; a collection before it empties the
    interpreter's lists of freed objects too. While it is busy, memory that has grown by half is reason for one. At most
    a two-hundredth of the time goes to collections.

    Args:
        executing: How many runs are executed now.
        resident: How much memory the process has, in any unit.
        give_back: Lets the allocator return to the system what nothing lives on.
    """

    def __init__(
        self, executing: Callable[[], int], resident: Callable[[], int], give_back: Callable[[], None]
    ) -> None:
        self._executing = executing
        self._resident = resident
        self._give_back = give_back
        self._least = resident()
        self._most_runs = 0
        self._until_next = 0
        self._collect_from = 0.0

    def start(self) -> None:
        """Begin to look, until the running loop ends; what the collector's own rule finds, it finds seldom now."""
        gc.set_threshold(*_COLLECT_AFTER)
        self._look_again()

    def look(self) -> None:
        """Look once."""
        runs = self._executing()
        self._most_runs = max(self._most_runs, runs)
        self._until_next -= 1
        if runs <= _QUIET * self._most_runs and self._until_next <= 0:
            self._collect()
            sys._clear_type_cache()  # it keeps thousands of names that were looked up, each on a page of its own
            self._give_back()
            self._most_runs = runs
            self._until_next = _LOOKS_BETWEEN
        elif self._resident() > _GROWN * self._least and self._collect():
            self._least = self._resident()
        self._least = min(self._least, self._resident())

    def _collect(self) -> bool:
        """Collect garbage, unless that would take too much of the time; return whether it was done."""
        begun = time.perf_counter()
        if begun < self._collect_from:
            return False
        gc.collect()
        ended = time.perf_counter()
        self._collect_from = ended + (ended - begun) / _SHARE
        return True

    def _look_again(self) -> None:
        self.look()
        asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_again)


def watch_memory(executing: Callable[[], int]) -> None:
    """Begin to look after the memory of this process, on Linux; call it on the loop.

    glibc gives back what is on its own heap: `amoxi start` has all objects there (`cli.allocator`). The interpreter's
    allocator returns blocks only when nothing at all lives in them, which after a load is hardly ever so.
    """
    if sys.platform == "linux":
        MemoryWatch(executing, _resident_pages, _trim()).start()


def _resident_pages() -> int:
    return int(_STATM.read_bytes().split()[1])


def _trim() -> Callable[[], None]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library
        return lambda: None
    return lambda: trim(0)
