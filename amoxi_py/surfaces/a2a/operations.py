"""The operations of version 1.0: how a message is read, who answers it, and how the answer is told, in JSON.

Every binding and version is a table of such operations; what is common to all is here once.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes.common import serialize_list_tasks_response
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message

Json = Any
Events = AsyncGenerator[Any, None]
"""What a handler streams: tasks, and updates of their status and artifacts."""

_FIELDS = re.compile(r"(?:Failed to parse \w{1,40} field: )*")
_FIELD = re.compile(r"parse (\w+) field")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation in one version.

    Attributes:
        name: In that version.
        read: From the JSON of a request to its message; raises `InvalidParamsError`.
        handle: The handler's method.
        tell: From the result and the message to the JSON of the answer.
        tell_events: The same for each event of a stream; None where the answer is one result.
    """

    name: str
    read: Callable[[Json], Message]
    handle: Callable[[RequestHandler], Callable[..., Any]]
    tell: Callable[[Any, Message], Json] = lambda result, request: told(result)
    tell_events: Callable[[Events], AsyncGenerator[Json, None]] | None = None


def told(message: Message) -> Json:
    """Return the JSON of a message."""
    return MessageToDict(message)


def reader(kind: Callable[[], Message]) -> Callable[[Json], Message]:
    """Return what reads the JSON of a message; fields that it does not have are left out."""

    def read(params: Json) -> Message:
        if not isinstance(params, dict):
            raise InvalidParamsError("the params must be an object")
        try:
            return ParseDict(params, kind(), ignore_unknown_fields=True)
        except ParseError as error:
            raise misfit(error) from None
        except (ValueError, TypeError, RecursionError):
            raise InvalidParamsError from None

    return read


def misfit(error: ParseError) -> InvalidParamsError:
    """Return the error for JSON that is no such message: it names the field, and nothing that stood in it."""
    fields = _FIELDS.match(str(error))
    field = "" if fields is None else ".".join(_FIELD.findall(fields[0]))
    if not field:
        return InvalidParamsError()
    reason = "the value does not fit"
    return InvalidParamsError(f"{field}: {reason}", data={"errors": [{"field": field, "message": reason}]})


async def tell_each(events: Events) -> AsyncGenerator[Json, None]:
    """Tell each event of a stream as it is."""
    async for event in events:
        yield MessageToDict(to_stream_response(event))


def sent(result: Any, request: Message) -> Json:
    """Tell what a sent message led to."""
    if isinstance(result, pb.Task):
        return MessageToDict(pb.SendMessageResponse(task=result))
    return MessageToDict(pb.SendMessageResponse(message=result))


def found(result: Any, request: Message) -> Json:
    """Tell of a task."""
    if result is None:
        raise TaskNotFoundError
    return MessageToDict(result)


def listed(result: Any, request: Message) -> Json:
    """Tell a page of tasks, also of fields that are empty."""
    return serialize_list_tasks_response(result, cast(pb.ListTasksRequest, request).include_artifacts)


def _nothing(result: Any, request: Message) -> Json:
    return None


_ALL = (
    Operation(name="SendMessage", read=reader(pb.SendMessageRequest), handle=lambda on: on.on_message_send, tell=sent),
    Operation(
        name="SendStreamingMessage",
        read=reader(pb.SendMessageRequest),
        handle=lambda on: on.on_message_send_stream,
        tell_events=tell_each,
    ),
    Operation(name="GetTask", read=reader(pb.GetTaskRequest), handle=lambda on: on.on_get_task, tell=found),
    Operation(name="ListTasks", read=reader(pb.ListTasksRequest), handle=lambda on: on.on_list_tasks, tell=listed),
    Operation(name="CancelTask", read=reader(pb.CancelTaskRequest), handle=lambda on: on.on_cancel_task, tell=found),
    Operation(
        name="SubscribeToTask",
        read=reader(pb.SubscribeToTaskRequest),
        handle=lambda on: on.on_subscribe_to_task,
        tell_events=tell_each,
    ),
    Operation(
        name="CreateTaskPushNotificationConfig",
        read=reader(pb.TaskPushNotificationConfig),
        handle=lambda on: on.on_create_task_push_notification_config,
    ),
    Operation(
        name="GetTaskPushNotificationConfig",
        read=reader(pb.GetTaskPushNotificationConfigRequest),
        handle=lambda on: on.on_get_task_push_notification_config,
    ),
    Operation(
        name="ListTaskPushNotificationConfigs",
        read=reader(pb.ListTaskPushNotificationConfigsRequest),
        handle=lambda on: on.on_list_task_push_notification_configs,
    ),
    Operation(
        name="DeleteTaskPushNotificationConfig",
        read=reader(pb.DeleteTaskPushNotificationConfigRequest),
        handle=lambda on: on.on_delete_task_push_notification_config,
        tell=_nothing,
    ),
    Operation(
        name="GetExtendedAgentCard",
        read=reader(pb.GetExtendedAgentCardRequest),
        handle=lambda on: on.on_get_extended_agent_card,
    ),
)
OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}
