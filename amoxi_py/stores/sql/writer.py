"""The one thread of a process that writes: verbs that wait at the same moment share a transaction."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from asyncio import Future as LoopFuture
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from amoxi_py.domain.event import Event
from amoxi_py.ports.measures import StoreMeasures
from amoxi_py.stores.sql.verb import Answer, Verb

Caller = LoopFuture[Any] | ThreadFuture[Any]
Waiting = list[tuple[Verb, Caller]]
Settled = list[tuple[LoopFuture[Any], Answer]]
Deliver = Callable[[Sequence[Event], Settled], None]

log = logging.getLogger("amoxi_py.stores")

_BATCH = 512
_CROWDED = 1.25
_GAP_S = 0.0045


class VerbWriter(ABC):
    """Takes verbs from a queue and makes them durable.

    `deliver` is called from the thread with the events of each transaction, and the answers of callers on the loop;
    callers in threads get theirs at once, whatever the loop does.

    A transaction costs as much as several verbs. So while many wait at once, one begins at most every 4.5 ms and takes
    all that has come by then; verbs that come one at a time, each after the answer to the one before, never wait.
    """

    def __init__(self, deliver: Deliver, *, idle_every_s: float | None = None) -> None:
        self.commits = 0
        self.measures = StoreMeasures()
        self._deliver = deliver
        self._told: list[Event] = []
        self._idle_every_s = idle_every_s
        self._begun = 0.0
        self._usual = 1.0
        self._queue: SimpleQueue[Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="amoxi-store", daemon=True)

    def start(self, measures: StoreMeasures) -> None:
        """Begin to work, and to count it."""
        self.measures = measures
        self._thread.start()

    def put(self, waiting: Waiting) -> None:
        """Accept verbs; their callers get the answers when they are durable."""
        self._queue.put(waiting)

    def stop(self) -> None:
        """Do what was accepted, then close the connection; blocks."""
        self._queue.put(None)
        self._thread.join()

    @abstractmethod
    def _transact(self, verbs: list[Verb]) -> list[Answer]:
        """Do verbs in one transaction, and keep its events in `_told`."""

    def _transact_alone(self, verb: Verb) -> list[Answer]:
        """Do a verb by itself, after a transaction of several failed."""
        return self._transact([verb])

    @abstractmethod
    def _failure(self, error: Exception) -> Exception:
        """Return what callers are told of an error that undid a transaction."""

    @abstractmethod
    def _idle(self) -> None:
        """Do what is to be done while nothing waits."""

    @abstractmethod
    def _close(self) -> None:
        """Disconnect."""

    def _worth_trying_alone(self, failure: Exception) -> bool:
        """Whether a verb may go through by itself after a transaction of several failed."""
        return True

    def _work(self) -> None:
        while True:
            waiting, more = self._take()
            try:
                if waiting:
                    self._perform(waiting)
                elif more:
                    self._idle()
            except Exception:
                log.exception("the store's writer failed; it goes on")
            if not more:
                break
        self._close()

    def _take(self) -> tuple[Waiting, bool]:
        """Return what waits, and whether more may come."""
        waiting: Waiting = []
        try:
            item = self._queue.get(timeout=self._idle_every_s)
            if item is not None and self._usual > _CROWDED:
                time.sleep(max(0.0, self._begun + _GAP_S - time.perf_counter()))
            while item is not None:
                waiting.extend(item)
                if len(waiting) >= _BATCH:
                    return waiting, True
                item = self._queue.get_nowait()
        except Empty:
            return waiting, True
        return waiting, False

    def _perform(self, waiting: Waiting) -> None:
        self._begun = begun = time.perf_counter()
        self._usual += (len(waiting) - self._usual) / 10
        answers = self._try(partial(self._transact, [verb for verb, _ in waiting]))
        if isinstance(answers, list):
            self.measures.commit_seconds.observe(time.perf_counter() - begun)
            self.measures.batch_size.observe(len(waiting))
            self._tell(waiting, answers)
            return
        if not self._worth_trying_alone(answers):
            self._tell(waiting, [Answer(error=answers)] * len(waiting))
            return
        for verb, caller in waiting:  # sent again, because the answer to the commit may be all that was lost
            answers = self._try(partial(self._transact_alone, verb))
            self._tell([(verb, caller)], answers if isinstance(answers, list) else [Answer(error=answers)])

    def _try(self, transact: Callable[[], list[Answer]]) -> list[Answer] | Exception:
        try:
            return transact()
        except Exception as error:  # noqa: BLE001 - a mistake in one verb is for its caller to hear; the thread goes on
            return self._failure(error)

    def _tell(self, waiting: Waiting, answers: list[Answer]) -> None:
        settled: Settled = []
        for (_, caller), answer in zip(waiting, answers, strict=True):
            if isinstance(caller, LoopFuture):
                settled.append((caller, answer))
            elif answer.error is not None:
                caller.set_exception(answer.error)
            else:
                caller.set_result(answer.value)
        events, self._told = self._told, []
        if events or settled:
            self._deliver(events, settled)
