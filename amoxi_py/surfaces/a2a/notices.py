"""What a webhook is told of an update, as its caller's version of A2A tells it; an answer is told once, whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from a2a.compat.v0_3.conversions import to_compat_task
from a2a.types.a2a_pb2 import Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToJson

from amoxi_py.surfaces.a2a.context import V0_3
from amoxi_py.surfaces.a2a.fold import Update
from amoxi_py.surfaces.a2a.tasks import FINAL


def is_last(update: Task | TaskStatusUpdateEvent) -> bool:
    """Whether nothing comes after it."""
    return update.status.state in FINAL


def content_type(version: str) -> str:
    """Return the media type of a notice."""
    return "application/json" if version == V0_3 else "application/a2a+json"


async def notices(
    update: Task | TaskStatusUpdateEvent, version: str, task_now: Callable[[], Awaitable[Task]]
) -> list[bytes]:
    """Return the bodies to send for a task, or for its new status, in order.

    In 1.0 the new status, after the answer if it is the last one; in 0.3 the whole task in that status.
    """
    if version == V0_3:
        task = Task()
        task.CopyFrom(update if isinstance(update, Task) else await task_now())
        task.status.CopyFrom(update.status)
        return [to_compat_task(task).model_dump_json(by_alias=True, exclude_none=True).encode()]
    if isinstance(update, Task) or not is_last(update):
        return [_body(update)]
    task = await task_now()
    told: list[Update] = [
        TaskArtifactUpdateEvent(task_id=task.id, context_id=task.context_id, artifact=artifact, last_chunk=True)
        for artifact in task.artifacts
    ]
    return [_body(one) for one in (*told, update)]


def _body(update: Update) -> bytes:
    told: str = MessageToJson(to_stream_response(update), indent=None)
    return told.encode()
