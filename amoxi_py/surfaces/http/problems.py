"""From errors to answers: one table of statuses, one form of body."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from amoxi_py.errors import (
    AmoxiError,
    ArgumentsInvalid,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotAuthenticated,
    NotFound,
    NotReady,
    RequestError,
    StoreUnavailable,
    TooMany,
)
from amoxi_py.surfaces.http.authentication import SignInFailed
from amoxi_py.surfaces.problem import MEDIA_TYPE, RETRY_AFTER_OUTAGE_S, broken, left_early, problem, title_of

log = logging.getLogger("amoxi_py.http")

STATUSES: Mapping[type[AmoxiError], int] = {
    InvalidRequest: 422,
    ArgumentsInvalid: 422,
    NotAuthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooMany: 429,
    RequestError: 400,
    StoreUnavailable: 503,
}

_CODES = {
    400: "bad_request",
    401: "not_authenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "too_many",
    503: "unavailable",
}
_DETAILS = {404: "there is nothing at this address", 405: "this address does not take this method"}
_MOST_ERRORS = 20
_LONGEST_NAME = 100


def problem_of(error: Exception, request: Request) -> Response:
    """Return the answer to an error; one that nobody expected is logged, and its text is not told."""
    if isinstance(error, AmoxiError) and (status := _status(error)) is not None:
        return _of_ours(error, status)
    if isinstance(error, RequestValidationError):
        return problem(422, "invalid_request", "the request does not fit", errors=_fields(error.errors(), skip=1))
    if isinstance(error, HTTPException):
        code = _CODES.get(error.status_code, "error")
        detail = error.detail
        if detail == title_of(error.status_code):
            detail = _DETAILS.get(error.status_code, detail)
        return problem(error.status_code, code, str(detail), headers=error.headers)
    if isinstance(error, ClientDisconnect):  # nobody reads this answer
        return left_early()
    if isinstance(error, SignInFailed):  # it was logged where it came up
        return problem(500, "sign_in_failed", "the app's sign-in failed; it has been logged")
    log.error("%s %s failed", request.method, request.scope.get("path"), exc_info=error)
    return broken()


def invalid_body(error: ValidationError) -> InvalidRequest:
    """Return the error for a body that does not fit its model: the fields and why, without their values."""
    return InvalidRequest("the body does not fit", errors=_fields(error.errors(include_url=False, include_input=False)))


def _of_ours(error: AmoxiError, status: int) -> Response:
    headers: dict[str, str] = {}
    errors: Sequence[Mapping[str, Any]] = ()
    detail = str(error)
    if isinstance(error, InvalidRequest):
        errors = error.errors
    elif isinstance(error, ArgumentsInvalid):
        errors = [{"field": field, "message": reason} for field, reason in error.errors]
    elif isinstance(error, NotAuthenticated):
        headers["www-authenticate"] = "Bearer"
    elif isinstance(error, TooMany):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    elif isinstance(error, NotReady):
        headers["retry-after"] = str(RETRY_AFTER_OUTAGE_S)
    elif isinstance(error, StoreUnavailable):
        log.warning("the store cannot be used: %s", error)
        headers["retry-after"] = str(RETRY_AFTER_OUTAGE_S)
        detail = "the server cannot read or write its store now; what was accepted is safe"
    return problem(status, error.code, detail, errors=errors, headers=headers)


def _status(error: AmoxiError) -> int | None:
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), None)


def _fields(errors: Sequence[Any], skip: int = 0) -> tuple[dict[str, Any], ...]:
    """Return each field and what is wrong with it; `skip` leaves out where it stood (`query`, `header`)."""
    return tuple(
        {
            "field": ".".join(str(part)[:_LONGEST_NAME] for part in error["loc"][skip:]),
            "message": "unknown field" if error["type"] == "extra_forbidden" else error["msg"],
        }
        for error in errors[:_MOST_ERRORS]
    )


_SCHEMA = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string", "description": "Stable, for programs."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI tells of these problems."""
    return {
        status: {"description": title_of(status), "content": {MEDIA_TYPE: {"schema": _SCHEMA}}} for status in statuses
    }
