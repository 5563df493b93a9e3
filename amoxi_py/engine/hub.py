"""Tells this process's readers and workers what was committed; it is called on the event loop, after each commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

from amoxi_py.domain.event import Event, EventType
from amoxi_py.ports.views import event_size

_BUFFERED = 1000
_BUFFERED_SIZE = 512 * 1024  # of text: the results of a reply's eight calls at once, each as large as can be
_REMEMBERED = 200
_MOST_QUEUED = 10_000
_STARTS = frozenset({EventType.RUN_STARTED, EventType.RUN_RESUMED})
_GIVEN = frozenset({EventType.APPROVAL_DECIDED, EventType.QUESTION_ANSWERED, EventType.SIGNAL_RECEIVED})
"""What a run waits for may have come with it."""
_HEARD_LATE = frozenset({EventType.RUN_CANCELLED, *_GIVEN})

Watcher = Callable[[Event | None], None]
"""Hears the events of a run; None says that some may have been missed."""

Listener = Callable[[Collection[EventType] | None], None]
"""Hears of which types the events of all runs are; None says that some may have been missed."""


class Follower:
    """Events of one conversation for one reader, bounded in number and size; who is too slow goes back to the log.

    With `run` it is a reader of that run alone. `first` is the run's first event, for one that was there before it.
    """

    def __init__(self, run: int | None = None) -> None:
        self.run = run
        self.first: Event | None = None
        self.overflowed = self.ended = False
        self._events: deque[Event] = deque()
        self._size = 0
        self._wake: asyncio.Future[None] | None = None

    @property
    def has_events(self) -> bool:
        """Whether `take` would not wait."""
        return bool(self._events)

    def sees(self, event: Event) -> bool:
        """Whether an event is for this reader; of a child run, it is for those alone who read that run."""
        return not event.hidden if self.run is None else event.run == self.run

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


class _Place:
    """Who is interested in one conversation."""

    __slots__ = ("ends", "followers", "watchers")

    def __init__(self) -> None:
        self.followers: list[Follower] = []
        self.watchers: dict[int, Watcher] = {}
        self.ends: dict[str, list[asyncio.Future[None]]] = {}

    def miss(self) -> None:
        """Tell them that events were passed over: what they wait for may have come."""
        for follower in self.followers:
            follower.overflow()
        for watcher in tuple(self.watchers.values()):
            watcher(None)
        ends, self.ends = self.ends, {}
        for waiters in ends.values():
            _tell_end(waiters)


class Hub:
    """Followers, watchers and those who wait for an end, by conversation; and the worker that wants to know of work.

    It is the store's `Interest`, too: of other conversations it is told in a word.
    """

    def __init__(self) -> None:
        self.on_due: Callable[[], None] = _nobody
        self.listeners: list[Listener] = []
        self._places: dict[int, _Place] = {}
        self._expected: dict[str, Follower] = {}
        self._queued: dict[int, set[int]] = {}
        self._unheard: deque[Event] = deque(maxlen=_REMEMBERED)

    def publish(self, events: Sequence[Event]) -> None:
        """Hand committed events, in the order of their logs, to whom they concern."""
        if self.listeners:
            types = {event.type for event in events if not event.hidden}
            for listener in self.listeners:
                listener(types)
        due = False
        queued: set[int] = set()
        for event in events:
            if event.type is EventType.RUN_QUEUED and event.run_id in self._expected:
                self._begin(self._expected.pop(event.run_id), event)
            place = self._places.get(event.conversation)
            watcher = None
            if place is not None:
                for follower in place.followers:
                    if follower.sees(event):
                        follower.push(event)
                watcher = place.watchers.get(_run_of(event))
            if watcher is not None:
                watcher(event)
            elif event.type in _HEARD_LATE:
                self._unheard.append(event)
            due = self._note_work(event, queued) or due
            if place is not None and event.type.ends_run and event.run_id in place.ends:
                _tell_end(place.ends.pop(event.run_id))
                self._leave(event.conversation, place)
        if due or queued:
            self.on_due()

    def miss(self) -> None:
        """Tell everybody that events were passed over."""
        for conversation in tuple(self._places):
            self.missed(conversation)
        for listener in self.listeners:
            listener(None)
        self.on_due()

    @property
    def readers(self) -> int:
        """How many event streams are open here."""
        return sum(len(place.followers) for place in self._places.values())

    # -- the store's `Interest`

    def conversations(self) -> Collection[int]:
        """Return the conversations that somebody here follows, executes, or waits in."""
        return self._places.keys()

    def news(self, types: Collection[EventType], due: bool) -> None:
        """Pass on what others did in conversations that nobody here is interested in."""
        for listener in self.listeners:
            listener(types)
        if due:
            self.on_due()

    def missed(self, conversation: int) -> None:
        """Tell those who are interested in a conversation that events were passed over."""
        place = self._places.get(conversation)
        if place is not None:
            place.miss()
            self._leave(conversation, place)

    # -- readers

    def follow(self, conversation: int, run: int | None = None) -> Follower:
        """Begin to keep the events of a conversation, or of one run of it."""
        follower = Follower(run)
        self._place(conversation).followers.append(follower)
        return follower

    @contextmanager
    def expecting(self, run_id: str) -> Iterator[Follower]:
        """Give a follower of a run that is submitted here in the block; it hears of the run from its first event on.

        Its `first` is None after the block when there was no such run; who has it then unfollows it.
        """
        follower = self._expected[run_id] = Follower()
        try:
            yield follower
        except BaseException:
            if follower.first is not None:
                self.unfollow(follower.first.conversation, follower)
            raise
        finally:
            self._expected.pop(run_id, None)

    def _begin(self, follower: Follower, first: Event) -> None:
        follower.run, follower.first = first.run, first
        self._place(first.conversation).followers.append(follower)

    def erased(self, conversation: int) -> None:
        """End the readers of a conversation that is gone."""
        place = self._places.get(conversation)
        for follower in () if place is None else place.followers:
            follower.end()

    def unfollow(self, conversation: int, follower: Follower) -> None:
        """Stop keeping them, if that was not done before."""
        place = self._places.get(conversation)
        if place is not None and follower in place.followers:
            place.followers.remove(follower)
            self._leave(conversation, place)

    # -- who executes a run

    def watch(self, run: int, conversation: int, watcher: Watcher) -> None:
        """Call the watcher with each event of a run of this conversation, until `unwatch`.

        A run may be cancelled or decided about between its claim and this call, so the last such events are kept.
        """
        self._place(conversation).watchers[run] = watcher
        for event in tuple(self._unheard):
            if _run_of(event) == run:
                watcher(event)

    def unwatch(self, run: int, conversation: int, watcher: Watcher) -> None:
        """Stop calling the watcher."""
        place = self._places.get(conversation)
        if place is not None and place.watchers.get(run) == watcher:
            del place.watchers[run]
            self._leave(conversation, place)

    # -- who waits for the end of a run

    def end_of(self, run_id: str, conversation: int) -> asyncio.Future[None]:
        """Return a future that is done when the terminal event of a run comes, or may have been missed."""
        future = asyncio.get_running_loop().create_future()
        self._place(conversation).ends.setdefault(run_id, []).append(future)
        return future

    def forget_end(self, run_id: str, conversation: int, future: asyncio.Future[None]) -> None:
        """Drop a future of `end_of` that nobody waits for any more."""
        place = self._places.get(conversation)
        waiters = None if place is None else place.ends.get(run_id)
        if place is not None and waiters is not None and future in waiters:
            waiters.remove(future)
            if not waiters:
                del place.ends[run_id]
                self._leave(conversation, place)

    def _place(self, conversation: int) -> _Place:
        place = self._places.get(conversation)
        if place is None:
            place = self._places[conversation] = _Place()
        return place

    def _leave(self, conversation: int, place: _Place) -> None:
        """Lose the interest in a conversation when its last one is gone."""
        if not (place.followers or place.watchers or place.ends) and self._places.get(conversation) is place:
            del self._places[conversation]

    def _note_work(self, event: Event, queued: set[int]) -> bool:
        """Return whether an event lets a run go on; `queued` has the new ones that have not started."""
        conversation, run = event.conversation, event.run
        if event.type is EventType.RUN_QUEUED:
            queued.add(run)
            self._queued.setdefault(conversation, set()).add(run)
            if len(self._queued) > _MOST_QUEUED:  # others may have taken the oldest up, and their ends not be told
                del self._queued[next(iter(self._queued))]
        elif event.type in _STARTS:
            queued.discard(run)
            self._unqueue(conversation, run)
        elif event.type.ends_run:
            queued.discard(run)
            self._unqueue(conversation, run)
            return event.hidden or conversation in self._queued  # the end of a child run lets the one above go on
        return event.type in _GIVEN

    def _unqueue(self, conversation: int, run: int) -> None:
        queued = self._queued.get(conversation)
        if queued is not None:
            queued.discard(run)
            if not queued:
                del self._queued[conversation]


def _run_of(event: Event) -> int:
    """Return the run that an event matters to: the child run, where its root's readers are told of something in it."""
    return event.run if event.source is None else event.source


def _tell_end(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _nobody() -> None:
    """Do nothing: this process has no worker."""
