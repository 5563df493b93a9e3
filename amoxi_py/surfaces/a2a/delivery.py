"""Telling webhooks what happens to their tasks: each by one server at a time, in order, and at least once.

A server holds a webhook by a lease. What was delivered is noted by its number in the run's log, so whoever holds it
next goes on from there. After a failure it is let go until it is due again; a receiver that hangs holds up no other.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from heapq import heappop, heappush
from typing import TypeVar

from a2a.types.a2a_pb2 import Task, TaskArtifactUpdateEvent
from msgspec import Struct

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound, StoreUnavailable
from amoxi_py.ports.store import Store
from amoxi_py.ports.webhooks import HeldWebhook
from amoxi_py.surfaces.a2a.fold import Told
from amoxi_py.surfaces.a2a.notices import content_type, is_last, notices
from amoxi_py.surfaces.a2a.places import Places
from amoxi_py.surfaces.a2a.posting import Poster, PostFailed
from amoxi_py.surfaces.a2a.push_config import PushConfig, push_config_from_json
from amoxi_py.surfaces.a2a.streaming import numbered_events
from amoxi_py.surfaces.a2a.tasks import Tasks

log = logging.getLogger("amoxi_py.a2a")

T = TypeVar("T")

_PAGE = 100
_ROUNDED_S = 0.01
_RENEWED_AFTER = 1 / 3
"""Of a lease."""
_STORE_AGAIN_S = 1.0
_LAST_MOMENTS = 1.0
_LASTING_TRIES = 3
_A_DAY = RetryPolicy(tries=297, first=1.0, longest=300.0, jitter=0.25, longest_asked=300.0)
"""Pauses of 24 hours in all, chance and what receivers ask for not counted."""


class Pace(Struct, frozen=True, kw_only=True):
    """How many webhooks are held at once, and how fast they are taken and tried again; times are in seconds."""

    most: int = 5000
    lease: float = 30.0
    claim_every: float = 5.0
    retry: RetryPolicy = _A_DAY


class TaskSource:
    """Where deliveries learn of tasks."""

    def __init__(self, engine: Engine, tasks: Tasks) -> None:
        self._engine = engine
        self._tasks = tasks

    def follow(self, held: HeldWebhook, base: str, after: int | None) -> AsyncGenerator[Told, None]:
        """Give what happens to a task after a number of its log; for None, first the task as it is."""
        return numbered_events(self._engine, self._tasks, held.principal, held.webhook.run_id, base, after)

    async def task(self, held: HeldWebhook, base: str) -> Task:
        """Return a task as it is, with its answer."""
        run = await self._tasks.find(held.webhook.run_id, held.principal)
        return await self._tasks.of(run, held.principal, base=base)


class Deliveries:
    """The webhooks that this process holds."""

    def __init__(self, store: Store, source: TaskSource, poster: Poster, pace: Pace) -> None:
        self._store = store
        self._source = source
        self._poster = poster
        self._pace = pace
        self._places = Places()
        self._holder = new_id("holder")
        self._lines: dict[int, _Line] = {}
        self._wake = asyncio.Event()
        self._due: list[float] = []  # when those that were put off here are due, on the loop's clock
        self._rests_until = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take webhooks and to deliver."""
        self._task = asyncio.get_running_loop().create_task(self._work_for_ever())

    async def stop(self) -> None:
        """Cut off what is under way, and let go of all, for other servers."""
        tasks = [task for task in (self._task, *(line.task for line in self._lines.values())) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_MOMENTS)
        try:
            await self._store.release_webhooks(self._holder)
        except StoreUnavailable as error:
            log.debug("webhooks are let go when their leases end: %s", error)

    def wake(self) -> None:
        """Look for webhooks now."""
        self._wake.set()

    def end(self, run_id: str, id: str) -> None:
        """End what goes on for a webhook that was removed or replaced."""
        for line in self._lines.values():
            if (line.held.webhook.run_id, line.held.webhook.id) == (run_id, id):
                line.end()

    async def _work_for_ever(self) -> None:
        away = False
        while True:
            self._wake.clear()
            now = asyncio.get_running_loop().time()
            while self._due and self._due[0] <= now:
                heappop(self._due)
            try:
                await self._claim()
                away = False
            except StoreUnavailable as error:
                log.log(logging.DEBUG if away else logging.WARNING, "webhooks have to wait: %s", error)
                away = True
            except Exception:
                log.exception("taking webhooks failed; it is tried again")
            await self._rest()

    async def _rest(self) -> None:
        """Wait until there may be something to do."""
        pause = min(self._pace.claim_every, self._pace.lease * _RENEWED_AFTER)
        self._rests_until = asyncio.get_running_loop().time() + pause
        if self._due:
            self._rests_until = min(self._rests_until, self._due[0])
        try:
            async with asyncio.timeout_at(self._rests_until):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _renew(self) -> None:
        """Renew the leases of which a third is over."""
        until = self._store.clock.running() + self._pace.lease
        old = until - self._pace.lease * _RENEWED_AFTER
        asked = {key: line for key, line in self._lines.items() if line.until <= old}
        if not asked:
            return
        kept = await self._store.renew_webhooks(self._holder, self._pace.lease, keys=tuple(asked))
        for key, line in asked.items():
            if key in kept:
                line.until = until
            else:  # it was removed or set anew, or this process stood still and it is another server's
                line.end()

    async def _claim(self) -> None:
        """Take all that is due; whose leases are old by then are renewed in between."""
        while True:
            await self._renew()
            if len(self._lines) >= self._pace.most:
                self._make_room()
            most = min(_PAGE, self._pace.most - len(self._lines))
            if most <= 0:
                return
            until = self._store.clock.running() + self._pace.lease
            found = await self._store.claim_webhooks(self._holder, self._pace.lease, most)
            for held in found:
                self._begin(_Line(self._store, self._source, self._poster, self._places, held, until))
            if len(found) < most:
                return

    def _make_room(self) -> None:
        """Drop some that only wait, of who has the most; once their leases end they are in line again.

        Also those that wait for a place: a caller whose receivers hang would have all there is, and keep it.
        """
        of = Counter(line.held.principal.owner_key for line in self._lines.values())
        waiting = [line for line in self._lines.values() if not line.busy]
        waiting.sort(key=lambda line: (-of[line.held.principal.owner_key], line.told_at))
        for line in waiting[:_PAGE]:
            line.end()
            del self._lines[line.held.key]

    def _begin(self, line: _Line) -> None:
        before = self._lines.get(line.held.key)
        if before is not None:
            before.end()
        self._lines[line.held.key] = line
        line.task = asyncio.get_running_loop().create_task(self._deliver(line))

    async def _deliver(self, line: _Line) -> None:
        """Deliver until it is over, or it is let go."""
        run_id = line.held.webhook.run_id
        try:
            await line.deliver()
        except NotFound:
            log.debug("a webhook of run %s is gone", run_id)
        except Lost:
            log.debug("a webhook of run %s is another server's now, or was set anew", run_id)
        except PostFailed as failure:
            await self._put_off(line, failure)
        except Exception:
            log.exception("telling a webhook of run %s failed", run_id)
            await self._put_off(line, PostFailed("the server failed; its log says how"))
        finally:
            if self._lines.get(line.held.key) is line:
                del self._lines[line.held.key]

    async def _put_off(self, line: _Line, failure: PostFailed) -> None:
        held, failures = line.held, line.failures + 1
        chance = random.random()  # noqa: S311 - it only spreads tries
        pause = retry_delay(self._pace.retry, failures, chance=chance, asked=failure.retry_after)
        over = pause is None or (failure.lasting and failures >= _LASTING_TRIES)
        due_at = self._store.clock.now() + (pause or 0.0)
        if not await patiently(lambda: self._store.put_off_webhook(held, due_at, over=over)):
            return
        where = f"run {held.webhook.run_id}: the webhook at {line.config.host}"
        if over:
            log.warning("%s is given up after %d failures: %s", where, failures, failure)
        else:
            log.info("%s failed and is tried again in %.0f s: %s", where, pause, failure)
            due = asyncio.get_running_loop().time() + (pause or 0.0) + _ROUNDED_S
            heappush(self._due, due)
            if due < self._rests_until:
                self.wake()


