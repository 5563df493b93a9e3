"""How long a request to a model is waited for: in silence, and in all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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
        self._now = asyncio.get_running_loop().time
        self._silence = silence
        self._total = total
        self._end = self._now() + total
        self._quiet_until = self._now() + silence

    def heard(self) -> None:
        """Begin to count the silence anew."""
        self._quiet_until = self._now() + self._silence

    async def wait(self, what: Awaitable[Result], *, finished: bool = False) -> Result:
        """Return what comes in time; what may follow a finished reply is not waited for long.

        Raises:
            TimeoutError: it did not.
        """
        until = min(self._quiet_until, self._end)
        if finished:
            until = min(until, self._now() + _AFTER_THE_END_S)
        try:
            async with asyncio.timeout_at(until) as limit:
                return await what
        except TimeoutError:
            if not limit.expired():
                raise
            late = self._now() >= self._end
            told = f"not done after {self._total:g} s" if late else f"nothing for {self._silence:g} s"
            raise TimeoutError(told) from None
