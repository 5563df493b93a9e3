"""REST in version 1.0: which path is which operation. The paths of 0.3 are in a module of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from a2a.types import a2a_pb2 as pb
from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.errors import A2AError, InvalidParamsError
from a2a.utils.proto_utils import parse_params
from google.protobuf.json_format import ParseError
from google.protobuf.message import Message
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.surfaces.a2a.bodies import read_json, read_params
from amoxi_py.surfaces.a2a.context import V1_0, asked_version, call_context, unsupported_version
from amoxi_py.surfaces.a2a.errors import TooManyNow, a2a_error, is_store_away
from amoxi_py.surfaces.a2a.failures import rest_error
from amoxi_py.surfaces.a2a.operations import OPERATIONS, Json, Operation, misfit, reader
from amoxi_py.surfaces.a2a.performing import begin, perform
from amoxi_py.surfaces.a2a.rpc import is_json, wrong_content_type
from amoxi_py.surfaces.a2a.serving import Asked
from amoxi_py.surfaces.problem import RETRY_AFTER_OUTAGE_S

Read = Callable[[Mapping[str, str], QueryParams, Json], Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestRoute:
    """One method at one path.

    Attributes:
        method: Of HTTP.
        path: Behind the endpoint's, without the slash between them; its groups are ids.
        operation: What is asked for.
        read: From the path's ids, the query and the body's JSON to the message.
        version: Of the protocol.
        media_type: Of the answer.
    """

    method: str
    path: re.Pattern[str]
    operation: Operation
    read: Read
    version: str = V1_0
    media_type: str = A2A_JSON_MEDIA_TYPE


def rest_route(method: str, path: str, operation: Operation, read: Read) -> RestRoute:
    """Return a route of 1.0; `{id}` in the path is one part of it, without colons."""
    return RestRoute(method=method, path=path_pattern(path), operation=operation, read=read)


def path_pattern(path: str) -> re.Pattern[str]:
    """Return what matches a path in which `{name}` stands for an id."""
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/:]+)", re.escape(path)))


async def answer_rest(asked: Asked, route: RestRoute, ids: Mapping[str, str]) -> ASGIApp:
    """Return the answer to one request in REST."""
    try:
        return await _answer(asked, route, ids)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001 - the surface's boundary
        return _refused(a2a_error(error), route.version)


async def _answer(asked: Asked, route: RestRoute, ids: Mapping[str, str]) -> ASGIApp:
    operation = route.operation
    body: Json = {}
    if asked.body:
        if not is_json(asked.content_type):
            raise wrong_content_type()
        body = await read_json(asked)
    version = asked_version(asked.request)
    if version != route.version:
        raise unsupported_version(version)
    known, query = {name: clean_text(each) for name, each in ids.items()}, asked.request.query_params
    message = await read_params(asked, body, lambda params: route.read(known, query, params))
    context = call_context(asked.principal, version, asked.base)
    if operation.tell_events is None:
        result = await perform(operation, message, asked.serving.handler, context, asked.request.receive)
        return _json({} if result is None else result, 200, route.media_type)
    values = await begin(operation, message, asked.serving.handler, context)
    return asked.events(values, lambda error: rest_error(a2a_error(error), version)[1], names_errors=True)


def _refused(error: A2AError, version: str) -> Response:
    status, body = rest_error(error, version)
    answer = _json(body, status, "application/json")
    if is_store_away(error):
        answer.headers["retry-after"] = str(RETRY_AFTER_OUTAGE_S)
    if isinstance(error, TooManyNow):
        answer.headers["retry-after"] = str(error.retry_after)
    return answer


def _json(value: Json, status: int, media_type: str) -> Response:
    content = encode_json(value).encode("ascii")
    return Response(content, status, media_type=media_type, headers={"cache-control": "no-store"})


def _by_body(kind: Callable[[], Message], **fields: str) -> Read:
    """Return what reads a body; `fields` says which ids of the path go into which fields."""
    read_message = reader(kind)

    def read(ids: Mapping[str, str], query: QueryParams, body: Json) -> Message:
        return _with_ids(read_message(body), ids, fields)

    return read


def _by_query(kind: Callable[[], Message], **fields: str) -> Read:
    """Return what reads a query; `fields` says which ids of the path go into which fields."""

    def read(ids: Mapping[str, str], query: QueryParams, body: Json) -> Message:
        message = kind()
        try:
            parse_params(QueryParams([(name, clean_text(value)) for name, value in query.multi_items()]), message)
        except ParseError as error:
            raise misfit(error) from None
        except (ValueError, TypeError):
            raise InvalidParamsError from None
        return _with_ids(message, ids, fields)

    return read


def _with_ids(message: Message, ids: Mapping[str, str], fields: Mapping[str, str]) -> Message:
    for field, name in fields.items():
        setattr(message, field, ids[name])
    return message


_GET, _POST, _DELETE = "GET", "POST", "DELETE"
_SUBSCRIBE = _by_query(pb.SubscribeToTaskRequest, id="id")
_DELETED = replace(OPERATIONS["DeleteTaskPushNotificationConfig"], tell=lambda result, request: {})
_CONFIGS = "tasks/{id}/pushNotificationConfigs"
_CONFIG = f"{_CONFIGS}/{{config}}"

ROUTES = tuple(
    rest_route(method, path, OPERATIONS[operation] if isinstance(operation, str) else operation, read)
    for method, path, operation, read in (
        (_POST, "message:send", "SendMessage", _by_body(pb.SendMessageRequest)),
        (_POST, "message:stream", "SendStreamingMessage", _by_body(pb.SendMessageRequest)),
        (_GET, "tasks", "ListTasks", _by_query(pb.ListTasksRequest)),
        (_GET, "tasks/{id}", "GetTask", _by_query(pb.GetTaskRequest, id="id")),
        (_POST, "tasks/{id}:cancel", "CancelTask", _by_body(pb.CancelTaskRequest, id="id")),
        (_GET, "tasks/{id}:subscribe", "SubscribeToTask", _SUBSCRIBE),
        (_POST, "tasks/{id}:subscribe", "SubscribeToTask", _SUBSCRIBE),
        (
            _POST,
            _CONFIGS,
            "CreateTaskPushNotificationConfig",
            _by_body(pb.TaskPushNotificationConfig, task_id="id"),
        ),
        (
            _GET,
            _CONFIGS,
            "ListTaskPushNotificationConfigs",
            _by_query(pb.ListTaskPushNotificationConfigsRequest, task_id="id"),
        ),
        (
            _GET,
            _CONFIG,
            "GetTaskPushNotificationConfig",
            _by_query(pb.GetTaskPushNotificationConfigRequest, task_id="id", id="config"),
        ),
        (_DELETE, _CONFIG, _DELETED, _by_query(pb.DeleteTaskPushNotificationConfigRequest, task_id="id", id="config")),
        (_GET, "extendedAgentCard", "GetExtendedAgentCard", _by_query(pb.GetExtendedAgentCardRequest)),
    )
)
