"""Tells this process's listener what was committed, in the order of each conversation's log, by whomever it was.

What this process commits is at hand. What others commit in conversations that somebody here is interested in is read
from their logs when the bell says that there is more; the rest is told in a word. All of it runs on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence

from amoxi_py.domain.event import Event, EventType
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.listening import EventListener, GapListener, Interest
from amoxi_py.stores.postgres.writer import News

log = logging.getLogger("amoxi_py.stores")

Range = tuple[int, int, int]
"""A conversation, and the first and last number of its log."""

_REMEMBERED = 20_000
_MOST_AT_ONCE = 1000
_AGAIN_S = 0.25
_ALWAYS = (
    EventType.RUN_CANCELLED,
    EventType.APPROVAL_DECIDED,
    EventType.QUESTION_ANSWERED,
    EventType.SIGNAL_RECEIVED,
)
_ALWAYS_BITS = sum(1 << kind for kind in _ALWAYS)

ReadEvents = Callable[[Sequence[Range], Sequence[EventType] | None], Awaitable[Sequence[Event]]]
ReadLastSeqs = Callable[[Collection[int]], Awaitable[dict[int, int]]]


class Telling:
    """What has been told of each conversation, and what is still to be read before more of it can be."""

    def __init__(
        self,
        listener: EventListener,
        on_gap: GapListener | None,
        interest: Interest | None,
        read: ReadEvents,
        read_last_seqs: ReadLastSeqs,
    ) -> None:
        self._listener = listener
        self._on_gap = on_gap
        self._interest = interest
        self._read = read
        self._read_last_seqs = read_last_seqs
        self._told: OrderedDict[int, int] = OrderedDict()
        self._ahead: dict[int, int] = {}  # conversations of which more was committed than was told
        self._only_always: list[Range] = []
        self._reading: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._closed = False

    def own(self, events: Sequence[Event]) -> None:
        """Tell what this process committed, unless others' events before it have to be read first."""
        told = [event for event in events if not self._hold_back(event)]
        while len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)
        if told:
            self._listener(told)

    def news(self, news: Sequence[News], due: bool) -> None:
        """Hear the bell of another process."""
        if self._closed:
            return
        wanted = None if self._interest is None else self._interest.conversations()
        types = 0
        for one in news:
            if wanted is None or one.conversation in wanted:
                self._catch_up(one.conversation, one.first, one.last)
            else:
                self._told.pop(one.conversation, None)
                types |= one.types
                if one.types & _ALWAYS_BITS:
                    self._only_always.append((one.conversation, one.first, one.last))
        if self._interest is not None and (types or due):
            self._interest.news([kind for kind in EventType if types >> kind & 1], due)
        self._go_on_reading()

    def poll(self) -> None:
        """Look whether others committed anything that was not told: their bell may not be heard, or not have rung."""
        if self._closed or self._interest is None or (self._polling is not None and not self._polling.done()):
            return
        self._polling = asyncio.ensure_future(self._poll(self._interest))

    def missed(self) -> None:
        """Hear that bells were missed."""
        self._told.clear()
        if self._on_gap is not None:
            self._on_gap()

    async def close(self) -> None:
        """Stop reading."""
        self._closed = True
        for task in (self._reading, self._polling):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    def _hold_back(self, event: Event) -> bool:
        """Whether an event is told by a read of the log, or was; begin that read where it is needed."""
        conversation, seq = event.conversation, event.seq
        ahead = self._ahead.get(conversation)
        if ahead is not None:
            self._ahead[conversation] = max(ahead, seq)
            return True
        told = self._told.get(conversation)
        if told is None and seq > 1 and self._interest is not None and self._is_wanted(conversation):
            self._pass_over(conversation, seq - 1)  # others may have committed just before
        elif told is not None and seq <= told:
            return True
        elif told is not None and seq > told + 1 and self._is_wanted(conversation):
            self._ahead[conversation] = seq
            self._go_on_reading()
            return True
        self._told[conversation] = seq
        return False

    def _is_wanted(self, conversation: int) -> bool:
        return self._interest is None or conversation in self._interest.conversations()

    def _catch_up(self, conversation: int, first: int, last: int) -> None:
        told = self._told.get(conversation)
        if told is None and self._interest is None:
            told = self._told[conversation] = first - 1
        if told is not None and last <= told:
            return
        if told is None or last - told > _MOST_AT_ONCE:
            self._pass_over(conversation, last)
        else:
            self._ahead[conversation] = max(self._ahead.get(conversation, last), last)

    def _pass_over(self, conversation: int, last: int) -> None:
        self._told[conversation] = max(self._told.get(conversation, last), last)
        if self._interest is not None:
            self._interest.missed(conversation)
        elif self._on_gap is not None:
            self._on_gap()

    def _go_on_reading(self) -> None:
        if not self._closed and (self._ahead or self._only_always) and (self._reading is None or self._reading.done()):
            self._reading = asyncio.ensure_future(self._read_on())

    async def _read_on(self) -> None:
        while self._ahead or self._only_always:
            try:
                await self._read_once()
            except StoreUnavailable as error:
                log.warning("what other servers committed is read later: %s", error)
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                log.exception("what other servers committed could not be read; whoever follows it goes to its log")
                self._ahead.clear()
                self._only_always.clear()
                self.missed()

    async def _read_once(self) -> None:
        always = list(self._only_always)
        if always:
            events = await self._read(always, _ALWAYS)
            del self._only_always[: len(always)]
            if events:
                self._listener(events)
        for conversation in [one for one in self._ahead if one not in self._told]:  # it was forgotten meanwhile
            self._pass_over(conversation, self._ahead.pop(conversation))
        ahead = dict(self._ahead)
        if not ahead:
            return
        events = await self._read([(one, self._told[one] + 1, last) for one, last in ahead.items()], None)
        for event in events:  # what a commit was said to bring may have been undone: only what is there counts
            self._told[event.conversation] = event.seq
        for conversation, last in ahead.items():
            if self._ahead.get(conversation) == last:
                del self._ahead[conversation]
        if events:
            self._listener(events)

    async def _poll(self, interest: Interest) -> None:
        try:
            wanted = tuple(interest.conversations())
            last_seqs = await self._read_last_seqs(wanted) if wanted else {}
            for conversation, last in last_seqs.items():
                self._catch_up(conversation, last, last)
            for conversation in set(wanted) - last_seqs.keys():  # erased
                self._told.pop(conversation, None)
                interest.missed(conversation)
            self._go_on_reading()
            interest.news(list(EventType), True)
        except StoreUnavailable as error:
            log.debug("looking for what other servers committed has to wait: %s", error)
