"""The answer that tells of one problem with a request over HTTP (RFC 9457, `application/problem+json`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from amoxi_py.domain.encoding import encode_json
from amoxi_py.errors import StoreUnavailable

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_OUTAGE_S = 5
CLIENT_LEFT = 499
"""The status of an answer that its client did not wait for."""


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer that tells of one problem; `errors` names the fields at fault."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title_of(status),
        "status": status,
        "detail": detail,
        "code": code,
    }
    if errors:
        body["errors"] = [dict(error) for error in errors]
    return Response(
        encode_json(body).encode(),
        status_code=status,
        headers={"cache-control": "no-store", **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def outage(error: StoreUnavailable) -> Response:
    """Return the answer while the store, and so the server, can take nothing."""
    detail = "the server cannot take requests now; ask again in a moment"
    return problem(503, error.code, detail, headers={"retry-after": str(RETRY_AFTER_OUTAGE_S)})


def broken() -> Response:
    """Return the answer when something of ours failed, which the log tells."""
    return problem(500, "internal_error", "the server failed; it has been logged")


def left_early() -> Response:
    """Return the answer to a client that left while it was sending, which is there for logs and middleware."""
    return problem(400, "client_left", "the client left before its request was read")


def title_of(status: int) -> str:
    """Return the phrase of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
