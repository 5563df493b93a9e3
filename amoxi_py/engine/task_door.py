"""The part of the door for callers whose runs are tasks to them: lists in the order of statuses, and what was said."""

from __future__ import annotations

from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.tool_door import ToolDoor
from amoxi_py.ports.tasks import ALL_TASKS, TaskFilter, TaskPage


class TaskDoor(ToolDoor):
    """Lists tasks and tells their messages; `Engine` is the rest of the same door."""

    async def list_tasks(
        self,
        principal: Principal,
        wanted: TaskFilter = ALL_TASKS,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of the principal's tasks, newest status first, and how many there are.

        Args:
            principal: A caller over A2A; others have no tasks.
            wanted: Which of them.
            limit: The most on a page.
            cursor: Where the page before ended.

        Raises:
            InvalidRequest: the cursor is none.
        """
        return await self._store.list_tasks(principal, wanted, limit=limit, cursor=cursor)

    async def asking_before(self, run: Run, principal: Principal) -> Run | None:
        """Return the earlier run of a run's conversation that waits for a decision or an answer; None when none does.

        Raises:
            NotFound: no such run of this principal.
        """
        return await self._store.asking_before(run.id, principal)

    async def messages_of(self, run_id: str, principal: Principal, *, calls: bool = True) -> tuple[Message, ...]:
        """Return all messages of the principal's run, in order, with their calls or without; raise `NotFound`."""
        return await self._store.run_messages(run_id, principal, calls=calls)
