"""When a failed try is tried again: exponential pauses with jitter, or as long as the other side asked for."""

from __future__ import annotations

from msgspec import Struct

_DOUBLINGS = 64  # more of them pass every `longest`, and in the end what a float can hold


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """`tries` at the most, the first pause in seconds, its growth to `longest`, and a share of chance in it."""

    tries: int = 5
    first: float = 0.5
    longest: float = 30.0
    jitter: float = 0.25
    longest_asked: float = 600.0


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
    pause = min(policy.first * 2.0 ** min(failures - 1, _DOUBLINGS), policy.longest)
    if asked is not None and asked > 0:
        pause = max(pause, min(asked, policy.longest_asked))
    return pause * (1.0 + policy.jitter * chance)
