"""How the played provider answers: when its first word comes, how fast the others, how many, and what goes wrong."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

ErrorStatus = Literal["429", "500", "mix"]


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answers of a provider.

    Attributes:
        ttft_ms: Milliseconds from the request to the first token.
        tokens_per_s: How fast the tokens follow each other; 0 for all at once.
        tokens: Of each answer.
        error_rate: The share of requests, from 0 to 1, that are answered with an error.
        error_status: Of those answers; `mix` takes 500 and 429 in turn.
        retry_after_s: What an answer of 429 says.
        cut_rate: The share of streams, from 0 to 1, whose connection is closed half way.
        seed: Of the chance by which requests go wrong, so that two calls have the same errors.
        tools: Called one after the other, without arguments, before the answer in words, by requests that offer tools.
    """

    ttft_ms: float = 2000.0
    tokens_per_s: float = 200.0
    tokens: int = 8
    error_rate: float = 0.0
    error_status: ErrorStatus = "500"
    retry_after_s: int = 1
    cut_rate: float = 0.0
    seed: int = 1
    tools: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = (self.ttft_ms, self.tokens_per_s, self.error_rate, self.cut_rate)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise ValueError("the numbers of a profile are 0 or more")
        if self.error_rate > 1 or self.cut_rate > 1:
            raise ValueError("'error_rate' and 'cut_rate' are shares, from 0 to 1")
        if self.tokens < 1:
            raise ValueError("'tokens' is at least 1")

    @property
    def step_s(self) -> float:
        """Seconds from one token to the next, and from the last one to the answer's end."""
        return 1.0 / self.tokens_per_s if self.tokens_per_s else 0.0

    @property
    def turn_s(self) -> float:
        """Seconds from a request to the end of its answer, when nothing between costs any time."""
        return self.ttft_ms / 1000.0 + self.tokens * self.step_s
