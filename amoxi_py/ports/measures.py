"""What a process counts of its own work, as plain numbers: nothing is told of them, who wants to know reads them.

Labels come from short lists: no id, and no name that a person or a model has made up, is ever one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import Protocol

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.tool_call import ToolCall

OTHER = "other"
"""Stands for names that are not known, and for those beyond the most that are kept apart."""

_COMMIT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BATCH = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


class Histogram:
    """How values are spread.

    Attributes:
        bounds: The upper bounds of the buckets, growing.
        counts: How many values each bucket has, and in a last one those above all bounds.
        total: The sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class StoreMeasures:
    """What a store counts in this process.

    Attributes:
        tools: The names that calls are counted under; those of all others, which a model may have made up, are `other`.
        waiting: Verbs that were accepted and are not durable yet.
        dropped_events: Events that were committed and could not be told to this process's readers.
        events: How many of each type this process has committed.
        calls: How many calls of tools have been settled by this process, by tool and status.
        commit_seconds: How long transactions took, from the first lock to the answer of the commit.
        batch_size: How many verbs shared one.
    """

    def __init__(self) -> None:
        self.tools: Collection[str] = ()
        self.waiting = 0
        self.dropped_events = 0
        self.events = [0] * (max(EventType) + 1)
        self.calls: dict[tuple[str, str], int] = {}
        self.commit_seconds = Histogram(_COMMIT_S)
        self.batch_size = Histogram(_BATCH)

    def committed(self, events: Sequence[Event]) -> None:
        """Count the events of a transaction of this process."""
        for event in events:
            self.events[event.type] += 1
            if event.type is EventType.TOOL_COMPLETED and isinstance(event.subject, ToolCall):
                call = event.subject
                self.settled(call.tool, call.status.value)

    def settled(self, tool: str, status: str) -> None:
        """Count a call that has come to its result."""
        key = (tool if tool in self.tools else OTHER, status)
        self.calls[key] = self.calls.get(key, 0) + 1


class MeasuredStore(Protocol):
    """A store that counts."""

    @property
    def measures(self) -> StoreMeasures:
        """What it counts in this process."""
        ...

    async def busy_runs(self) -> int:
        """Return how many runs are open (queued, running or waiting), without scanning ended ones."""
        ...