class Lost(Exception):
    """A webhook is another server's now, or was set anew."""


class _Line:
    """One webhook under one lease, which ends at `until` on the clock that only runs forward.

    It is `busy` while it does not just wait, for news or for a place; all that there was was told at `told_at`.
    """

    def __init__(
        self,
        store: Store,
        source: TaskSource,
        poster: Poster,
        places: Places,
        held: HeldWebhook,
        until: float,
    ) -> None:
        self.held = held
        self.until = until
        self.failures = held.webhook.failures
        self.config: PushConfig = push_config_from_json(held.webhook.content)
        self.task: asyncio.Task[None] | None = None
        self.told_at = store.clock.running()
        self.busy = True
        self._cursor = held.webhook.cursor
        self._store = store
        self._source = source
        self._poster = poster
        self._places = places

    def end(self) -> None:
        """Tell no more."""
        if self.task is not None:
            self.task.cancel()

    async def deliver(self) -> None:
        """Tell what happens until the task has ended.

        Raises:
            PostFailed: the receiver did not take it.
            Lost: it is not this line's any more.
            NotFound: it is gone, or its run.
        """
        while True:
            try:
                if await self._deliver_on():
                    return
            except StoreUnavailable as error:
                log.debug("a webhook of run %s has to wait: %s", self.held.webhook.run_id, error)
            await asyncio.sleep(_STORE_AGAIN_S)

    async def _deliver_on(self) -> bool:
        """Tell what comes after the cursor; return whether that was all there will be."""
        async with aclosing(self._source.follow(self.held, self.config.base, self._cursor or None)) as updates:
            async for seq, update in updates:
                if isinstance(update, TaskArtifactUpdateEvent):
                    continue
                self.busy, over = True, is_last(update)
                for body in await notices(update, self.config.version, self._now):
                    await self._send(body)
                await self._note(seq, over=over)
                if over:
                    return True
                self.busy, self.told_at = False, self._store.clock.running()
        if is_last(await self._now()):  # its end was told before, and noted by nobody
            await self._note(self._cursor, over=True)
            return True
        return False

    async def _now(self) -> Task:
        return await self._source.task(self.held, self.config.base)

    async def _send(self, body: bytes) -> None:
        headers = {"content-type": content_type(self.config.version), **self.config.headers()}
        caller = self.held.principal.owner_key
        self.busy = False
        async with self._places.take(caller, self.config.place):
            self.busy = True
            await self._check()
            await self._poster.post(caller, self.config.url, body, headers)

    async def _check(self) -> None:
        """Find out that it is still this line's."""
        webhook = self.held.webhook
        found = await self._store.find_webhook(webhook.run_id, self.held.principal, webhook.id)
        if found.content != webhook.content or found.cursor != self._cursor or found.over:
            raise Lost
        if self._store.clock.running() >= self.until:
            raise Lost

    async def _note(self, seq: int, *, over: bool) -> None:
        held = self.held
        if not await patiently(lambda: self._store.note_delivery(held, seq, over=over)):
            raise Lost
        self._cursor, self.failures = seq, 0


async def patiently(act: Callable[[], Awaitable[T]]) -> T:
    """Do a verb of the store; while the store is away, wait for it."""
    while True:
        try:
            return await act()
        except StoreUnavailable as error:
            log.debug("webhooks have to wait: %s", error)
            await asyncio.sleep(_STORE_AGAIN_S)
