"""Figures of many turns: percentiles of their times, what failed and how, what was refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Percentiles, in milliseconds, of `count` times; None without any."""

    count: int
    p50: float | None
    p95: float | None
    p99: float | None
    longest: float | None


def times_of(seconds: Sequence[float]) -> Times:
    """Return the percentiles of times in seconds: the smallest value that so many of all values do not exceed."""
    ordered = sorted(seconds)

    def at(share: float) -> float | None:
        if not ordered:
            return None
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)] * 1000, 3)

    return Times(count=len(ordered), p50=at(0.50), p95=at(0.95), p99=at(0.99), longest=at(1.0))


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """What clients saw within one window of a load.

    Attributes:
        number: From 0.
        seconds: Its length.
        ended: Turns that were completed within it.
        ttft, turn: Of turns that began after the warm-up; those that were still going on when the last window ended
            are in it.
        errors: How often each kind of error came, in the first window also during the warm-up; `samples` has words of
            one answer of each.
        refused: Answers of 429 to what was asked after the warm-up, by how long they took; `refused_without_wait` of
            them had no `Retry-After`.
    """

    number: int
    seconds: float
    ended: int
    ttft: Times
    turn: Times
    errors: dict[str, int]
    samples: dict[str, str]
    refused: Times
    refused_without_wait: int

    @property
    def turns_per_s(self) -> float:
        """Completed turns per second."""
        return self.ended / self.seconds


class Tally:
    """What is counted until a window is over."""

    def __init__(self) -> None:
        self.ended = 0
        self.ttft: list[float] = []
        self.turn: list[float] = []
        self.refused: list[float] = []
        self.refused_without_wait = 0
        self.errors: Counter[str] = Counter()
        self.samples: dict[str, str] = {}

    def fail(self, kind: str, sample: str = "") -> None:
        """Count an error."""
        self.errors[kind] += 1
        if sample:
            self.samples.setdefault(kind, sample)

    def only_errors(self) -> Tally:
        """Return what the first window begins with: no figure of the warm-up, but what failed in it."""
        tally = Tally()
        tally.errors, tally.samples = self.errors, self.samples
        return tally

    def window(self, number: int, seconds: float) -> Window:
        """Return the figures."""
        return Window(
            number=number,
            seconds=seconds,
            ended=self.ended,
            ttft=times_of(self.ttft),
            turn=times_of(self.turn),
            errors=dict(self.errors),
            samples=dict(self.samples),
            refused=times_of(self.refused),
            refused_without_wait=self.refused_without_wait,
        )
