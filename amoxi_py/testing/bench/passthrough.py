"""The least that a server in Python can do: it forwards the provider's stream as it comes, and stores nothing.

Starlette, uvicorn and aiohttp, which is also the transport that our clients of providers use. It is started by
`amoxi bench --peer passthrough`: at `PORT`, with `WORKERS` processes, for the provider at `OPENAI_BASE_URL`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

_BACKLOG = 2048


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[dict[str, Any]]:
    import aiohttp  # it comes with the extras of the providers

    no_limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=no_limits, timeout=aiohttp.ClientTimeout(total=None)) as session:
        yield {"session": session}


async def _chat(request: Request) -> StreamingResponse:
    message = (await request.json())["message"]
    asked = {"model": "bench", "stream": True, "messages": [{"role": "user", "content": message}]}

    async def forward() -> AsyncIterator[bytes]:
        url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
        async with request.state.session.post(url, json=asked) as answer:
            async for piece in answer.content.iter_any():
                yield piece

    return StreamingResponse(forward(), media_type="text/event-stream")


app = Starlette(routes=[Route("/chat", _chat, methods=["POST"])], lifespan=_lifespan)


if __name__ == "__main__":
    uvicorn.run(
        "amoxi_py.testing.bench.passthrough:app",
        host="127.0.0.1",
        port=int(os.environ["PORT"]),
        workers=int(os.environ["WORKERS"]),
        access_log=False,
        log_level="warning",
        backlog=_BACKLOG,
    )
