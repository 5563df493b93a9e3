"""What is read of a request beside its address: the body, the idempotency key, the cursor of a stream, ids.

A body is strict JSON in UTF-8, one object, no key twice. Texts are cleaned by the domain's one rule (NUL and
lone surrogates become U+FFFD).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from amoxi_py.domain.encoding import clean_json
from amoxi_py.domain.ids import is_child_run_id
from amoxi_py.errors import InvalidRequest, NotFound, ValueNotStorable
from amoxi_py.surfaces.http.problems import invalid_body
from amoxi_py.surfaces.request_bodies import read_at_most

B = TypeVar("B", bound=BaseModel)

RunId = Annotated[str, Path(description="The run's id.")]
CallId = Annotated[str, Path(description="The call's id.")]
ConversationId = Annotated[str, Path(description="The conversation's id.")]
Limit = Annotated[int, Query(ge=1, le=200, description="The most items to return.")]
Cursor = Annotated[str | None, Query(max_length=500, description="The `next_cursor` of the page before.")]
After = Annotated[
    int | None, Query(ge=0, description="Start after the event of this number; `Last-Event-ID` goes before it.")
]

_ID = re.compile(r"[a-z]{1,16}_[0-9a-z_]{1,64}")
_KEY = re.compile(rb"[\x21-\x7e]{1,255}")
_JSON_TYPE = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)
_LAST_EVENT_ID = re.compile(r"[0-9]{1,18}", re.ASCII)


async def read_body(request: Request, model: type[B], limit: int) -> B:
    """Return the body as a model.

    Raises:
        HTTPException: 413 for a body longer than `limit` bytes, 415 for one that does not say that it is JSON.
        InvalidRequest: it is no JSON object, or does not fit the model.
    """
    content_type = request.headers.get("content-type", "")
    if not _JSON_TYPE.fullmatch(content_type.partition(";")[0].strip()):
        raise HTTPException(415, "the body must be JSON: send it with Content-Type: application/json")
    body = await read_at_most(request, limit)
    if body is None:
        raise HTTPException(413, f"the body is longer than {limit} bytes")
    value = _parse(body)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_body(error) from None


def body_digest(body: BaseModel) -> str:
    """Return the same text for bodies that ask for the same, however they were written."""
    return hashlib.sha256(json.dumps(body.model_dump()).encode()).hexdigest()


def idempotency_key(request: Request) -> str | None:
    """Return the `Idempotency-Key`; raise `InvalidRequest` for one that is none."""
    values = [value for name, value in request.scope["headers"] if name == b"idempotency-key"]
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        message = "it must be one value of 1 to 255 visible ASCII characters"
        raise InvalidRequest(
            "the Idempotency-Key cannot be used",
            code="invalid_idempotency_key",
            errors=({"field": "Idempotency-Key", "message": message},),
        )
    return bytes(values[0]).decode("ascii")


def cursor_of_stream(request: Request, after: int | None = None) -> int | None:
    """Return after which event a stream starts: the `Last-Event-ID`, else `after`, else None for the start.

    A header that is no number of an event is one of another server's; it means the start.
    """
    header = request.headers.get("last-event-id")
    if header is not None:
        return int(header) if _LAST_EVENT_ID.fullmatch(header) else None
    return after


def wants_events(request: Request) -> bool:
    """Whether the client asked for an event stream as the answer."""
    ranges = ",".join(request.headers.getlist("accept")).split(",")
    return any(each.partition(";")[0].strip().lower() == "text/event-stream" for each in ranges)


def known_id(kind: str, id: str) -> str:
    """Return an id that can be one; raise `NotFound` for what never is, and for a run that another one asked for.

    Such a run is a part of its root's, whose routes take what a person has to do with it.
    """
    if not _ID.fullmatch(id) or (kind == "run" and is_child_run_id(id)):
        raise NotFound(kind, id)
    return id


def _parse(body: bytes) -> dict[str, Any]:
    try:
        value = clean_json(
            json.loads(
                body.decode("utf-8"),
                object_pairs_hook=_object,
                parse_constant=_no_number,
                parse_float=_finite,
            )
        )
    except UnicodeDecodeError:
        raise InvalidRequest("the body is no JSON: it is not in UTF-8", code="invalid_json") from None
    except RecursionError:
        raise InvalidRequest("the body is nested too deeply", code="invalid_json") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidRequest(f"the body is no JSON: {error.msg} at {place}", code="invalid_json") from None
    except (ValueError, ValueNotStorable) as error:
        raise InvalidRequest(f"the body is no JSON that can be used: {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be a JSON object", code="invalid_json")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has the same key twice")
    return value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number is too large")
    return value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")
