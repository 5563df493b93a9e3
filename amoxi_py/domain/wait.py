"""What a call of a tool waits for: a person's answer, a time, a signal, or the end of a run that it asked."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

WaitOn = Literal["question", "sleep", "signal", "child"]


class Wait(Struct, frozen=True, kw_only=True):
    """One wait of one call, recorded once and over once. Times are seconds since 1970.

    Attributes:
        k: Its place among the waits of its call, from 1; only the last one can be open.
        kind: What it is for.
        name: The question's text, the signal's name, or the id of the child run; empty for a sleep.
        schema: JSON Schema (JSON text) that an answer must fit, or None for a text.
        created_at: When it was recorded.
        until: When it is over whatever comes, or None.
        value: The answer or the signal's payload, JSON text; None while there is none. A child's stays None, because
            its end settles the call itself.
        by: Who gave it.
    """

    k: int
    kind: WaitOn
    name: str = ""
    schema: str | None = None
    created_at: float
    until: float | None = None
    value: str | None = None
    by: str | None = None

    def over(self, now: float) -> bool:
        """Whether there is nothing to wait for any more."""
        return self.value is not None or (self.until is not None and self.until <= now)
