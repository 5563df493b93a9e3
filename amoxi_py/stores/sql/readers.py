"""A few threads that read, each from snapshots of its own connection; no snapshot outlives its read."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from amoxi_py.errors import StoreUnavailable
from amoxi_py.stores.sql.transaction import Transaction

Read = Callable[[Transaction], Any]
_Waiting = tuple[Read, "asyncio.Future[Any]"]
_Answer = tuple["asyncio.Future[Any]", Any, Exception | None]

_TOGETHER = 4
_KEEP_S = 0.002


class Readers(ABC):
    """Runs reads in threads; short ones that are asked for in the same turn of the loop go to a thread together."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="amoxi-read")
        self._gathered: list[_Waiting] = []

    def read(self, read: Read) -> asyncio.Future[Any]:
        """Run a read in one snapshot."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._gathered.append((read, future))
        if len(self._gathered) == 1:
            loop.call_soon(self._hand_over, loop)
        return future

    def close(self) -> None:
        """Wait for reads that go on, then disconnect; blocks."""
        self._pool.shutdown(wait=True)
        self._disconnect()

    @abstractmethod
    def _attempt(self, read: Read) -> tuple[Any, Exception | None]:
        """Run a read in one snapshot, in a thread; return its value, or the error for its caller."""

    @abstractmethod
    def _closed(self) -> StoreUnavailable:
        """Return the error for a read that comes after the end."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the threads' connections."""

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered, self._gathered = self._gathered, []
        share = max(_TOGETHER, -(-len(gathered) // self._threads))
        for start in range(0, len(gathered), share):
            part = gathered[start : start + share]
            try:
                self._pool.submit(self._read_all, loop, part)
            except RuntimeError:  # closed in the meantime
                _settle([(future, None, self._closed()) for _, future in part])

    def _read_all(self, loop: asyncio.AbstractEventLoop, waiting: list[_Waiting]) -> None:
        answers: list[_Answer] = []
        begun = time.perf_counter()
        for read, future in waiting:
            answers.append((future, *self._attempt(read)))
            if time.perf_counter() - begun > _KEEP_S:  # a long read does not keep its neighbours waiting
                _deliver(loop, answers)
                answers = []
                begun = time.perf_counter()
        if answers:
            _deliver(loop, answers)


def _deliver(loop: asyncio.AbstractEventLoop, answers: list[_Answer]) -> None:
    try:
        loop.call_soon_threadsafe(_settle, answers)
    except RuntimeError:  # the loop is closed: nobody is there to hear
        pass


def _settle(answers: list[_Answer]) -> None:
    for future, value, error in answers:
        if future.done():  # its task was cancelled while it waited
            continue
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
