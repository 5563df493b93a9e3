"""Calls the app's handlers of events: from the log, at least once for each event, in the order of each conversation.

One worker of all has a handler, for as long as its lease is current. A try is noted before its call, so that what ends
the process counts as a failure too, and no event can bring it down for ever.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from amoxi_py.declare.handler_definition import HandlerDefinition
from amoxi_py.domain.event import Event
from amoxi_py.domain.retry import retry_delay
from amoxi_py.domain.run_event import run_event
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.execution import Parts
from amoxi_py.engine.exits import ExitAsked, belongs_to_run, cancelled_from_outside
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.deliveries import Delivered, Delivery, HandlerLease

log = logging.getLogger("amoxi_py.handlers")

_LEASE_EVERY = 1.0
_READ_EVERY = 5.0
_PAGE = 200
_WINDOW = 400
_AT_ONCE = 8
_NOTE_EVERY = 1000
_LAST_MOMENTS = 1.0


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
            await asyncio.wait(tasks, timeout=_LAST_MOMENTS)

    def _hear(self, events: Sequence[Event] | None) -> None:
        for line, _ in self._lines.values():
            line.hear(events)

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


class _Line:
    """One handler under one lease: a bounded window of the log, and one call at a time for each conversation in it."""

    def __init__(self, parts: Parts, handler: HandlerDefinition, lease: HandlerLease, keeper: LeaseKeeper) -> None:
        self._parts = parts
        self._handler = handler
        self._lease = lease
        self._keeper = keeper
        self._read_to: int | None = None
        self._noted_to = 0
        self._open: dict[int, None] = {}  # places, in their order
        self._waiting: dict[int, deque[Delivery]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._wake = asyncio.Event()
        self._calls: set[int] = set()
        self._call_ended = asyncio.Event()
        self._more = False
        self._stopping = False

    def hear(self, events: Sequence[Event] | None) -> None:
        """Read on when one of these events is for this handler; None says that some may have been missed."""
        if events is None or any(event.type in self._handler.events for event in events):
            self._wake.set()

    async def run(self) -> None:
        """Read and call until the lease is lost, or somebody cancels it."""
        try:
            async with asyncio.TaskGroup() as work:
                while True:
                    await self._read(work)
                    try:
                        await asyncio.wait_for(self._wake.wait(), _READ_EVERY)
                    except TimeoutError:
                        pass
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

    async def _read(self, work: asyncio.TaskGroup) -> None:
        self._more = True
        while self._more and len(self._open) < _WINDOW and not self._stopping:
            self._wake.clear()
            try:
                page = await self._parts.store.deliveries(
                    self._lease, tuple(self._handler.events), self._read_to, _PAGE
                )
            except StoreUnavailable as error:
                log.warning("reading for the handler %r has to wait: %s", self._handler.name, error)
                return
            self._read_to, self._more = page.read_to, page.more
            for delivery in page.deliveries:
                self._queue(delivery, work)
        if not self._open and self._read_to is not None and self._read_to - self._noted_to >= _NOTE_EVERY:
            await self._settle()

    def _queue(self, delivery: Delivery, work: asyncio.TaskGroup) -> None:
        conversation = delivery.event.conversation
        self._open[delivery.place] = None
        if conversation in self._waiting:
            self._waiting[conversation].append(delivery)
        else:
            self._waiting[conversation] = deque((delivery,))
            work.create_task(self._work(conversation))

    async def _work(self, conversation: int) -> None:
        belongs_to_run()
        waiting = self._waiting[conversation]
        while waiting:
            await self._deliver(waiting[0])
            waiting.popleft()
        del self._waiting[conversation]

    async def _deliver(self, delivery: Delivery) -> None:
        place, tries, again_at = delivery.place, delivery.tries, delivery.again_at
        while True:
            if again_at is not None:
                await asyncio.sleep(max(0.0, again_at - self._parts.clock.now()))
            async with self._slots:
                if self._stopping:
                    await asyncio.Event().wait()  # until the end of this line: another process calls it
                self._calls.add(place)
                try:
                    tries, again_at = await self._try(delivery, tries)
                finally:
                    self._calls.discard(place)
                    self._call_ended.set()
            if again_at is None:
                break
        if self._more:
            self._wake.set()

    async def _try(self, delivery: Delivery, tries: int) -> tuple[int, float | None]:
        """Call the handler once; return how often it was tried, and when it is due again, or None when it is done."""
        policy, place = self._parts.settings.handler_retry, delivery.place
        failure: BaseException | None = None
        if tries < policy.tries:
            tries += 1
            await self._settle(Delivered(place=place, tries=tries))
            await self._keeper.prove(self._lease.name)
            failure = await self._call(delivery, tries)
            pause = None if failure is None else retry_delay(policy, tries, chance=random.random())  # noqa: S311 - it only spreads tries
            if pause is not None:
                self._tell(
                    logging.WARNING, f"failed (try {tries}); it is called again in {pause:.0f} s", delivery, failure
                )
                again_at = self._parts.clock.now() + pause
                await self._settle(Delivered(place=place, tries=tries, again_at=again_at))
                return tries, again_at
            if failure is not None:
                self._tell(logging.ERROR, f"failed {tries} times; the event is passed over", delivery, failure)
        else:
            self._tell(logging.ERROR, f"was interrupted at try {tries}; the event is passed over", delivery, None)
        del self._open[place]
        await self._settle(Delivered(place=place, tries=tries, done=True))
        return tries, None

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
        try:
            async with asyncio.timeout(self._handler.timeout):
                await self._handler.call(self._parts.instances, host, event)
        except (Exception, SystemExit, KeyboardInterrupt, ExitAsked) as error:  # noqa: BLE001 - the app's own code
            return error
        except asyncio.CancelledError as error:
            if cancelled_from_outside(error):
                raise
            return error
        return None

    async def _settle(self, *delivered: Delivered) -> None:
        """Store what became of deliveries; while the store is away, wait for it."""
        while True:
            done_to = next(iter(self._open), (self._read_to or 0) + 1) - 1
            try:
                await self._parts.store.settle_deliveries(self._lease, delivered, done_to)
            except StoreUnavailable as error:
                log.warning("the handler %r has to wait: %s", self._handler.name, error)
                await asyncio.sleep(_LEASE_EVERY)
            else:
                self._noted_to = done_to
                return

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
