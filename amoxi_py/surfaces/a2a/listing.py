"""Lists of a caller's tasks, in pages."""

from __future__ import annotations

from collections.abc import Mapping

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import InvalidParamsError
from msgspec.structs import replace

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import InvalidRequest
from amoxi_py.ports.tasks import ALL_TASKS, TaskFilter
from amoxi_py.surfaces.a2a.tasks import Tasks, seconds_of

_LARGEST_PAGE = 100
_PAGE = 50


_FILTERS: Mapping[int, TaskFilter] = {
    wire.TASK_STATE_UNSPECIFIED: ALL_TASKS,
    wire.TASK_STATE_SUBMITTED: TaskFilter(statuses=(RunStatus.QUEUED,), begun=False),
    wire.TASK_STATE_WORKING: TaskFilter(
        statuses=(RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING), begun=True, asking=False
    ),
    wire.TASK_STATE_INPUT_REQUIRED: TaskFilter(statuses=(RunStatus.WAITING,), asking=True),
    wire.TASK_STATE_COMPLETED: TaskFilter(statuses=(RunStatus.COMPLETED,)),
    wire.TASK_STATE_FAILED: TaskFilter(statuses=(RunStatus.FAILED,)),
    wire.TASK_STATE_CANCELED: TaskFilter(statuses=(RunStatus.CANCELLED,)),
}


async def list_tasks(
    engine: Engine, tasks: Tasks, params: wire.ListTasksRequest, principal: Principal, base: str
) -> wire.ListTasksResponse:
    """Return a page of the tasks that a caller asks for, the newest status first.

    Raises:
        InvalidParamsError: the page is none.
    """
    size = params.page_size if params.HasField("page_size") else _PAGE
    if not 1 <= size <= _LARGEST_PAGE:
        raise InvalidParamsError(f"pageSize must be from 1 to {_LARGEST_PAGE}")
    if params.history_length < 0:
        raise InvalidParamsError("historyLength must be 0 or more")
    in_state = _FILTERS.get(params.status)
    if in_state is None:  # a state that no task here is ever in
        return wire.ListTasksResponse(page_size=size)
    wanted = replace(
        in_state,
        conversation_id=tasks.contexts.conversation_of(params.context_id, principal) if params.context_id else None,
        updated_after=seconds_of(params.status_timestamp_after) if params.HasField("status_timestamp_after") else None,
    )
    try:
        page = await engine.list_tasks(principal, wanted, limit=size, cursor=params.page_token or None)
    except InvalidRequest:
        raise InvalidParamsError("pageToken is none of this list; leave it out for the first page") from None
    told = [
        await tasks.of(
            run, principal, history_length=params.history_length, artifacts=params.include_artifacts, base=base
        )
        for run in page.items
    ]
    return wire.ListTasksResponse(
        tasks=told, next_page_token=page.next_cursor or "", page_size=size, total_size=page.total
    )
