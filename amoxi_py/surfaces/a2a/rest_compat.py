"""REST in version 0.3, whose JSON is that of its own protobuf messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb03
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as v03
from a2a.compat.v0_3.proto_utils import FromProto, ToProto
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from starlette.datastructures import QueryParams

from amoxi_py.surfaces.a2a import compat
from amoxi_py.surfaces.a2a.context import V0_3
from amoxi_py.surfaces.a2a.operations import Events, Json, Operation, reader
from amoxi_py.surfaces.a2a.rest import Read, RestRoute, path_pattern

_JSON = "application/json"


def _by_body(kind: Callable[[], Message], make: Callable[[Any, str], Any], to_core: Callable[[Any], Message]) -> Read:
    """Return what reads a body; `make` gets its message and the id in the path."""
    read_message = reader(kind)

    def read(ids: Mapping[str, str], query: QueryParams, body: Json) -> Message:
        told = read_message(body)
        return compat.to_core_message(lambda: make(told, ids.get("id", "")), to_core)

    return read


def _of_task(make: Callable[..., Message], **fields: str) -> Read:
    """Return what reads no more than ids; `fields` says which go where."""

    def read(ids: Mapping[str, str], query: QueryParams, body: Json) -> Message:
        return make(**{field: ids[name] for field, name in fields.items()})

    return read


def _send(told: Any, task_id: str) -> v03.SendMessageRequest:
    return v03.SendMessageRequest(id="", params=FromProto.message_send_params(told))


def _set_config(told: Any, task_id: str) -> v03.SetTaskPushNotificationConfigRequest:
    told.parent = f"tasks/{task_id}"  # it is in the path, and clients leave it out of the body
    params = FromProto.task_push_notification_config_request(told)
    return v03.SetTaskPushNotificationConfigRequest(id="", params=params)


def _get(ids: Mapping[str, str], query: QueryParams, body: Json) -> Message:
    def make() -> v03.GetTaskRequest:
        length = query.get("historyLength") or None
        params = v03.TaskQueryParams(id=ids["id"], history_length=None if length is None else int(length))
        return v03.GetTaskRequest(id="", params=params)

    return compat.to_core_message(make, conversions.to_core_get_task_request)


def _as_proto(tell: Callable[[Any, Message], Any], to_proto: Callable[[Any], Message]) -> Callable[..., Json]:
    return lambda result, request: MessageToDict(to_proto(tell(result, request)))


def _configs(result: Any, request: Message) -> Json:
    told = [ToProto.task_push_notification_config(each) for each in compat.configs(result, request)]
    return MessageToDict(pb03.ListTaskPushNotificationConfigResponse(configs=told))


def _streamed(tell: Callable[[Events], AsyncGenerator[Any, None]]) -> Callable[[Events], AsyncGenerator[Json, None]]:
    async def told(events: Events) -> AsyncGenerator[Json, None]:
        async for event in tell(events):
            yield MessageToDict(ToProto.stream_response(event))

    return told


def _route(
    method: str,
    path: str,
    name: str,
    read: Read,
    handle: Callable[[RequestHandler], Callable[..., Any]],
    tell: Callable[[Any, Message], Json] | None = None,
    tell_events: Callable[[Events], AsyncGenerator[Json, None]] | None = None,
) -> RestRoute:
    operation = Operation(
        name=name,
        read=lambda params: read({}, QueryParams(), params),
        handle=handle,
        tell=tell or _nothing,
        tell_events=tell_events,
    )
    return RestRoute(
        method=method, path=path_pattern(path), operation=operation, read=read, version=V0_3, media_type=_JSON
    )


def _nothing(result: Any, request: Message) -> Json:
    return {}


_SENT = _by_body(pb03.SendMessageRequest, _send, conversions.to_core_send_message_request)
_TOLD_TASK = _as_proto(compat.found, ToProto.task)
_TOLD_CONFIG = _as_proto(compat.config, ToProto.task_push_notification_config)
_SUBSCRIBED = _of_task(pb.SubscribeToTaskRequest, id="id")
_CONFIGS = "v1/tasks/{id}/pushNotificationConfigs"

ROUTES_0_3 = (
    _route(
        "POST",
        "v1/message:send",
        "message/send",
        _SENT,
        lambda on: on.on_message_send,
        _as_proto(compat.sent, ToProto.task_or_message),
    ),
    _route(
        "POST",
        "v1/message:stream",
        "message/stream",
        _SENT,
        lambda on: on.on_message_send_stream,
        tell_events=_streamed(compat.tell_until_answered),
    ),
    _route("GET", "v1/tasks/{id}", "tasks/get", _get, lambda on: on.on_get_task, _TOLD_TASK),
    _route(
        "POST",
        "v1/tasks/{id}:cancel",
        "tasks/cancel",
        _of_task(pb.CancelTaskRequest, id="id"),
        lambda on: on.on_cancel_task,
        _TOLD_TASK,
    ),
    *(
        _route(
            method,
            "v1/tasks/{id}:subscribe",
            "tasks/resubscribe",
            _SUBSCRIBED,
            lambda on: on.on_subscribe_to_task,
            tell_events=_streamed(compat.tell_until_ended),
        )
        for method in ("GET", "POST")
    ),
    _route(
        "POST",
        _CONFIGS,
        "tasks/pushNotificationConfig/set",
        _by_body(
            pb03.CreateTaskPushNotificationConfigRequest,
            _set_config,
            conversions.to_core_create_task_push_notification_config_request,
        ),
        lambda on: on.on_create_task_push_notification_config,
        _TOLD_CONFIG,
    ),
    _route(
        "GET",
        _CONFIGS,
        "tasks/pushNotificationConfig/list",
        _of_task(pb.ListTaskPushNotificationConfigsRequest, task_id="id"),
        lambda on: on.on_list_task_push_notification_configs,
        _configs,
    ),
    _route(
        "GET",
        f"{_CONFIGS}/{{config}}",
        "tasks/pushNotificationConfig/get",
        _of_task(pb.GetTaskPushNotificationConfigRequest, task_id="id", id="config"),
        lambda on: on.on_get_task_push_notification_config,
        _TOLD_CONFIG,
    ),
    _route(
        "DELETE",
        f"{_CONFIGS}/{{config}}",
        "tasks/pushNotificationConfig/delete",
        _of_task(pb.DeleteTaskPushNotificationConfigRequest, task_id="id", id="config"),
        lambda on: on.on_delete_task_push_notification_config,
    ),
    _route(
        "GET",
        "v1/card",
        "agent/getAuthenticatedExtendedCard",
        _of_task(pb.GetExtendedAgentCardRequest),
        lambda on: on.on_get_extended_agent_card,
        lambda result, request: compat.dumped(compat.card(result, request)),
    ),
)
