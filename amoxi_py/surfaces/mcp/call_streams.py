"""What the answer to a call of an older client holds beside the result: a mark from where the client can go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mcp_types.version import is_version_at_least

from amoxi_py.domain.principal import Principal
from amoxi_py.surfaces.mcp.bookmarks import Bookmark, Bookmarks

STREAM = "amoxi.mcp.stream"
"""Where it is in the scope of a request."""

_MORE_THAN_WAS_TOLD = 1_000_000
_KNOWS_EMPTY_EVENTS = "2025-11-25"
_TYPED = b"event: bookmark\n"
"""Older clients take an event without a type for a message; by its type they know that it is none."""


class CallStream:
    """The stream of one call.

    Attributes:
        taken_up: Of the earlier stream whose rest this is, where it was left.
        waited: How many seconds its client had waited for it before.
        told: Its progress is told of in higher numbers.

    Args:
        tell: Sends an event, if the answer is not at its end.
        bookmarks: Give out ids.
        version: The protocol's, as the client names it.
        retry_after: How many seconds a client waits before it comes back.
        taken_up: See above.
    """

    def __init__(
        self,
        tell: Callable[[bytes], Awaitable[None]],
        bookmarks: Bookmarks,
        version: str | None,
        retry_after: float,
        taken_up: Bookmark | None,
    ) -> None:
        self.taken_up = taken_up
        self.waited = 0.0 if taken_up is None else taken_up.waited
        self.told = 0 if taken_up is None else taken_up.told + _MORE_THAN_WAS_TOLD
        self._tell = tell
        self._bookmarks = bookmarks
        self._version = version
        self._retry_after = retry_after
        self._marked = False

    async def mark(
        self,
        principal: Principal,
        *,
        run_id: str,
        started: bool,
        tool: str,
        request_id: str | int,
        progress_token: str | int | None,
    ) -> None:
        """Tell the client, once, from where it can go on; for what is told see `Bookmark`."""
        if self._marked:
            return
        bookmark = Bookmark(
            run_id=run_id,
            started=started,
            tool=tool,
            request_id=request_id,
            progress_token=progress_token,
            at=self._bookmarks.now(),
            waited=self.waited,
            told=self.told,
        )
        event_id = self._bookmarks.id_of(bookmark, principal)
        if event_id is None:
            return
        self._marked = True
        event = b"id: %s\nretry: %d\ndata:\n\n" % (event_id.encode(), self._retry_after * 1000)
        if self._version is None or not is_version_at_least(self._version, _KNOWS_EMPTY_EVENTS):
            event = _TYPED + event
        await self._tell(event)
