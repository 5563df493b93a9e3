"""What `amoxi dev` supervises: the app as it was saved last, changed for a newer one without losing a run.

The new process imports and checks the app while the old one goes on. Only when that went well is the old one asked to
hand over; the new one begins when it has, so that what exists once in a process is not there twice. What cannot be
cut off, such as a thread, may go on for the grace in the old process while the new one serves.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from amoxi_py.cli.child import Child, longest_stop, stop_all
from amoxi_py.cli.leaving import STOP_SIGNALS
from amoxi_py.cli.saves import read_saves
from amoxi_py.cli.supervisor import tell_failed_start, tell_sudden_end

_LOOK_AGAIN_S = 0.25
_CALM_S = 1.0
_LONGEST_HANDOVER_S = 1.5
_FOREVER = float("inf")


class Reloader:
    """Runs one process of `target(lead, *arguments)`, and another in its place after each save.

    `greeting` is printed when the first one is ready; `way_to_kill(pid of the ready one)` follows it, and again when it
    has become another. `grace` is what a stop may take, in seconds. `saves` is where saved files are told, None when
    nobody looks.
    """

    def __init__(
        self,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        greeting: str,
        way_to_kill: Callable[[int], str | None] = lambda pid: None,
        grace: float,
        saves: Connection | None,
    ) -> None:
        self._target = target
        self._arguments = arguments
        self._greeting = greeting
        self._way_to_kill = way_to_kill
        self._told_way: str | None = None
        self._grace = grace
        self._saves = saves
        self._current: Child | None = None
        self._next: Child | None = None
        self._leaving: dict[Child, float] = {}
        self._begin_at = _FOREVER
        self._saved: list[str] = []
        self._saved_at = 0.0
        self._answered = False
        self._dead_workers: list[str] = []
        self._stopping = False

    def run(self) -> int:
        """Run until a signal ends it; return the exit code: 1 when the first start failed."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._next = self._spawn()
        failed = False
        while not self._stopping and not failed:
            self._wait()
            if self._stopping:
                break
            self._look_for_saves()
            self._look_after_next()
            self._look_after_current()
            self._look_after_leaving()
            failed = not self._answered and self._current is None and self._next is None
        stop_all([child for child in (self._next, self._current, *self._leaving) if child is not None], self._grace)
        return 1 if failed else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _spawn(self) -> Child:
        return Child(self._target, self._arguments)

    def _wait(self) -> None:
        """Return when something is to be done, and four times a second in any case."""
        sources: list[Any] = [] if self._saves is None else [self._saves]
        for child in (self._next, self._current):
            if child is not None and child.alive:  # one that has ended would end each wait at once
                sources += [child.process.sentinel, child.link]
        sources += [child.process.sentinel for child in self._leaving]
        wait(sources, timeout=_LOOK_AGAIN_S)

    def _look_for_saves(self) -> None:
        if self._saves is not None:
            self._saved += read_saves(self._saves)
        if not self._saved or self._takes_over():
            return
        saved, self._saved = list(dict.fromkeys(self._saved)), []
        what = saved[0] if len(saved) == 1 else f"{saved[0]} and {len(saved) - 1} more"
        print(f"amoxi: {what} changed; starting the app anew", flush=True)
        self._saved_at = time.monotonic()
        if self._next is not None:  # an older save's, which has not begun
            self._discard(self._next)
        self._next = self._spawn()

    def _takes_over(self) -> bool:
        """Whether the next one is all there is, because the one before was let go: it must not be given up for a save.

        It begins after the longest handover at the latest, and what was saved meanwhile is looked at then.
        """
        return self._current is None and self._next is not None and self._next.prepared and self._next.alive

    def _look_after_next(self) -> None:
        child = self._next
        if child is None:
            return
        child.hear()
        if not child.alive:
            self._next = None
            self._discard(child)
            tell_failed_start(child)
            self._tell_what_answers()
        elif child.prepared and self._current is not None:
            self._let_go(self._current)
            self._current = None
        elif child.prepared and (time.monotonic() >= self._begin_at or not any(one.alive for one in self._leaving)):
            self._begin_at = _FOREVER
            child.begin()
            self._current, self._next = child, None

    def _let_go(self, old: Child) -> None:
        old.hand_over()
        self._leaving[old] = time.monotonic() + longest_stop(self._grace)
        self._begin_at = time.monotonic() + _LONGEST_HANDOVER_S

    def _look_after_current(self) -> None:
        child = self._current
        if child is None:
            return
        waited = not child.ready
        child.hear()
        if child.ready and waited:
            self._tell_ready()
        if child.ready:
            self._tell_of_dead(child)
        if child.alive:
            return
        if not child.ready:
            self._current = None
            self._discard(child)
            tell_failed_start(child)
            self._tell_what_answers()
        elif self._next is None and time.monotonic() - child.since >= _CALM_S:
            self._current = None
            self._note_end(child)
            self._discard(child)
            tell_sudden_end(child)
            self._next = self._spawn()

    def _look_after_leaving(self) -> None:
        now = time.monotonic()
        for child, deadline in list(self._leaving.items()):
            if not child.alive or now >= deadline:
                del self._leaving[child]
                self._note_end(child)
                child.end(deadline)

    def _note_end(self, child: Child) -> None:
        """Remember whose runs are to be taken up; it may have handed all of them over."""
        child.hear()
        if child.worker is not None:
            self._dead_workers.append(child.worker)

    def _tell_of_dead(self, living: Child) -> None:
        for worker in self._dead_workers:
            living.tell_dead(worker)
        self._dead_workers = []

    def _discard(self, child: Child) -> None:
        child.terminate()
        child.end(time.monotonic() + longest_stop(self._grace))

    def _tell_ready(self) -> None:
        if self._answered:
            print(f"amoxi: the new version answers after {time.monotonic() - self._saved_at:.1f} s", flush=True)
        else:
            print(self._greeting, flush=True)
        self._answered = True
        pid = None if self._current is None else self._current.process.pid
        way = None if pid is None else self._way_to_kill(pid)
        if way is not None and way != self._told_way:
            print(way, flush=True)
        self._told_way = way

    def _tell_what_answers(self) -> None:
        if self._current is not None:
            print("amoxi: the version before goes on until the next save", file=sys.stderr, flush=True)
        elif self._answered:
            print("amoxi: nothing answers until the next save", file=sys.stderr, flush=True)
