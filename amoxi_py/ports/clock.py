"""Time, as the engine and the stores ask for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: the calendar, and one that only runs forward, for leases."""

    def now(self) -> float:
        """Return seconds since 1970 (UTC), as people know them."""
        ...

    def running(self) -> float:
        """Return seconds on a clock that never jumps and, where the system has one, counts while it sleeps."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> float:
        return time.time()

    def running(self) -> float:
        return _boottime()


if hasattr(time, "CLOCK_BOOTTIME"):

    def _boottime() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # macOS's monotonic clock and Windows' tick count have no twin that counts sleep in the standard library

    def _boottime() -> float:
        return time.monotonic()
