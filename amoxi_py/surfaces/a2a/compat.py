"""The operations of version 0.3, in terms of those of 1.0: other names, other JSON, and streams that say their end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import ParseError
from google.protobuf.message import Message
from pydantic import BaseModel, ValidationError

from amoxi_py.surfaces.a2a.operations import Events, Json, Operation, misfit

_MOST_ERRORS = 5
_LONGEST_NAME = 60
_ENDED = (v03.TaskState.completed, v03.TaskState.canceled, v03.TaskState.failed, v03.TaskState.rejected)
_OPEN = (v03.TaskState.input_required, v03.TaskState.auth_required)


def model_reader(method: str, model: type[BaseModel], to_core: Callable[[Any], Message]) -> Callable[[Json], Message]:
    """Return what reads the params of a method of 0.3 as the message of 1.0."""

    def read(params: Json) -> Message:
        request = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        return to_core_message(lambda: model.model_validate(request), to_core)

    return read


def to_core_message(make: Callable[[], Any], to_core: Callable[[Any], Message]) -> Message:
    """Return the message of 1.0 for a request of 0.3; raise `InvalidParamsError` for what is none."""
    try:
        return to_core(make())
    except ValidationError as error:
        raise _misfit(error) from None
    except ParseError as error:
        raise misfit(error) from None
    except (ValueError, TypeError, RecursionError):  # what no model notices, such as base64 that is none
        raise InvalidParamsError from None


def _misfit(error: ValidationError) -> InvalidParamsError:
    """Return the error for JSON that is no such request: it names the fields, and nothing that stood in them."""
    wrong = error.errors(include_url=False, include_context=False, include_input=False)[:_MOST_ERRORS]
    errors = [
        {
            "field": ".".join(str(part)[:_LONGEST_NAME] for part in each["loc"] if part != "params"),
            "message": "it is needed" if each["type"] == "missing" else "the value does not fit",
        }
        for each in wrong
    ]
    first = errors[0]
    return InvalidParamsError(f"{first['field'] or 'params'}: {first['message']}", data={"errors": errors})


def dumped(model: BaseModel) -> Json:
    """Return the JSON of a model of 0.3."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def sent(result: Any, request: Message) -> v03.Task | v03.Message:
    """Return what a sent message led to."""
    return conversions.to_compat_task(result) if isinstance(result, pb.Task) else conversions.to_compat_message(result)


def found(result: Any, request: Message) -> v03.Task:
    """Return a task."""
    if result is None:
        raise TaskNotFoundError
    return conversions.to_compat_task(result)


def configs(result: Any, request: Message) -> list[v03.TaskPushNotificationConfig]:
    """Return the webhooks of a task."""
    return [conversions.to_compat_task_push_notification_config(config) for config in result.configs]


def config(result: Any, request: Message) -> v03.TaskPushNotificationConfig:
    """Return a webhook of a task."""
    return conversions.to_compat_task_push_notification_config(result)


def card(result: Any, request: Message) -> v03.AgentCard:
    """Return a card."""
    return conversions.to_compat_agent_card(result)


async def tell_until_answered(events: Events) -> AsyncGenerator[Any, None]:
    """Tell the events of a sent message, whose stream ends where the task ends, or it or one before it asks."""

    def is_last(status: v03.TaskStatus) -> bool:
        held_up = status.state == v03.TaskState.submitted and status.message is not None
        return held_up or status.state in (*_ENDED, *_OPEN)

    async for told in _told(events, is_last):
        yield told


async def tell_until_ended(events: Events) -> AsyncGenerator[Any, None]:
    """Tell the events of a task to whoever comes back to it, whose stream ends where the task does."""
    async for told in _told(events, lambda status: status.state in _ENDED):
        yield told


async def _told(events: Events, is_last: Callable[[v03.TaskStatus], bool]) -> AsyncGenerator[Any, None]:
    """Tell events; the last one is always a status with `final`, because clients wait for it."""
    task: v03.Task | None = None
    async for event in events:
        told = conversions.to_compat_stream_response(to_stream_response(event)).result
        task = None
        if isinstance(told, v03.Task):
            task = told
        elif isinstance(told, v03.TaskStatusUpdateEvent):
            told.final = is_last(told.status)
        yield told
    if task is not None and is_last(task.status):
        yield v03.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status, final=True)


