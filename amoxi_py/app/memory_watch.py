"""The memory of a process that is ours alone: when garbage is collected, and when memory goes back to the system.

The collector's own rule counts objects. With a thousand runs at once it looks at half a million that are no garbage,
several times a second, and each look stops the process for up to 0.2 s; what has piled up meanwhile goes on in step.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import mmap
import sys
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

_LOOK_EVERY_S = 1.0
_LOOKS_BETWEEN = 10
_LOOKS_REMEMBERED = 600
_GROWN_WHILE_QUIET = 1.1
_GROWN = 1.5
_GROWN_MUCH = 2.0
_QUIET = 0.1
_FEW = 10
_SHARE = 0.005
_SHARE_GIVING = 0.01
_LITTLE_MB = 128
_COLLECT_AFTER = (1_000_000, 100, 10)
_STATM = Path("/proc/self/statm")


class MemoryWatch:
    """Looks every second, on the loop of the process.

    It is quiet with ten runs or less, and with a tenth of the most that it had in the last ten minutes. Memory is given
    back every ten seconds then, because conversations leave it one after the other; a collection before it empties the
    interpreter's lists of freed objects too. While it is busy, memory that has grown by half, and by 128 MB, is reason
    for a collection.

    At most a two-hundredth of the time goes to collections, unless memory has doubled, which garbage would fill
    meanwhile, or has grown by a tenth when it gets quiet. At most a hundredth goes to giving back.

    Args:
        executing: How many runs are executed now.
        resident: How much memory the process has, in MB.
        give_back: Lets the allocator return to the system what nothing lives on.
    """

    def __init__(
        self, executing: Callable[[], int], resident: Callable[[], float], give_back: Callable[[], None]
    ) -> None:
        self._executing = executing
        self._resident = resident
        self._give_back = give_back
        self._least = resident()
        self._runs: deque[int] = deque(maxlen=_LOOKS_REMEMBERED)
        self._until_next = 0
        self._collect_from = 0.0

    def start(self) -> None:
        """Begin to look, until the running loop ends; what the collector's own rule finds, it finds seldom now."""
        gc.set_threshold(*_COLLECT_AFTER)
        asyncio.get_running_loop().call_soon(self._look_again)

    def look(self) -> None:
        """Look once."""
        self._runs.append(self._executing())
        self._until_next -= 1
        resident = self._resident()
        self._least = min(self._least, resident)
        grown = resident / self._least
        if self._until_next <= 0 and self._runs[-1] <= max(_FEW, _QUIET * max(self._runs)):
            self._collect(anyway=grown > _GROWN_WHILE_QUIET)
            _forget_names()
            begun = time.perf_counter()
            self._give_back()
            taken = time.perf_counter() - begun
            self._until_next = max(_LOOKS_BETWEEN, math.ceil(taken / _SHARE_GIVING / _LOOK_EVERY_S))
            self._least = self._resident()
        elif grown > _GROWN and resident - self._least > _LITTLE_MB and self._collect(anyway=grown > _GROWN_MUCH):
            self._least = self._resident()

    def _collect(self, *, anyway: bool = False) -> bool:
        """Collect garbage, unless that would take too much of the time; return whether it was done."""
        begun = time.perf_counter()
        if begun < self._collect_from and not anyway:
            return False
        gc.collect()
        ended = time.perf_counter()
        self._collect_from = ended + (ended - begun) / _SHARE
        return True

    def _look_again(self) -> None:
        asyncio.get_running_loop().call_later(_LOOK_EVERY_S, self._look_again)
        self.look()  # the loop logs what fails, as when no file is left to be opened, and the next look comes


def watch_memory(executing: Callable[[], int]) -> None:
    """Begin to look after the memory of this process, on Linux; call it on the loop.

    glibc gives back what is on its own heap: `amoxi start` has all objects there (`cli.allocator`). The interpreter's
    allocator returns blocks only when nothing at all lives in them, which after a load is hardly ever so. Where /proc
    is not mounted nothing changes.
    """
    if sys.platform == "linux" and _STATM.exists():
        MemoryWatch(executing, _resident_mb, _trim()).start()


def _forget_names() -> None:
    """Empty the interpreter's table of names that were looked up on types: thousands, each on a page of its own."""
    if sys.version_info >= (3, 13):
        sys._clear_internal_caches()
    else:
        sys._clear_type_cache()


def _resident_mb() -> float:
    return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE / 1e6


def _trim() -> Callable[[], None]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # another C library
        return lambda: None
    return lambda: trim(0)
