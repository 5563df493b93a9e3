"""The address that MCP clients speak to: who asks, what is taken, and what other servers than the SDK's need not do.

There are no sessions. An id is given out where a client of the older versions expects one, so that it can name its
requests with it, and is stored nowhere: any server takes any. What was cut off of an answer, such a client asks any
server for, with GET and the id of the last event that it has.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from mcp.server.streamable_http import check_accept_headers
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.log_facts import about
from amoxi_py.errors import StoreUnavailable
from amoxi_py.surfaces.mcp.answer_streams import Answer
from amoxi_py.surfaces.mcp.bookmarks import Bookmark
from amoxi_py.surfaces.mcp.call_streams import STREAM, CallStream
from amoxi_py.surfaces.mcp.flights import request_key
from amoxi_py.surfaces.mcp.requests import PRINCIPAL, SESSION_HEADER
from amoxi_py.surfaces.mcp.serving import Serving, SignIn
from amoxi_py.surfaces.mcp.settings import McpSettings
from amoxi_py.surfaces.origins import is_foreign
from amoxi_py.surfaces.problem import broken, left_early, outage, problem
from amoxi_py.surfaces.request_bodies import read_at_most
from amoxi_py.surfaces.tokens import authorizations, bearer_token, caller_of_token

log = logging.getLogger("amoxi_py.mcp")

_METHODS = "POST"
_VERSION_HEADER = "mcp-protocol-version"
_LAST_EVENT_ID = "last-event-id"
_BOTH = b"application/json, text/event-stream"


class Endpoint:
    """One address of the door; without `oauth` it knows callers' tokens alone, and says nothing of OAuth."""

    def __init__(self, settings: McpSettings, serving: Callable[[], Serving], oauth: SignIn | None = None) -> None:
        self._settings = settings
        self._serving = serving
        self._oauth = oauth
        self._principals = {name: Principal(id=f"mcp:{name}", name=name, channel="mcp") for name in settings.callers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        request = Request(scope, receive)
        try:
            serving = self._serving()
            answer = await self._refusal(request)
            body = b"" if answer is not None else await read_at_most(request, self._settings.max_body)
            taken_up = None
            if answer is None and request.method == "GET":
                taken_up = serving.bookmarks.find(request.headers[_LAST_EVENT_ID], request.scope[PRINCIPAL])
                answer = None if taken_up is not None else _unknown_stream()
        except ClientDisconnect:  # nobody reads this answer
            answer = left_early()
        except StoreUnavailable as error:
            log.warning("a request cannot be answered now: %s", error)
            answer = outage(error)
        except Exception:  # the surface's boundary
            log.exception("%s %s failed", request.method, scope["path"])
            answer = broken()
        if answer is None and body is None:
            answer = problem(413, "body_too_large", f"the body is longer than {self._settings.max_body} bytes")
        if answer is not None:
            await answer(scope, receive, send)
            return
        assert body is not None
        if taken_up is not None:
            await self._go_on(serving, request, taken_up, send)
        else:
            await self._serve(serving, request, body, send)

    async def _refusal(self, request: Request) -> Response | None:
        """Return the answer to all but a client's message; of that, find out who sends it."""
        if request.method not in ("POST", "GET", "HEAD", "DELETE"):
            return _not_taken()
        origin = request.headers.get("origin")
        known = (self._settings.public_url, *self._settings.cors_origins)
        if origin is not None and is_foreign(request, origin, known):
            return problem(403, "foreign_origin", "a page of another origin may not use this server's tools")
        principal = await self._identify(request)
        if principal is None:
            return self._not_authenticated(request)
        if request.method != "POST" and not _goes_on(request):
            return _not_taken()
        request.scope[PRINCIPAL] = principal
        about(principal=principal.id)
        return None

    async def _identify(self, request: Request) -> Principal | None:
        token = bearer_token(authorizations(request.scope))
        if token is None:
            return None
        name = caller_of_token(token, self._settings.callers)
        if name is not None:
            return self._principals[name]
        if self._oauth is None or not token.isascii():
            return None
        return await self._oauth.verify(token.decode("ascii"), request.scope)

    def _not_authenticated(self, request: Request) -> Response:
        detail = "send a caller's token: 'Authorization: Bearer <token>'"
        challenge = "Bearer"
        if self._oauth is not None:
            challenge = self._oauth.challenge("invalid_token" if authorizations(request.scope) else None, request.scope)
        return problem(401, "not_authenticated", detail, headers={"www-authenticate": challenge})

    async def _serve(self, serving: Serving, request: Request, body: bytes, send: Send) -> None:
        legacy = _is_legacy(request)
        if legacy and b"notifications/cancelled" in body:
            await _withdraw(serving, request, body)
        if legacy and b'"initialize"' in body:
            send = _with_session(send)
        accepts_json, accepts_events = check_accept_headers(request)
        scope = request.scope
        if not (accepts_json and accepts_events):
            scope = {**scope, "headers": [*_others(scope["headers"], b"accept"), (b"accept", _BOTH)]}
        takes_events = accepts_events or "accept" not in request.headers
        answer = Answer(request.receive, send, takes_events=takes_events, always_events=legacy and takes_events)
        if legacy and takes_events and b'"tools/call"' in body:
            scope = self._with_stream(serving, request, scope, answer)
        await answer.make(serving.app, scope, body)

    async def _go_on(self, serving: Serving, request: Request, taken_up: Bookmark, send: Send) -> None:
        """Send the rest of an answer: what the same call answers when it is made once more, for the run that it has."""
        kept = _others(request.scope["headers"], b"accept", b"content-type", b"content-length")
        headers = [*kept, (b"accept", _BOTH), (b"content-type", b"application/json")]
        scope = {**request.scope, "method": "POST", "headers": headers}
        answer = Answer(request.receive, send, takes_events=True, always_events=True)
        await answer.make(serving.app, self._with_stream(serving, request, scope, answer, taken_up), taken_up.call())

    def _with_stream(
        self, serving: Serving, request: Request, scope: Scope, answer: Answer, taken_up: Bookmark | None = None
    ) -> Scope:
        version = request.headers.get(_VERSION_HEADER)
        stream = CallStream(answer.tell, serving.bookmarks, version, serving.retry_after, taken_up)
        return {**scope, STREAM: stream}


def _is_legacy(request: Request) -> bool:
    version = request.headers.get(_VERSION_HEADER)
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _goes_on(request: Request) -> bool:
    """Whether a request is for the rest of an answer that was cut off."""
    if request.method != "GET" or _LAST_EVENT_ID not in request.headers or not _is_legacy(request):
        return False
    return "accept" not in request.headers or check_accept_headers(request)[1]


async def _withdraw(serving: Serving, request: Request, body: bytes) -> None:
    """End the request that a notification names; the SDK's server, which forgets requests, does not know of it."""
    try:
        message: Any = json.loads(body)
        if message["method"] != "notifications/cancelled":
            return
        named = message["params"]["requestId"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return
    if not isinstance(named, (str, int)):
        return
    principal: Principal = request.scope[PRINCIPAL]
    key = request_key(principal, request.headers.get(SESSION_HEADER), named)
    if key is not None:
        await serving.answering.withdraw(key, principal)


def _with_session(send: Send) -> Send:
    async def with_session(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            name = (SESSION_HEADER.encode(), secrets.token_hex(16).encode())
            message = {**message, "headers": [*message.get("headers", ()), name]}
        await send(message)

    return with_session


def _others(headers: Iterable[tuple[bytes, bytes]], *names: bytes) -> list[tuple[bytes, bytes]]:
    return [header for header in headers if header[0] not in names]


def _not_taken() -> Response:
    detail = "this address takes POST; nothing is sent that was not asked for, and no session is there to be ended"
    return problem(405, "method_not_allowed", detail, headers={"allow": _METHODS})


def _unknown_stream() -> Response:
    return problem(404, "not_found", "no answer that was cut off has an event of this id, or it is too old")
