"""What a run has used of its models: requests, tokens, and what they cost."""

from __future__ import annotations

from msgspec import Struct


class Usage(Struct, frozen=True, kw_only=True):
    """Counts of one model reply, or of a whole run: `requests` to models, tokens in and out.

    `cached_tokens` are those of the input that the provider read from its cache; `written_tokens` those that it wrote
    to it at a price of their own; both are in `input_tokens` too. `cost` is in billionths of a US dollar, 0 where no
    price is known.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    cost: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
            cost=self.cost + other.cost,
        )


NO_USAGE = Usage()
