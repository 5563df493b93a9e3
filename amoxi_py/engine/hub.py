"""Tells this process's readers and workers what was committed; it is called on the event loop, after each commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from amoxi_py.domain.event import Event, EventType
from amoxi_py.ports.views import event_size

_BUFFERED = 1000
_BUFFERED_SIZE = 512 * 1024  # of text: the results of a reply's eight calls at once, each as large as can be
_REMEMBERED = 200
_STARTS = frozenset({EventType.RUN_STARTED, EventType.RUN_RESUMED})
_WAKES = frozenset({EventType.RUN_QUEUED, EventType.APPROVAL_DECIDED})

_HEARD_LATE = frozenset({EventType.RUN_CANCELLED, EventType.APPROVAL_DECIDED})

Watcher = Callable[[Event | None], None]
"""Hears the events of a run; None says that some may have been missed."""

Listener = Callable[[Sequence[Event] | None], None]
"""Hears the events of all runs; None says that some may have been missed."""


class Follower:
    """Events of one conversation for one reader, bounded in number and size; who is too slow goes back to the log."""

    def __init__(self) -> None:
        self.overflowed = self.ended = False
        self._events: deque[Event] = deque()
        self._size = 0
        self._wake: asyncio.Future[None] | None = None

    def push(self, event: Event) -> None:
        """Keep an event for the reader."""
        if len(self._events) >= _BUFFERED or self._size >= _BUFFERED_SIZE:
            self.overflow()
        if not self.overflowed:
            self._events.append(event)
            self._size += event_size(event)
        self._tell()

    def end(self) -> None:
        """Tell the reader that the log is erased."""
        self.ended = True
        self.overflow()

    def overflow(self) -> None:
        """Send the reader back to the log."""
        self._clear()
        self.overflowed = True
        self._tell()

    def _tell(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def take(self) -> list[Event]:
        """Return all kept events, waiting for the first; an empty list when the reader has to go back to the log."""
        if not self._events and not self.overflowed:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        events = list(self._events)
        self._clear()
        return events

    def restart(self) -> None:
        """Begin to keep events anew; what comes from now on is later than a read of the log that begins now."""
        self._clear()
        self.overflowed = False

    def _clear(self) -> None:
        self._events.clear()
        self._size = 0


class Hub:
    """Followers by conversation, watchers by run, and the worker that wants to know of new work."""

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = _nobody
        self.listeners: list[Listener] = []
        self._followers: dict[int, list[Follower]] = {}
        self._watchers: dict[int, Watcher] = {}
        self._ends: dict[str, list[asyncio.Future[None]]] = {}
        self._queued: set[int] = set()
        self._unheard: deque[Event] = deque(maxlen=_REMEMBERED)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand committed events, in the order of their logs, to whom they concern."""
        due = False
        for listener in self.listeners:
            listener(events)
        for event in events:
            for follower in self._followers.get(event.conversation, ()):
                follower.push(event)
            watcher = self._watchers.get(event.run)
            if watcher is not None:
                watcher(event)
            elif event.type in _HEARD_LATE:
                self._unheard.append(event)
            due = self._note_work(event) or due
            if event.type.ends_run and event.run_id in self._ends:
                for waiter in self._ends.pop(event.run_id):
                    if not waiter.done():
                        waiter.set_result(None)
        if due and (self._queued or any(event.type is EventType.APPROVAL_DECIDED for event in events)):
            self.on_due()

    def miss(self) -> None:
        """Tell everybody that events were passed over: what they wait for may have come."""
        for followers in self._followers.values():
            for follower in followers:
                follower.overflow()
        for watcher in tuple(self._watchers.values()):
            watcher(None)
        for listener in self.listeners:
            listener(None)
        ends, self._ends = self._ends, {}
        for waiter in [waiter for waiters in ends.values() for waiter in waiters]:
            if not waiter.done():
                waiter.set_result(None)
        self.on_due()

    def follow(self, conversation: int) -> Follower:
        """Begin to keep the events of a conversation."""
        follower = Follower()
        self._followers.setdefault(conversation, []).append(follower)
        return follower

    def erased(self, conversation: int) -> None:
        """End the readers of a conversation that is gone."""
        for follower in self._followers.get(conversation, ()):
            follower.end()

    def unfollow(self, conversation: int, follower: Follower) -> None:
        """Stop keeping them."""
        followers = self._followers[conversation]
        followers.remove(follower)
        if not followers:
            del self._followers[conversation]

    def watch(self, run: int, watcher: Watcher) -> None:
        """Call the watcher with each event of a run, until `unwatch`.

        A run may be cancelled or decided about between its claim and this call, so the last such events are kept.
        """
        self._watchers[run] = watcher
        for event in tuple(self._unheard):
            if event.run == run:
                watcher(event)

    def unwatch(self, run: int, watcher: Watcher) -> None:
        """Stop calling the watcher."""
        if self._watchers.get(run) == watcher:
            del self._watchers[run]

    def end_of(self, run_id: str) -> asyncio.Future[None]:
        """Return a future that is done when a run's terminal event comes."""
        future = asyncio.get_running_loop().create_future()
        self._ends.setdefault(run_id, []).append(future)
        return future

    def forget_end(self, run_id: str, future: asyncio.Future[None]) -> None:
        """Drop a future of `end_of` that nobody waits for any more."""
        waiters = self._ends.get(run_id)
        if waiters is not None and future in waiters:
            waiters.remove(future)
            if not waiters:
                del self._ends[run_id]

    def _note_work(self, event: Event) -> bool:
        if event.type is EventType.RUN_QUEUED:
            self._queued.add(event.run)
        elif event.type in _STARTS:
            self._queued.discard(event.run)
        elif event.type.ends_run:
            self._queued.discard(event.run)
            return True
        return event.type in _WAKES


def _nobody() -> None:
    """Do nothing: this process has no worker."""
