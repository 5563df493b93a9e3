"""What a reader follows: the stored log from a cursor on, then its tail as it grows, without gap or double."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from amoxi_py.domain.event import Event
from amoxi_py.engine.hub import Follower, Hub
from amoxi_py.ports.store import Store
from amoxi_py.ports.views import LogPosition

_PAGE = 500
_PAGE_SIZE = 256 * 1024


async def read_pages(store: Store, position: LogPosition, after: int) -> AsyncGenerator[tuple[Event, ...], None]:
    """Give what a log holds after a number, in batches that are never empty, and bounded in number and size."""
    more = True
    while more:
        page = await store.read_log(position, after, _PAGE, _PAGE_SIZE)
        more = page.more
        if page.events:
            after = page.events[-1].seq
            yield page.events
        del page  # a reader that waits for what comes next keeps nothing of what it had


class EventStream:
    """The events after a cursor, in batches that are never empty, and bounded in number and size.

    A run's stream ends after its terminal event; a conversation's when it is erased in this process. `exhausted` is
    True when the run has ended and nothing comes after the cursor. `last_seq` is the log's last number at its opening.
    With a `follower` that has heard everything after the cursor, the log is read only when it could not keep up; who
    has made such a stream closes it.
    """

    def __init__(
        self, store: Store, hub: Hub, position: LogPosition, after: int | None, follower: Follower | None = None
    ) -> None:
        self._store = store
        self._hub = hub
        self._position = position
        self._follower = follower
        self._cursor = _start(position, after)
        self.last_seq = position.last_seq
        self.exhausted = position.ended_seq is not None and self._cursor >= position.ended_seq

    async def past(self) -> AsyncGenerator[tuple[Event, ...], None]:
        """Give what the log holds by now, in batches; after it, iterating goes on with what comes next.

        When the run's terminal event was among them, nothing comes next, and nobody must wait for it.
        """
        async with aclosing(read_pages(self._store, self._position, self._cursor)) as pages:
            async for page in pages:
                self._cursor = page[-1].seq
                yield page

    async def __aiter__(self) -> AsyncGenerator[tuple[Event, ...], None]:
        if self.exhausted:
            return
        heard = self._follower is not None
        follower = self._follower or self._hub.follow(self._position.conversation, self._position.run)
        self._follower = follower
        try:
            while not follower.ended:
                if not heard:
                    follower.restart()
                    async with aclosing(read_pages(self._store, self._position, self._cursor)) as pages:
                        async for page in pages:
                            self._cursor = page[-1].seq
                            yield page
                            if self.ends_with(page):
                                return
                            del page
                heard = False
                while not follower.overflowed:
                    new = self._unseen(await follower.take())
                    if new:
                        self._cursor = new[-1].seq
                        yield new
                        if self.ends_with(new):
                            return
                    del new
        finally:
            self.close()

    def close(self) -> None:
        """Follow no more; that is done at the end of iterating, too."""
        follower, self._follower = self._follower, None
        if follower is not None:
            self._hub.unfollow(self._position.conversation, follower)

    def _unseen(self, events: list[Event]) -> tuple[Event, ...]:
        cursor = self._cursor
        return tuple(event for event in events if event.seq > cursor)

    @property
    def at_hand(self) -> bool:
        """Whether the next events are there already, and need no read."""
        return self._follower is not None and self._follower.has_events

    def ends_with(self, events: tuple[Event, ...]) -> bool:
        """Whether nothing comes after a batch."""
        return self._position.run is not None and events[-1].type.ends_run


def first_position(first: Event) -> LogPosition:
    """Return where the log of a run is that has only had its first event."""
    return LogPosition(conversation=first.conversation, run=first.run, first_seq=first.seq, last_seq=first.seq)


def _start(position: LogPosition, after: int | None) -> int:
    if after is None:
        return position.first_seq - 1 if position.run is not None else 0
    if after > position.last_seq:  # a number of another log: a store that was restored, or one that was erased
        return position.first_seq - 1
    return after
