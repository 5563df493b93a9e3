"""The body of a request over HTTP, read as far as it may be long."""

from __future__ import annotations

from starlette.requests import Request


async def read_at_most(request: Request, limit: int) -> bytes | None:
    """Return the body, or None when it is longer than `limit` bytes; then it is not read to its end."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and (len(told) > 18 or int(told) > limit):
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)
