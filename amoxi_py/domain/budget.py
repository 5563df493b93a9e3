"""What a run may use at most: the limits that an agent is declared with, and whether they are reached."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from amoxi_py.domain.usage import Usage

BILLION = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a run of an agent may use, with all runs below it. It is looked at before each request to a model.

    Attributes:
        turns: Replies of models.
        tokens: Tokens in and out, cached ones included.
        usd: US dollars, by the list prices of the models; every model that is asked must have a known one.
        seconds: Seconds since the message came, on the store's clock; time in which somebody is waited for counts.
    """

    turns: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None

    def mistakes(self) -> list[str]:
        """Return what is wrong with the limits, one sentence each."""
        if all(getattr(self, field.name) is None for field in fields(self)):
            return ["has no limit; give `turns`, `tokens`, `usd` or `seconds`"]
        wrong = [
            f"`{name}={value!r}` must be a whole number from 1 up"
            for name, value in (("turns", self.turns), ("tokens", self.tokens))
            if value is not None and not (type(value) is int and value >= 1)
        ]
        wrong += [
            f"`{name}={value!r}` must be a number above 0"
            for name, value in (("usd", self.usd), ("seconds", self.seconds))
            if value is not None and not (type(value) in (int, float) and 0 < value < math.inf)
        ]
        return wrong

    def exceeded(self, usage: Usage, age: float) -> str | None:
        """Return which limit is reached, as a sentence for whoever asked, or None; `age` is in seconds."""
        if self.turns is not None and usage.requests >= self.turns:
            return f"all {self.turns} turns are used"
        used = usage.input_tokens + usage.output_tokens
        if self.tokens is not None and used >= self.tokens:
            return f"{used} tokens are used, of {self.tokens}"
        if self.usd is not None and usage.cost >= self.usd * BILLION:
            return f"{usage.cost / BILLION:.6g} US dollars are used, of {self.usd:g}"
        if self.seconds is not None and age >= self.seconds:
            return f"all {self.seconds:g} seconds are over"
        return None
