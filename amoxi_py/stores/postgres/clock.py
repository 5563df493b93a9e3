"""The database's time, as a process of its own knows it, so that servers whose calendars differ agree."""

from __future__ import annotations

import time

from amoxi_py.ports.clock import SystemClock

_MOST_BEHIND_S = 0.25


class DatabaseClock:
    """The calendar of the database, followed from what its answers say; before the first it is the machine's."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self._ahead: float | None = None

    def now(self) -> float:
        """Return seconds since 1970 (UTC), as the database has them, at most a transaction's time behind."""
        return time.time() if self._ahead is None else self.running() + self._ahead

    def running(self) -> float:
        """Return seconds on the machine's clock that never jumps."""
        return self._machine.running()

    def follow(self, now_ms: int) -> None:
        """Take note of a time that an answer says; of those, the one that came fastest is the nearest."""
        ahead = now_ms / 1000 - self.running()
        if self._ahead is None or ahead > self._ahead or ahead < self._ahead - _MOST_BEHIND_S:
            self._ahead = ahead
