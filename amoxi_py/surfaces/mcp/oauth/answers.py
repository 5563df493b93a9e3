"""How the endpoints of OAuth read forms and answer: JSON for programs, and the boundary where errors become answers."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from amoxi_py.domain.encoding import encode_json
from amoxi_py.errors import StoreUnavailable, TooMany
from amoxi_py.surfaces.request_bodies import read_at_most

log = logging.getLogger("amoxi_py.mcp")

Endpoint = Callable[[Request], Awaitable[Response]]

FOR_ALL_PAGES: Mapping[str, str] = {"access-control-allow-origin": "*"}
"""No answer of these endpoints hangs on a cookie, so any page may read it."""

_LARGEST_BODY = 64 * 1024
_MOST_FIELDS = 50
_LONGEST_VALUE = 8192
_RETRY_AFTER_S = 5


class OAuthError(Exception):
    """What a client did wrong, in the words of the standards; `description` is told to the client."""

    def __init__(
        self, code: str, description: str, *, status: int = 400, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.status = status
        self.headers = headers or {}


def json_answer(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON, which nobody stores unless `headers` say otherwise."""
    told = {"cache-control": "no-store", **FOR_ALL_PAGES, **(headers or {})}
    return Response(encode_json(body).encode(), status_code=status, headers=told, media_type="application/json")


def for_programs(endpoint: Endpoint) -> Endpoint:
    """Return the endpoint with every error answered as JSON."""

    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(
                status_code=204,
                headers={
                    **FOR_ALL_PAGES,
                    "access-control-allow-methods": "GET, POST, OPTIONS",
                    "access-control-allow-headers": "Authorization, Content-Type, MCP-Protocol-Version",
                    "access-control-max-age": "86400",
                },
            )
        try:
            return await endpoint(request)
        except OAuthError as error:
            body = {"error": error.code, "error_description": error.description}
            return json_answer(error.status, body, error.headers)
        except TooMany as error:
            body = {"error": "temporarily_unavailable", "error_description": str(error)}
            return json_answer(429, body, {"retry-after": str(max(1, round(error.retry_after)))})
        except StoreUnavailable:
            body = {"error": "temporarily_unavailable", "error_description": "the server's store is away for a moment"}
            return json_answer(503, body, {"retry-after": str(_RETRY_AFTER_S)})
        except ClientDisconnect:
            return json_answer(400, {"error": "invalid_request"})
        except Exception:  # the surface's boundary
            log.exception("%s %s failed", request.method, request.scope.get("path"))
            return json_answer(500, {"error": "server_error", "error_description": "it has been logged"})

    return answer


def json_object(text: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a stranger sent, or None when it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


async def read_body(request: Request, largest: int = _LARGEST_BODY) -> bytes:
    """Return the body; raise `OAuthError` for one that is too large."""
    body = await read_at_most(request, largest)
    if body is None:
        raise OAuthError("invalid_request", "the body is too large", status=413)
    return body


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise OAuthError("invalid_request", "send a body of the type application/x-www-form-urlencoded")
    return parse_fields(await read_body(request))


def parse_fields(text: bytes) -> dict[str, str]:
    """Return the fields of a form or a query; each may be there once, but `resource`, whose values then agree.

    What is empty counts as left out (RFC 6749, section 3.1).
    """
    try:
        pairs = parse_qsl(text.decode("ascii"), max_num_fields=_MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise OAuthError("invalid_request", "the parameters cannot be read") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        if len(value) > _LONGEST_VALUE or "\x00" in value:
            raise OAuthError("invalid_request", "a parameter is too long, or holds a character that it may not")
        if name in fields and (name != "resource" or fields[name] != value):
            code = "invalid_target" if name == "resource" else "invalid_request"
            raise OAuthError(code, "a parameter is there more than once")
        fields[name] = value
    return fields
