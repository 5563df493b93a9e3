"""Times as they are stored: whole milliseconds, cut as readers are shown them."""

from __future__ import annotations

from math import modf

KEY_LIFE_MS = 24 * 3600 * 1000
"""How long an idempotency key is known."""


def millis(seconds: float) -> int:
    """Return whole milliseconds, cut the way `time_text` cuts them, so that a stored time reads as it was told."""
    part, whole = modf(seconds)  # the product of all of it would be rounded once more
    return (int(whole) * 1_000_000 + round(part * 1_000_000)) // 1000


def millis_up(seconds: float) -> int:
    """Return whole milliseconds that are not earlier: for what must not happen before its time."""
    return -millis(-seconds)


def seconds(millis: int) -> float:
    """Return seconds as the domain has them."""
    return millis / 1000
