"""Refuses at once, without the store, what the store has just refused: a crowd at the gate costs next to nothing.

What is known is known for a moment. Then one request is let through to look again, and the others wait for what it
brings, so that a free place is found wherever it came free.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from msgspec import Struct

from amoxi_py.domain.limits import BUSY, REFUSALS, TOO_MANY_REQUESTS, TOO_MANY_RUNS, Limits
from amoxi_py.errors import TooMany

LOOK_AGAIN_S = 0.1
"""How long it is believed that no run has ended."""
LOOK_AGAIN_LATER_S = 1.0
"""And that a minute, a day or a budget is as it was: another server may have changed it."""
_MOST_KNOWN = 10_000


class _Known(Struct):
    """What was refused, until when nobody looks again, and when it is over for sure."""

    error: TooMany
    until: float
    over: float


class Gate:
    """What one process knows of the limits.

    Attributes:
        limits: What is admitted.
        refused: How often something was refused in this process, by its code.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.refused = dict.fromkeys(REFUSALS, 0)
        self._clock = clock
        self._shut: _Known | None = None
        self._known: dict[str, _Known] = {}

    def refuse(self, principal: str, *, run: bool = True, may_replace: bool = False) -> None:
        """Raise `TooMany` when it is known that a principal (its `owner_key`) gets nothing now.

        Without `run` it asks for something that becomes none; what `may_replace` a run may be no run more. What has an
        idempotency key is looked up first: its run may be known already.
        """
        for known in self._of(principal, run=run, may_replace=may_replace):
            if self._clock() < known.until:
                self._count(known.error)
                raise TooMany(str(known.error), code=known.error.code, retry_after=known.error.retry_after)

    def enter(self, principal: str, *, run: bool = True, may_replace: bool = False) -> None:
        """Do the same before the store is asked: others are refused until it is known what it says."""
        self.refuse(principal, run=run, may_replace=may_replace)
        for known in self._of(principal, run=run, may_replace=may_replace):
            known.until = self._clock() + LOOK_AGAIN_S

    def is_shut(self, principal: str, *, may_replace: bool = False) -> bool:
        """Whether a run would be refused."""
        return any(self._clock() < known.until for known in self._of(principal, may_replace=may_replace))

    def heard(self, principal: str, error: TooMany) -> None:
        """Remember what the store has refused."""
        self._count(error)
        now, soon = self._clock(), error.code in (BUSY, TOO_MANY_RUNS)
        known = _Known(
            error,
            until=now + (LOOK_AGAIN_S if soon else LOOK_AGAIN_LATER_S),
            over=math.inf if soon else now + error.retry_after,
        )
        if error.code == BUSY:
            self._shut = known
            return
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[principal] = known

    def passed(self, principal: str) -> None:
        """Forget what was known: the store has taken a run."""
        self._shut = None
        self._known.pop(principal, None)

    def _of(self, principal: str, *, run: bool = True, may_replace: bool = False) -> list[_Known]:
        """Return what was refused, and nobody knows better yet."""
        if self._shut is None and not self._known:
            return []
        known = [self._shut] if run and self._shut is not None else []
        own = self._known.get(principal)
        if own is not None and self._clock() < own.over and _bears_on(own.error.code, run, may_replace):
            known.append(own)
        return known

    def _count(self, error: TooMany) -> None:
        self.refused[error.code] = self.refused.get(error.code, 0) + 1


def _bears_on(code: str, run: bool, may_replace: bool) -> bool:
    """Whether what one principal was refused with holds for what it asks for next."""
    return code == TOO_MANY_REQUESTS or (run and not (may_replace and code == TOO_MANY_RUNS))
