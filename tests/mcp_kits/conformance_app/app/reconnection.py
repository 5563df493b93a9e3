"""The kits' tool whose answer is cut off in the middle of the call, so that a client has to come back for the rest."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import FastAPI

from amoxi_py import ToolContext, configure, tool

_LONGER_THAN_UNMARKED_S = 0.5


@tool(read_only=True)
async def test_reconnection(ctx: ToolContext) -> str:
    """Take some time."""
    await asyncio.sleep(_LONGER_THAN_UNMARKED_S)
    return "The answer came after all."


@configure
def cut_answers_off(app: FastAPI) -> None:
    """Let the answers to calls of that tool end after the first mark, as when a connection breaks."""
    app.add_middleware(CutsOff)


class CutsOff:
    """Ends an answer early, and looks to the app like a client that has left."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        asked = await receive()
        if b'"test_reconnection"' not in asked.get("body", b""):
            given = [asked]
            await self._app(scope, lambda: _next(given, receive), send)
            return
        given, gone = [asked], asyncio.Event()

        async def receive_or_gone() -> Any:
            if given:
                return given.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send_until_marked(message: Any) -> None:
            if gone.is_set():
                return
            if b"retry:" in message.get("body", b""):
                gone.set()
                message = {**message, "more_body": False}
            await send(message)

        await self._app(scope, receive_or_gone, send_until_marked)


async def _next(given: list[Any], receive: Any) -> Any:
    return given.pop() if given else await receive()
