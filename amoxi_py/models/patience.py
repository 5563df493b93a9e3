"""How long a request to a model is waited for: in silence, and in all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

_AFTER_THE_END_S = 5.0

Result = TypeVar("Result")


class Patience:
    """How long one request is waited for.

    Args:
        silence: Seconds without a piece of the reply; signs of life that say nothing do not count.
        total: Seconds in all.
    """

    def __init__(self, silence: float, total: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._silence = silence
        self._total = total
        self._end = self._loop.time() + total
        self._until = min(self._end, self._loop.time() + silence)
        self._timer: asyncio.TimerHandle | None = None
        self._give_up: Callable[[TimeoutError], None] = _nothing

    def heard(self) -> None:
        """Begin to count the silence anew."""
        self._until = min(self._end, self._loop.time() + self._silence)

    def ended(self) -> None:
        """Wait no longer than a moment from now on: a reply is finished, and something may follow it."""
        self._until = min(self._until, self._loop.time() + _AFTER_THE_END_S)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._until, self._look)

    async def wait(self, what: Awaitable[Result]) -> Result:
        """Return what comes in time.

        Raises:
            TimeoutError: it did not.
        """
        try:
            async with asyncio.timeout_at(self._until) as limit:
                return await what
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._late() from None

    def watch(self, give_up: Callable[[TimeoutError], None]) -> None:
        """Call `give_up`, once, when the time is over; until `close`. It costs no timer for each piece that comes."""
        self._give_up = give_up
        self._timer = self._loop.call_at(self._until, self._look)

    def close(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._give_up = _nothing

    def _look(self) -> None:
        if self._loop.time() >= self._until:
            self._timer = None
            self._give_up(self._late())
        else:
            self._timer = self._loop.call_at(self._until, self._look)

    def _late(self) -> TimeoutError:
        late = self._loop.time() >= self._end
        return TimeoutError(f"not done after {self._total:g} s" if late else f"nothing for {self._silence:g} s")


def _nothing(_error: TimeoutError) -> None:
    """Do nothing: nobody watches."""
