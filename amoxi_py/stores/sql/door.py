"""The way of verbs from callers on an event loop to the writer's thread, and of answers and events back."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Future as LoopFuture
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from amoxi_py.domain.event import Event
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.measures import StoreMeasures
from amoxi_py.stores.sql.readers import Readers
from amoxi_py.stores.sql.transaction import Transaction
from amoxi_py.stores.sql.verb import Verb
from amoxi_py.stores.sql.writer import Settled, VerbWriter, Waiting

T = TypeVar("T")


class VerbDoor(ABC):
    """Where verbs of callers go in, and reads; what both are is said by who has this."""

    def __init__(self, readers: Readers) -> None:
        self._measures = StoreMeasures()
        self._readers = readers
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writer: VerbWriter | None = None
        self._gathered: Waiting = []

    @property
    def measures(self) -> StoreMeasures:
        return self._measures

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """The clock that the rows' times are of."""

    @abstractmethod
    def _closed(self) -> StoreUnavailable:
        """Return the error for what is asked before `open` or after `close`."""

    @abstractmethod
    def _publish(self, events: Sequence[Event]) -> None:
        """Tell events that this process has committed, on the loop."""

    def _put(self, verb: Verb) -> LoopFuture[Any]:
        """Queue a verb for a transaction that others may share; the future has its value when it is durable."""
        loop = self._loop
        if self._writer is None or loop is None:
            raise self._closed()
        caller: LoopFuture[Any] = loop.create_future()
        self._gathered.append((verb, caller))
        self.measures.waiting += 1
        if len(self._gathered) == 1:  # what the same turn of the loop asks for goes in together, and into one commit
            loop.call_soon(self._hand_over)
        return caller

    def _hand_over(self) -> None:
        gathered, self._gathered = self._gathered, []
        if self._writer is not None and gathered:
            self._writer.put(gathered)

    def _deliver(self, events: Sequence[Event], settled: Settled) -> None:
        """Hand a transaction's events and answers to the loop, from the writer's thread, in one go."""
        self._on_loop(self._tell, events, settled)

    def _on_loop(self, callback: Callable[..., None], *args: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody is there to hear
            pass

    def _tell(self, events: Sequence[Event], settled: Settled) -> None:
        try:
            if events:
                self._publish(events)
        except BaseException:
            self.measures.dropped_events += len(events)
            raise
        finally:
            self.measures.waiting -= len(settled)
            for caller, answer in settled:
                if caller.done():  # its task was cancelled while it waited
                    continue
                if answer.error is None:
                    caller.set_result(answer.value)
                else:
                    caller.set_exception(answer.error)

    async def _perform(self, verb: Verb) -> Any:
        return await self._put(verb)

    async def _read(self, read: Callable[[Transaction], T]) -> T:
        """Read from one snapshot of what is committed."""
        if self._writer is None:
            raise self._closed()
        return cast(T, await self._readers.read(read))
