"""When a failed try is tried again: exponential pauses with jitter, or as long as the other side asked for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from msgspec import Struct

_DOUBLINGS = 64  # more of them pass every `longest`, and in the end what a float can hold


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`tries` at the most, the first pause in seconds, its growth to `longest`, and a share of chance in it."""

    tries: int = 5
    first: float = 0.5
    longest: float = 30.0
    jitter: float = 0.25
    longest_asked: float = 600.0


def patient_for(seconds: float) -> RetryPolicy:
    """Return a policy whose pauses are at least so many seconds in all, chance and what is asked for not counted."""
    policy = RetryPolicy()
    tries, waited = 1, 0.0
    while waited < seconds:
        waited += _pause(policy, tries)
        tries += 1
    return RetryPolicy(tries=tries)


def retry_delay(policy: RetryPolicy, failures: int, *, chance: float, asked: float | None = None) -> float | None:
    """Return the pause in seconds before the next try, or None to give up.

    Args:
        policy: The bounds.
        failures: Tries that have failed, at least 1.
        chance: A number from 0 to 1 that spreads the tries of many.
        asked: The pause that the other side asked for, in seconds; it is a lower bound, capped by the policy.
    """
    if failures >= policy.tries:
        return None
    pause = _pause(policy, failures)
    if asked is not None and asked > 0:
        pause = max(pause, min(asked, policy.longest_asked))
    return pause * (1.0 + policy.jitter * chance)


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a `Retry-After` asks for (RFC 9110: seconds, or a date), or None.

    A date is taken against the answer's own `Date` where it has one: the two clocks may differ.
    """
    try:
        if "retry-after-ms" in headers:
            return _seconds(float(headers["retry-after-ms"]) / 1000)
        value = headers.get("retry-after")
        if value is None:
            return None
        if value.strip().replace(".", "", 1).isdigit():
            return _seconds(float(value))
        then = parsedate_to_datetime(value).timestamp()
        now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
        return _seconds(then - now)
    except (ValueError, OverflowError):
        return None


def _seconds(value: float) -> float | None:
    return max(0.0, value) if math.isfinite(value) else None


def _pause(policy: RetryPolicy, failures: int) -> float:
    return min(policy.first * 2.0 ** min(failures - 1, _DOUBLINGS), policy.longest)
