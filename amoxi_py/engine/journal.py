"""Writes one run's changes in order under its lease, again and again while the store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from amoxi_py.domain.event import NewEvent
from amoxi_py.domain.run import Lease
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.engine.redaction import NOTHING_HIDDEN, Redaction
from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.changes import Change
from amoxi_py.ports.store import Store
from amoxi_py.ports.transactions import StepPlace, Work

T = TypeVar("T")
Tell = Callable[[Sequence[NewEvent]], tuple[NewEvent, ...]]
_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 1.0


class Journal:
    """The changes of one run under one lease, numbered from 1; `pending` of them are waited for at this moment.

    `tell` says whose the events of a child run are; `redaction` is what whoever makes a change hides with.
    """

    def __init__(
        self, store: Store, lease: Lease, tell: Tell | None = None, redaction: Redaction = NOTHING_HIDDEN
    ) -> None:
        self.lease = lease
        self.redaction = redaction
        self._tell = tell
        self._store = store
        self._number = 0
        self._loose: set[asyncio.Task[None]] = set()
        self.closed = False
        self.pending = 0

    def change(self, **parts: Any) -> Change:
        """Return a change with the next number; it must be written, because later ones wait for it."""
        self._number += 1
        if self._tell is not None and "events" in parts:
            parts["events"] = self._tell(parts["events"])
        return Change(lease=self.lease, number=self._number, **parts)

    def write(self, change: Change) -> Awaitable[float | None]:
        """Queue the change at once; the awaitable is done when it is durable, and raises `LeaseLost` if it never is.

        It gives the time as `Store.write` does.
        """
        if self.closed:
            raise LeaseLost(self.lease.run_id)
        return self._until_durable(change, self._store.write(change))

    def write_soon(self, change: Change, then: Callable[[], None] | None = None) -> None:
        """Queue a change that nobody waits for; `then` is called when it is durable."""
        if self.closed:
            return
        try:
            first = self._store.write(change)
        except StoreUnavailable:  # closed in the meantime: the process ends
            return
        first.add_done_callback(lambda future: self._written_soon(change, future, then))

    def pause(self, change: Change, until: float | None, kinds: tuple[str, ...]) -> Awaitable[bool]:
        """Queue a pause in the order of changes; see `Store.pause`."""
        return self.persist(lambda: self._store.pause(change, until, kinds))

    async def commit_step(self, turn: int, n: int, name: str, work: Work, *, threaded: bool) -> StepRecord:
        """Do work whose outcome is recorded in the same commit; see `TransactionStore.commit_step`."""
        place = StepPlace(lease=self.lease, turn=turn, n=n, name=name)
        return await self.persist(lambda: self._store.commit_step(place, work, threaded=threaded))

    async def persist(self, verb: Callable[[], Awaitable[T]]) -> T:
        """Return what a verb answers, calling it again while the store is away."""
        pause = _FIRST_PAUSE
        while True:
            if self.closed:
                raise LeaseLost(self.lease.run_id)
            try:
                return await verb()
            except StoreUnavailable:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def void(self, change: Change) -> None:
        """Use up the number of a change that was refused for good, so that later ones need not wait for it."""
        await self.write(Change(lease=self.lease, number=change.number))

    def close(self) -> None:
        """Write nothing more: the lease is lost, or the run is given away."""
        self.closed = True

    def _written_soon(
        self, change: Change, future: asyncio.Future[float | None], then: Callable[[], None] | None
    ) -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if failure is None:
            if then is not None:
                then()
        elif isinstance(failure, StoreUnavailable) and not self.closed:
            task = future.get_loop().create_task(self._write_again(change, then))
            self._loose.add(task)
            task.add_done_callback(self._loose.discard)

    async def _write_again(self, change: Change, then: Callable[[], None] | None) -> None:
        try:
            await self._until_durable(change, self._store.write(change))
        except LeaseLost:
            return
        if then is not None:
            then()

    async def _until_durable(self, change: Change, written: asyncio.Future[float | None]) -> float | None:
        self.pending += 1
        try:
            return await written
        except StoreUnavailable:
            await asyncio.sleep(_FIRST_PAUSE)
            return await self.persist(lambda: self._store.write(change))
        finally:
            self.pending -= 1