def _unary(tell: Callable[[Any, Message], Any]) -> Callable[[Any, Message], Json]:
    def told(result: Any, request: Message) -> Json:
        made = tell(result, request)
        return [dumped(each) for each in made] if isinstance(made, list) else dumped(made)

    return told


def _each(tell: Callable[[Events], AsyncGenerator[Any, None]]) -> Callable[[Events], AsyncGenerator[Json, None]]:
    async def told(events: Events) -> AsyncGenerator[Json, None]:
        async for event in tell(events):
            yield dumped(event)

    return told


def _to_core_get_config(request: v03.GetTaskPushNotificationConfigRequest) -> pb.GetTaskPushNotificationConfigRequest:
    """Return the request for a webhook; the one that was set without an id has the task's."""
    core = conversions.to_core_get_task_push_notification_config_request(request)
    core.id = core.id or core.task_id
    return core


def _nothing(result: Any, request: Message) -> Json:
    return None


_ALL = (
    Operation(
        name="message/send",
        read=model_reader("message/send", v03.SendMessageRequest, conversions.to_core_send_message_request),
        handle=lambda on: on.on_message_send,
        tell=_unary(sent),
    ),
    Operation(
        name="message/stream",
        read=model_reader("message/stream", v03.SendStreamingMessageRequest, conversions.to_core_send_message_request),
        handle=lambda on: on.on_message_send_stream,
        tell_events=_each(tell_until_answered),
    ),
    Operation(
        name="tasks/get",
        read=model_reader("tasks/get", v03.GetTaskRequest, conversions.to_core_get_task_request),
        handle=lambda on: on.on_get_task,
        tell=_unary(found),
    ),
    Operation(
        name="tasks/cancel",
        read=model_reader("tasks/cancel", v03.CancelTaskRequest, conversions.to_core_cancel_task_request),
        handle=lambda on: on.on_cancel_task,
        tell=_unary(found),
    ),
    Operation(
        name="tasks/resubscribe",
        read=model_reader(
            "tasks/resubscribe", v03.TaskResubscriptionRequest, conversions.to_core_subscribe_to_task_request
        ),
        handle=lambda on: on.on_subscribe_to_task,
        tell_events=_each(tell_until_ended),
    ),
    Operation(
        name="tasks/pushNotificationConfig/set",
        read=model_reader(
            "tasks/pushNotificationConfig/set",
            v03.SetTaskPushNotificationConfigRequest,
            conversions.to_core_create_task_push_notification_config_request,
        ),
        handle=lambda on: on.on_create_task_push_notification_config,
        tell=_unary(config),
    ),
    Operation(
        name="tasks/pushNotificationConfig/get",
        read=model_reader(
            "tasks/pushNotificationConfig/get",
            v03.GetTaskPushNotificationConfigRequest,
            _to_core_get_config,
        ),
        handle=lambda on: on.on_get_task_push_notification_config,
        tell=_unary(config),
    ),
    Operation(
        name="tasks/pushNotificationConfig/list",
        read=model_reader(
            "tasks/pushNotificationConfig/list",
            v03.ListTaskPushNotificationConfigRequest,
            conversions.to_core_list_task_push_notification_config_request,
        ),
        handle=lambda on: on.on_list_task_push_notification_configs,
        tell=_unary(configs),
    ),
    Operation(
        name="tasks/pushNotificationConfig/delete",
        read=model_reader(
            "tasks/pushNotificationConfig/delete",
            v03.DeleteTaskPushNotificationConfigRequest,
            conversions.to_core_delete_task_push_notification_config_request,
        ),
        handle=lambda on: on.on_delete_task_push_notification_config,
        tell=_nothing,
    ),
    Operation(
        name="agent/getAuthenticatedExtendedCard",
        read=lambda params: pb.GetExtendedAgentCardRequest(),
        handle=lambda on: on.on_get_extended_agent_card,
        tell=_unary(card),
    ),
)
OPERATIONS_0_3: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}
