"""Reading the stream of another model: it is closed when its reader ends, so that no request goes on unread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amoxi_py.ports.chat_model import Asked, ChatModel, ModelRequest, Reply, TextDelta


@asynccontextmanager
async def reading(model: ChatModel, request: ModelRequest) -> AsyncIterator[AsyncIterator[TextDelta | Reply | Asked]]:
    """Give the stream of a request, and close it at the end; the port promises an iterator, most are generators."""
    stream = model.stream(request)
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
