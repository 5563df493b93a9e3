"""What every answer has: an id of its request, a line in the log, its place in the count, and what guards browsers.

A request's id is the one that a proxy or a caller gave it, or a new one; each line of the log that is written in its
course has it. The line of the request itself tells no query, because queries hold secrets.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import MutableMapping

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amoxi_py.domain.ids import new_id
from amoxi_py.engine.log_facts import about_alone
from amoxi_py.surfaces.http.problems import problem_of
from amoxi_py.surfaces.http.settings import HttpSettings
from amoxi_py.surfaces.problem import CLIENT_LEFT

log = logging.getLogger("amoxi_py.access")

_ID = re.compile(rb"[A-Za-z0-9._:=+/-]{1,128}")
_LONGEST_PATH = 300
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_NO_SNIFFING = (b"x-content-type-options", b"nosniff")


class EveryAnswer:
    """Stands before the whole app; `responses` counts answers by status."""

    def __init__(self, app: ASGIApp, settings: HttpSettings, responses: MutableMapping[str, int]) -> None:
        self._app = app
        self._responses = responses
        self._quiet = {f"{settings.prefix}{path}" for path in ("/health/live", "/health/ready", "/metrics")}
        secure = (settings.public_url or "").startswith("https://")
        self._guards = (_NO_SNIFFING, _HSTS) if secure else (_NO_SNIFFING,)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        request_id = _given_id(scope) or new_id("req")
        status = 0

        async def send_on(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                names = {name for name, _ in headers}
                headers += [guard for guard in self._guards if guard[0] not in names]
                message = {**message, "headers": headers}
            await send(message)

        with about_alone(request_id=request_id):  # a server may begin a request in the course of the one before
            try:
                await self._app(scope, receive, send_on)
            except Exception as error:  # here and not by what stands before this, where nothing of the request is known
                answer = problem_of(error, Request(scope))
                if not status:
                    await answer(scope, receive, send_on)
                raise
            finally:
                self._tell(scope, status or CLIENT_LEFT, time.perf_counter() - begun)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        told = str(status)
        self._responses[told] = self._responses.get(told, 0) + 1
        level = logging.DEBUG if scope["path"] in self._quiet else logging.INFO
        if not log.isEnabledFor(level):
            return
        method, path, took = scope["method"], _path(scope), round(1000 * seconds, 1)
        facts = {"method": method, "path": path, "status": status, "duration_ms": took}
        log.log(level, "%s %s %d in %.1f ms", method, path, status, took, extra={"amoxi_facts": facts})


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            return str(value, "ascii") if _ID.fullmatch(value) else None
    return None


def _path(scope: Scope) -> str:
    """Return the path as it was sent, in which no character can break a line."""
    raw = scope.get("raw_path")
    path = raw.partition(b"?")[0].decode("ascii", "replace") if isinstance(raw, bytes) else repr(scope["path"])
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}..."
