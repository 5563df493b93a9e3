"""Threads for sync tools: daemon threads of our own, because a tool that never returns must not hold up the exit."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Set
from typing import Any, TypeVar, cast

T = TypeVar("T")
_QUICK_S = 0.0001


class _QuickTurns:
    """Lets the interpreter change between threads quickly while a block is executed in any of them.

    With the usual interval a tool that computes holds the whole server back: each thing that the event loop does would
    wait for 5 ms. With a short one all the time, the loop and the store's thread hinder each other: a fifth of a turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = 0
        self._usual = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _QUICK_S))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                sys.setswitchinterval(self._usual)


QUICK_TURNS = _QuickTurns()


class ThreadPool:
    """At most `limit` threads, started when they are needed; calls beyond wait for a free one.

    `left_behind` holds a future for each function that goes on after the waiting for it was cancelled.
    """

    def __init__(self, limit: int) -> None:
        self.left_behind: set[asyncio.Future[Any]] = set()
        self._limit = limit
        self._threads = 0
        self._idle = 0
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def submit(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function in a thread; a cancelled future keeps it from starting, but not from ending."""
        future, job = as_job(function)
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._threads < self._limit:  # before the job is put: one that is refused here must never run
                threading.Thread(target=self._work, name=f"amoxi-tool-{self._threads + 1}", daemon=True).start()
                self._threads += 1
            self._jobs.put(job)
        return future

    async def run(self, function: Callable[[], T], *lingering: set[asyncio.Future[Any]]) -> T:
        """Run a function in a thread and return what it does.

        When the waiting is cancelled, a function that has not started never does; for one that has, a future is put
        into each set of `lingering` until it ends.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()
        begin = _Beginning()

        def tracked() -> T | None:
            if not begin.take():
                return None
            try:
                return function()
            finally:
                _call_loop(loop, _deliver, ended, None, None)

        try:
            return cast(T, await self.submit(tracked))  # in no variable: an error's frames would keep it
        except asyncio.CancelledError:
            if not begin.take() and not ended.done():
                for running in (self.left_behind, *lingering):
                    running.add(ended)
                    ended.add_done_callback(running.discard)
            raise

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            with QUICK_TURNS:
                job()
            del job  # it knows what the function was made of
            with self._lock:
                self._idle += 1


def as_job(function: Callable[[], T]) -> tuple[asyncio.Future[T], Callable[[], None]]:
    """Return a future of this loop, and the job that runs the function and fulfils it from any thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    awaited: asyncio.Future[T] | None = future

    def job() -> None:
        nonlocal awaited
        if awaited is None or awaited.cancelled():
            return
        outcome: Any = None
        failure: BaseException | None = None
        try:
            outcome = function()
        except BaseException as error:  # noqa: BLE001 - whatever a tool raises belongs to who awaits it
            failure = error
        _call_loop(loop, _deliver, awaited, outcome, failure)
        # An error knows this frame; what the frame knows must not lead back to the error.
        awaited = failure = None

    return future, job


class _Beginning:
    """Decides once who was first: the thread that begins, or the caller that gives up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False

    def take(self) -> bool:
        """Return whether this is the first to ask."""
        with self._lock:
            first, self._taken = not self._taken, True
        return first


def _call_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:  # the loop is closed: the process ends and nobody waits
        pass


def _deliver(future: asyncio.Future[T], outcome: T, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(outcome)
    elif isinstance(failure, (StopIteration, GeneratorExit)):  # the one a future refuses; both mean other things there
        future.set_exception(RuntimeError(f"the function raised {type(failure).__name__}"))
    else:
        future.set_exception(failure)


async def all_done(running: Set[asyncio.Future[Any]]) -> None:
    """Return when a set that its members leave when they are done is empty; more may come meanwhile."""
    while running:
        await asyncio.wait(tuple(running))
