"""Files on their way out over HTTP: bytes that somebody chose, which no browser may take for a page of this server."""

from __future__ import annotations

import logging
from typing import Literal
from urllib.parse import quote

from starlette.responses import StreamingResponse
from starlette.types import Send

from amoxi_py.domain.file import File
from amoxi_py.errors import AmoxiError

log = logging.getLogger("amoxi_py.http")

DOWNLOAD_HEADERS = {
    "cache-control": "private, no-cache",  # kept by the reader's own browser, and asked for each time
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "x-content-type-options": "nosniff",
}


class Download(StreamingResponse):
    """Bytes that may be deleted while they are sent: their reader then sees the connection break, and no end."""

    async def stream_response(self, send: Send) -> None:
        """Send them piece by piece."""
        try:
            await super().stream_response(send)
        except AmoxiError as error:
            log.warning("a download broke off: %s", error)


def disposition(file: File, kind: Literal["inline", "attachment"]) -> str:
    """Return how a browser takes a file (RFC 6266), with its name for every letter and for old clients."""
    plain = "".join(letter if letter.isascii() and letter not in '"\\%' else "_" for letter in file.name)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(file.name, safe='')}"
