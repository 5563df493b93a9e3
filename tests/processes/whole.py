"""How much of what tests try at random an ordinary run tries; all of it with AMOXI_TEST_ALL=1, before a release."""

from __future__ import annotations

import os

WHOLE = bool(os.environ.get("AMOXI_TEST_ALL"))
"""Whether this run is to do all."""


def some_of(examples: int) -> int:
    """Return how many of so many examples this run tries: a third, and never fewer than ten."""
    return examples if WHOLE else min(examples, max(10, examples // 3))
