"""JSON-RPC, in both versions at one address: the names of the methods tell which one is meant."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    VersionNotSupportedError,
)
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp

from amoxi_py.domain.encoding import encode_json
from amoxi_py.surfaces.a2a.bodies import read_json, read_params
from amoxi_py.surfaces.a2a.compat import OPERATIONS_0_3
from amoxi_py.surfaces.a2a.context import V0_3, V1_0, asked_version, call_context, unsupported_version
from amoxi_py.surfaces.a2a.errors import a2a_error
from amoxi_py.surfaces.a2a.failures import rpc_error
from amoxi_py.surfaces.a2a.operations import OPERATIONS, Json
from amoxi_py.surfaces.a2a.performing import begin, perform
from amoxi_py.surfaces.a2a.serving import Asked

_MEDIA_TYPES = ("application/json", "application/a2a+json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A request in JSON-RPC 2.0."""

    id: str | int | None
    method: str
    params: Json


async def answer_rpc(asked: Asked) -> ASGIApp:
    """Return the answer to one request in JSON-RPC."""
    request_id, version = None, _version_of_errors(asked)
    try:
        if not is_json(asked.content_type):
            raise wrong_content_type()
        body = await read_json(asked)
        request_id = _id_of(body)
        envelope = _envelope(body, request_id)
        version = _version_of_method(envelope.method) or version
        return await _answer(asked, envelope)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001 - the surface's boundary
        return _json(rpc_error(request_id, a2a_error(error), version))


async def _answer(asked: Asked, envelope: Envelope) -> ASGIApp:
    version = asked_version(asked.request)
    operation = (OPERATIONS if version == V1_0 else OPERATIONS_0_3).get(envelope.method)
    if operation is None:
        if _version_of_method(envelope.method) is not None:
            raise unsupported_version(version)
        raise MethodNotFoundError("there is no such method")
    message = await read_params(asked, envelope.params, operation.read)
    context = call_context(asked.principal, version, asked.base)
    if operation.tell_events is None:
        result = await perform(operation, message, asked.serving.handler, context, asked.request.receive)
        return _json(_result(envelope, result))

    def tell(error: Exception) -> Json:
        return rpc_error(envelope.id, a2a_error(error), version)

    try:
        values = await begin(operation, message, asked.serving.handler, context)
    except Exception as error:  # noqa: BLE001 - the surface's boundary
        told = tell(error)
        if version == V1_0:
            return _json(told)
        values = _one(told)  # clients of 0.3 take nothing but events for an answer to this
        return asked.events(values, tell)
    return asked.events(_results(envelope, values), tell, names_errors=version == V1_0)


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is one of JSON."""
    return content_type.partition(";")[0].strip().lower() in _MEDIA_TYPES


def wrong_content_type() -> ContentTypeNotSupportedError:
    """Return the error for a body that says that it is no JSON."""
    return ContentTypeNotSupportedError("the body must be JSON: say 'Content-Type: application/json'")


def _version_of_errors(asked: Asked) -> str:
    """Return the version in which a caller reads that its request cannot be read."""
    try:
        return asked_version(asked.request)
    except VersionNotSupportedError:
        return V1_0


def _version_of_method(method: str) -> str | None:
    return V1_0 if method in OPERATIONS else V0_3 if method in OPERATIONS_0_3 else None


def _id_of(body: Json) -> str | int | None:
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, (str, int)) and not isinstance(found, bool) else None


def _envelope(body: Json, request_id: str | int | None) -> Envelope:
    if isinstance(body, list):
        raise InvalidRequestError("requests come one by one here, not in a list")
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        raise InvalidRequestError("a request is an object whose 'jsonrpc' is '2.0'")
    if body.get("id") != request_id or isinstance(body.get("id"), bool):
        raise InvalidRequestError("the 'id' must be a text or a whole number")
    method = body.get("method")
    if not isinstance(method, str) or not method:
        raise InvalidRequestError("the 'method' must be a text")
    params = body.get("params")
    if params is not None and not isinstance(params, (dict, list)):
        raise InvalidRequestError("the 'params' must be an object")
    if isinstance(params, list):
        raise InvalidParamsError("the params must be an object")
    return Envelope(id=request_id, method=method, params={} if params is None else params)


async def _results(envelope: Envelope, values: AsyncGenerator[Json, None]) -> AsyncGenerator[Json, None]:
    async with aclosing(values):
        async for value in values:
            yield _result(envelope, value)


async def _one(value: Json) -> AsyncGenerator[Json, None]:
    yield value


def _result(envelope: Envelope, result: Json) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": envelope.id, "result": result}


def _json(value: Json) -> Response:
    return Response(
        encode_json(value).encode("ascii"), media_type="application/json", headers={"cache-control": "no-store"}
    )
