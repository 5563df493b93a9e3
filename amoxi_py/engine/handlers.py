"""Calls the app's handlers of events: from the log, at least once for each event, in the order of each conversation.

One worker of all has a handler, for as long as its lease is current. A try is noted before its call, so that what ends
the process counts as a failure too, and no event can bring it down for ever.

The log is read ahead of the calls, but only for which conversations have something to be told; that is stored, one row
for each of them, and the events are loaded one by one, when their turn comes. So what is kept does not grow with what a
conversation has, and one that hangs or fails stops no other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import copy_context
from typing import Any, TypeVar

from amoxi_py.declare.handler_definition import HandlerDefinition
from amoxi_py.domain.event import EventType
from amoxi_py.domain.retry import retry_delay
from amoxi_py.domain.run_event import run_event
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.exits import ExitAsked, belongs_to_run
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.parts import Parts
from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.deliveries import Arrival, Behind, Delivery, HandlerLease

log = logging.getLogger("amoxi_py.handlers")

T = TypeVar("T")

_LEASE_EVERY = 1.0
_READ_EVERY = 5.0
_PAGE = 1000
_MOST_BEHIND = 10_000
_AT_ONCE = 8
_NOTE_EVERY = 1000
_LAST_MOMENTS = 1.0
_CUT_OFF = 0.2


class EventHandlers:
    """The handlers that this process has, and those that it would take over.

    Args:
        parts: Of the process.
        handlers: All that the app declares.
        keeper: Gives the lease of this process's worker, or None while it has none.
    """

    def __init__(
        self, parts: Parts, handlers: Sequence[HandlerDefinition], keeper: Callable[[], LeaseKeeper | None]
    ) -> None:
        self._parts = parts
        self._handlers = {handler.name: handler for handler in handlers}
        self._keeper = keeper
        self._lines: dict[str, tuple[_Line, asyncio.Task[None]]] = {}
        self._leasing: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to lease and to call."""
        self._parts.hub.listeners.append(self._hear)
        self._leasing = asyncio.get_running_loop().create_task(self._lease_for_ever())

    async def stop(self, grace: float) -> None:
        """Begin no call any more, and cut off what has not ended after `grace` seconds."""
        self._parts.hub.listeners.remove(self._hear)
        if self._leasing is not None:
            self._leasing.cancel()
            await asyncio.wait((self._leasing,), timeout=_LAST_MOMENTS)
        lines = [line for line, _ in self._lines.values()]
        await asyncio.gather(*(line.end_calls(grace) for line in lines))
        tasks = [task for _, task in self._lines.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, left = await asyncio.wait(tasks, timeout=_LAST_MOMENTS)
            if left:
                for line in lines:
                    line.cut_off()
                await asyncio.wait(left, timeout=_CUT_OFF)

    def _hear(self, types: Collection[EventType] | None) -> None:
        for line, _ in self._lines.values():
            line.hear(types)

    async def _lease_for_ever(self) -> None:
        while True:
            try:
                await self._lease()
            except StoreUnavailable as error:
                log.warning("taking over handlers of events has to wait: %s", error)
            except Exception:
                log.exception("taking over handlers of events failed; it is tried again")
            await asyncio.sleep(_LEASE_EVERY)

    async def _lease(self) -> None:
        keeper = self._keeper()
        if keeper is None or not keeper.current:
            return
        missing = [name for name in self._handlers if name not in self._lines or self._lines[name][1].done()]
        if not missing:
            return
        for lease in await self._parts.store.claim_handlers(missing, keeper.worker):
            line = _Line(self._parts, self._handlers[lease.name], lease, keeper)
            self._lines[lease.name] = (line, asyncio.get_running_loop().create_task(line.run()))


class _Conversation:
    """One that is to be told events, from the number `seq` of its log up to the place `until`."""

    __slots__ = ("again_at", "key", "seq", "tries", "until")

    def __init__(self, behind: Behind, until: int) -> None:
        self.key = behind.conversation
        self.seq = behind.seq
        self.tries = behind.tries
        self.again_at = behind.again_at
        self.until = until

    @property
    def behind(self) -> Behind:
        return Behind(conversation=self.key, seq=self.seq, tries=self.tries, again_at=self.again_at)


class _Line:
    """One handler under one lease: the conversations that it is behind with take turns, one event a turn."""

    def __init__(self, parts: Parts, handler: HandlerDefinition, lease: HandlerLease, keeper: LeaseKeeper) -> None:
        self._parts = parts
        self._handler = handler
        self._types = tuple(handler.events)
        self._lease = lease
        self._keeper = keeper
        self._work = asyncio.TaskGroup()
        self._context = copy_context()
        self._read_to: int | None = None
        self._noted_to = 0
        self._conversations: dict[int, _Conversation] = {}
        self._ready: deque[_Conversation] = deque()
        self._wake = asyncio.Event()
        self._calls: set[_Conversation] = set()
        self._call_ended = asyncio.Event()
        self._turns: set[asyncio.Task[None]] = set()
        self._more = False
        self._stopping = False

    def hear(self, types: Collection[EventType] | None) -> None:
        """Read on when one of these types is for this handler; None says that some may have been missed."""
        if types is None or any(kind in types for kind in self._types):
            self._wake.set()

    async def run(self) -> None:
        """Read and call until the lease is lost, or somebody cancels it."""
        try:
            async with self._work:
                await self._read_for_ever()
        except* LeaseLost:
            log.warning("the handler %r goes on elsewhere: this worker's lease was lost", self._handler.name)
        except* Exception as errors:
            log.error("the handler %r stopped by an error; it begins anew", self._handler.name, exc_info=errors)

    async def end_calls(self, grace: float) -> None:
        """Begin no call any more, and return when those that run have ended, at most after `grace` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace
        self._stopping = True
        while self._calls and (left := deadline - clock()) > 0:
            self._call_ended.clear()
            try:
                await asyncio.wait_for(self._call_ended.wait(), left)
            except TimeoutError:
                return

    def cut_off(self) -> None:
        """End calls that have not ended though they were told to stop; what they use is closed after this."""
        for turn in self._turns:
            turn.cancel()

    async def _read_for_ever(self) -> None:
        away = False
        try:
            while True:
                self._wake.clear()
                try:
                    await self._read()
                    away = False
                except StoreUnavailable as error:
                    level = logging.DEBUG if away else logging.WARNING
                    log.log(level, "reading for the handler %r has to wait: %s", self._handler.name, error)
                    away = True
                    await asyncio.sleep(_LEASE_EVERY)
                try:
                    async with asyncio.timeout(_READ_EVERY):  # `wait_for` may swallow the end of this task
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._stopping = True  # before the calls are cut off

    async def _read(self) -> None:
        """Read on in the log; what it tells of is stored before anybody is told, so that it is read once."""
        store = self._parts.store
        self._more = True
        while self._more and len(self._conversations) < _MOST_BEHIND and not self._stopping:
            self._wake.clear()
            left = () if self._read_to is not None else await store.behind(self._lease)
            page = await store.arrivals(self._lease, self._types, self._read_to, _PAGE)
            known = [_Conversation(one, page.read_to) for one in left]
            self._conversations.update({one.key: one for one in known})
            new = self._sort_in(page.arrivals)
            if page.arrivals or page.read_to - self._noted_to >= _NOTE_EVERY:
                await self._save([one.behind for one in new], page.read_to)
                self._noted_to = page.read_to
            self._conversations.update({one.key: one for one in new})
            self._read_to, self._more = page.read_to, page.more
            for one in (*known, *new):
                self._line_up(one)

    def _sort_in(self, arrivals: Sequence[Arrival]) -> list[_Conversation]:
        """Give arrivals to the conversations that are behind, and return those that were not."""
        new: dict[int, _Conversation] = {}
        for arrival in arrivals:
            one = self._conversations.get(arrival.conversation) or new.get(arrival.conversation)
            if one is None:
                behind = Behind(conversation=arrival.conversation, seq=arrival.seq)
                new[arrival.conversation] = _Conversation(behind, arrival.place)
            else:
                one.until = arrival.place
        return list(new.values())

    def _line_up(self, one: _Conversation) -> None:
        """Give a conversation a place among those whose turn comes, once its event is due."""
        pause = 0.0 if one.again_at is None else one.again_at - self._parts.clock.now()
        if pause > 0:
            asyncio.get_running_loop().call_later(pause, self._get_ready, one)
        else:
            self._get_ready(one)

    def _get_ready(self, one: _Conversation) -> None:
        self._ready.append(one)
        self._begin()

    def _begin(self) -> None:
        while self._ready and len(self._calls) < _AT_ONCE and not self._stopping:
            one = self._ready.popleft()
            self._calls.add(one)
            turn = self._work.create_task(self._take_turn(one), context=self._context.copy())
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)

    async def _take_turn(self, one: _Conversation) -> None:
        belongs_to_run()
        try:
            until = one.until
            delivery = await self._load(one, until)
            if delivery is not None:
                await self._try(one, delivery)
            elif one.until > until:
                self._ready.append(one)
            else:
                await self._let_go(one)
        except Exception:  # this line ends
            self._stopping = True
            raise
        finally:
            self._calls.discard(one)
            self._call_ended.set()
        self._begin()

    async def _load(self, one: _Conversation, until: int) -> Delivery | None:
        store = self._parts.store
        return await self._store(lambda: store.delivery(self._lease, self._types, one.key, one.seq, until))

    async def _try(self, one: _Conversation, delivery: Delivery) -> None:
        """Call the handler once for the next event, and find out what is next for its conversation."""
        policy, one.seq = self._parts.settings.handler_retry, delivery.event.seq
        if one.tries >= policy.tries:
            self._tell(logging.ERROR, f"was interrupted at try {one.tries}; the event is passed over", delivery, None)
            await self._pass_on(one, delivery)
            return
        failure = await self._call_counted(one, delivery)
        pause = None if failure is None else retry_delay(policy, one.tries, chance=random.random())  # noqa: S311 - it only spreads tries
        if pause is not None:
            what = f"failed (try {one.tries}); it is called again in {pause:.0f} s"
            self._tell(logging.WARNING, what, delivery, failure)
            one.again_at = self._parts.clock.now() + pause
            await self._note(one)
            self._line_up(one)
            return
        if failure is not None:
            self._tell(logging.ERROR, f"failed {one.tries} times; the event is passed over", delivery, failure)
        await self._pass_on(one, delivery)

    async def _pass_on(self, one: _Conversation, delivery: Delivery) -> None:
        """Go on to the conversation's next event, or let it go when it has none."""
        if one.until > delivery.place:
            one.seq, one.tries, one.again_at = delivery.event.seq + 1, 0, None
            await self._note(one)
            self._ready.append(one)
            return
        self._forget(one)
        await self._store(lambda: self._parts.store.catch_up(self._lease, one.key, one.seq))

    async def _let_go(self, one: _Conversation) -> None:
        """Drop a conversation that has nothing to be told after all, such as an erased one."""
        self._forget(one)
        try:
            await self._parts.store.catch_up(self._lease, one.key, one.seq)
        except StoreUnavailable:  # its next event may have taken the row by now, so this is not done later
            log.debug("conversation %d is let go at the next start", one.key)

    def _forget(self, one: _Conversation) -> None:
        """Before anything is awaited: what is read from now on gets a row of its own."""
        del self._conversations[one.key]
        if self._more:
            self._wake.set()

    async def _call_counted(self, one: _Conversation, delivery: Delivery) -> BaseException | None:
        """Call the handler, and return what it raised; the try does not count when an orderly stop cuts it off."""
        one.tries, one.again_at = one.tries + 1, None
        try:
            await self._note(one)
            await self._keeper.prove(self._lease.name)
            return await self._call(delivery, one.tries)
        except asyncio.CancelledError:
            one.tries -= 1
            try:
                await self._parts.store.fall_behind(self._lease, [one.behind])
            except (StoreUnavailable, LeaseLost) as error:
                log.debug("a try of the handler %r that was cut off counts: %s", self._handler.name, error)
            raise

    async def _call(self, delivery: Delivery, attempt: int) -> BaseException | None:
        """Call the handler and return what it raised."""
        event = run_event(
            delivery.event,
            agent=delivery.agent,
            conversation_id=delivery.conversation_id,
            principal=delivery.principal,
            attempt=attempt,
        )
        host = AgentContext(
            run_id=event.run_id,
            conversation_id=event.conversation_id,
            agent=event.agent,
            principal=event.principal,
            attempt=attempt,
            threads=self._parts.threads,
            lingering=set(),
        )
        task = asyncio.current_task()
        try:
            async with asyncio.timeout(self._handler.timeout):
                await self._handler.call(self._parts.instances, host, event)
        except (Exception, SystemExit, KeyboardInterrupt, ExitAsked, asyncio.CancelledError) as error:
            if (
                self._stopping and task is not None and task.cancelling()
            ):  # it was cut off; it may say so in its own way
                raise asyncio.CancelledError from error
            return error
        return None

    async def _note(self, one: _Conversation) -> None:
        await self._save([one.behind], None)

    async def _save(self, rows: Sequence[Behind], position: int | None) -> None:
        await self._store(lambda: self._parts.store.fall_behind(self._lease, rows, position))

    async def _store(self, act: Callable[[], Awaitable[T]]) -> T:
        """Do a verb of the store; while the store is away, wait for it."""
        while True:
            try:
                return await act()
            except StoreUnavailable as error:
                log.warning("the handler %r has to wait: %s", self._handler.name, error)
                await asyncio.sleep(_LEASE_EVERY)

    def _tell(self, level: int, what: str, delivery: Delivery, failure: BaseException | None) -> None:
        event = delivery.event
        told: Any = None if failure is None else (type(failure), failure, failure.__traceback__)
        log.log(
            level,
            "the handler %r of %s, event %d of run %s, %s",
            self._handler.name,
            event.type.label,
            event.seq,
            event.run_id,
            what,
            exc_info=told,
        )
