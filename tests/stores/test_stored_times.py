"""Times as stores keep them: what is read again is what was told before."""

from __future__ import annotations

import random

from amoxi_py.domain.event import time_text
from amoxi_py.stores.sql.times import millis, millis_up, seconds


def test_a_stored_time_reads_as_it_was_told_the_moment_before() -> None:
    chance = random.Random(7)
    nanoseconds = (1_796_038_786_000_000_000 + chance.randrange(10**12) for _ in range(50_000))
    moments = [1796039106.4359994, *(one / 1e9 for one in nanoseconds)]
    assert [one for one in moments if time_text(one) != time_text(seconds(millis(one)))] == []
    assert [one for one in moments if seconds(millis_up(one)) < one - 1e-6] == []
