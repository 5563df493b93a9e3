"""What a door whose callers think in tasks needs of durable storage: their runs, ordered by when they were last moved.

The times of statuses are known of runs of callers over A2A alone, so the others pay nothing for the order.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks of a caller.

    Attributes:
        conversation_id: Only those in it; none when it is not this caller's.
        statuses: Only those in one of these.
        asking: Of those that wait, only those that wait for a decision or an answer, in a run below them too; or with
            False only the other ones.
        begun: Of those that are queued, only those that a worker has had before; or with False only the other ones.
        updated_after: Only those whose `status_at` is not earlier.
    """

    conversation_id: str | None = None
    statuses: tuple[RunStatus, ...] = ()
    asking: bool | None = None
    begun: bool | None = None
    updated_after: float | None = None


ALL_TASKS = TaskFilter()


class TaskPage(Struct, frozen=True, kw_only=True):
    """Some tasks, the cursor for the next ones, and how many there are on all pages."""

    items: tuple[Run, ...]
    next_cursor: str | None = None
    total: int


class TaskStore(Protocol):
    """The tasks of a caller over A2A."""

    async def list_tasks(
        self,
        principal: Principal,
        wanted: TaskFilter = ALL_TASKS,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return the principal's tasks, newest status first; the runs that other runs asked for are no tasks.

        Args:
            principal: The caller, whose id begins with `a2a:`; others have no tasks.
            wanted: Which of them.
            limit: The most on a page.
            cursor: Where the page before ended. A task that has moved since is among the newest again.

        Raises:
            InvalidRequest: the cursor is none.
        """
        ...

    async def asking_before(self, run_id: str, principal: Principal) -> Run | None:
        """Return the earlier open run of the same conversation that waits for a decision or an answer.

        Only the conversation's open runs are read.

        Raises:
            NotFound: no such run of this principal.
        """
        ...
