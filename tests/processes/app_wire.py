"""A connection to an app in this process, for tests that must see what an ASGI transport hides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any


class Exchange:
    """One request to an app: its answer comes piece by piece, and closing it is the client's leave.

    It is the stream of a response of httpx, or of httpx2: what it has of a request both have.
    """

    def __init__(self, app: Any, request: Any, body: bytes) -> None:
        url = request.url
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "server": (url.host, url.port or 80),
            "client": ("127.0.0.1", 5000),
            "root_path": "",
        }
        self._body: list[bytes] = [body]
        self._started: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._task = asyncio.create_task(app(scope, self._receive, self._send))

    async def start(self) -> tuple[int, Any]:
        try:
            await asyncio.wait({self._task, self._started}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._gone.set()
            raise
        if not self._started.done():
            self._task.result()
            raise AssertionError("the app did not answer")
        return self._started.result()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def aclose(self) -> None:
        self._gone.set()
        await asyncio.wait({self._task})

    async def _receive(self) -> dict[str, Any]:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._started.set_result((message["status"], message["headers"]))
            return
        if message.get("body"):
            self._pieces.put_nowait(message["body"])
        if not message.get("more_body"):
            self._pieces.put_nowait(None)
