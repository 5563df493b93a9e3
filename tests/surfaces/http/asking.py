"""Somebody who asks an app on the event loop that it runs on, without sockets: most answers take under a millisecond.

What a server does to an address is done here too: the app gets the path with its escapes read once, and the raw one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

_IDS = re.compile(r"\b(run|conv|call|msg|file)_[0-9a-z_]{8,}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_LONGEST_S = 20.0

Compared = tuple[int, tuple[tuple[str, str], ...], str]


@dataclass(frozen=True, slots=True)
class Answer:
    """All of an answer; of a stream what was read of it."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: str

    def json(self) -> Any:
        """Return the body."""
        return json.loads(self.text)

    def header(self, name: str) -> str:
        """Return a header that is there."""
        return dict(self.headers)[name]


def compared(told: Answer, asked: tuple[str, ...]) -> Compared:
    """Return all of an answer, without what was asked for, and of something new without its id and times."""
    text, headers = told.text, told.headers
    for one in asked:
        for form in (one, one.upper(), one.replace("_", "%5F")):
            text = text.replace(form, "<asked>")
    if told.status < 300:
        headers = tuple((name, _IDS.sub("<id>", value)) for name, value in headers if name != "content-length")
        text = _TIME.sub("<time>", _IDS.sub("<id>", text))
    return told.status, headers, text


class Asker:
    """Asks one app, always with the same headers."""

    def __init__(self, app: Any, headers: Mapping[str, str], prefix: str = "") -> None:
        self.headers = dict(headers)
        self._app = app
        self._prefix = prefix

    async def ask(
        self, method: str, target: str, *, headers: Mapping[str, str] | None = None, body: Any = None, until: str = ""
    ) -> Answer:
        """Send a request; a stream of events is left as soon as `until` is in it.

        A header of the asker's own and one given here are both sent, as two.
        """
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        path, _, query = (self._prefix + target).partition("?")
        lines = [("host", "127.0.0.1"), *self.headers.items(), *(headers or {}).items()]
        if sent:
            lines += [("content-length", str(len(sent)))]
            lines += [] if isinstance(body, bytes) else [("content-type", "application/json")]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in lines],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 80),
            "state": {},
        }
        exchange = _Exchange(sent, until)
        async with asyncio.timeout(_LONGEST_S):
            await self._app(scope, exchange.receive, exchange.send)
        return Answer(exchange.status, tuple(exchange.headers), exchange.body.decode())


class _Exchange:
    """The two ends of one request."""

    def __init__(self, sent: bytes, until: str) -> None:
        self.status = 0
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self._sent: bytes | None = sent
        self._until = until.encode()
        self._leaves = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self._sent is not None:
            body, self._sent = self._sent, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            told = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
            self.headers = [(name, value) for name, value in told if name != "x-request-id"]  # another one each time
            return
        self.body += message.get("body", b"")
        if not message.get("more_body") or (self._until and self._until in self.body):
            self._leaves.set()
