"""Where a client can go on with an answer that was cut off: events of its stream that name the call (until 2025-11-25).

What an event id says is in it, sealed with a key that all servers of the app have. So nothing is stored for it, and any
server goes on: it waits for the run of the call, and sends what is left to be said. An id is good for whoever it was
given to, and for a day.
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.contents import RUN_ID

SEALING_KEY = "mcp-bookmarks"
"""The name of the key among the store's secrets."""

_GOOD_FOR_S = 86_400.0
_LONGEST_ID = 1024
_SEAL_BYTES = 16


class Bookmark(Struct, frozen=True, kw_only=True, array_like=True):
    """What an event id says of the call in whose answer it is.

    Attributes:
        run_id: The run that the call waits for.
        started: Whether the call has started it.
        tool: Its name.
        request_id: What the client calls the request.
        progress_token: What it calls the progress of it, if it wants to hear of that.
        at: When the id was given out.
        waited: How long the client had waited by then, in seconds.
        told: No message of progress had a higher number by then.
    """

    run_id: str
    started: bool
    tool: str
    request_id: str | int
    progress_token: str | int | None
    at: float
    waited: float
    told: int

    def call(self) -> bytes:
        """Return the message that asks for the rest of the answer."""
        meta: dict[str, Any] = {RUN_ID: self.run_id}
        if self.progress_token is not None:
            meta["progressToken"] = self.progress_token
        params = {"name": self.tool, "arguments": {}, "_meta": meta}
        message = {"jsonrpc": "2.0", "id": self.request_id, "method": "tools/call", "params": params}
        return encode_json(message).encode()


class Bookmarks:
    """Gives out event ids, and reads them."""

    def __init__(self, key: str, now: Callable[[], float]) -> None:
        self.now = now
        self._key = key.encode()

    def id_of(self, bookmark: Bookmark, principal: Principal) -> str | None:
        """Return the event id for this caller; None when it would be too long for a header."""
        content = encode_json(astuple(bookmark)).encode()
        told = base64.urlsafe_b64encode(self._seal(content, principal) + content).decode().rstrip("=")
        return told if len(told) <= _LONGEST_ID else None

    def find(self, event_id: str, principal: Principal) -> Bookmark | None:
        """Return what an event id says, as of now; None when it is none, too old, or was given to somebody else."""
        now = self.now()
        if len(event_id) > _LONGEST_ID:
            return None
        try:
            told = base64.b64decode(event_id + "=" * (-len(event_id) % 4), altchars=b"-_", validate=True)
        except (ValueError, binascii.Error):
            return None
        seal, content = told[:_SEAL_BYTES], told[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(content, principal)):
            return None
        try:
            bookmark = msgspec.convert(decode_json(content.decode()), Bookmark)
        except msgspec.ValidationError:  # of another version of this server
            return None
        ago = max(now - bookmark.at, 0.0)
        return replace(bookmark, at=now, waited=bookmark.waited + ago) if ago <= _GOOD_FOR_S else None

    def _seal(self, content: bytes, principal: Principal) -> bytes:
        return hmac.digest(self._key, encode_json(principal.owner_key).encode() + content, "sha256")[:_SEAL_BYTES]
