"""The process that an operator starts: it keeps several server processes alive and stops them.

It executes nothing itself and imports no app, so what it supervises can fail in any way. That a process is dead it
knows from the system, at once and for sure; so the others take up its runs without waiting for a lease to end.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from amoxi_py.cli.child import Child, stop_all
from amoxi_py.cli.leaving import STOP_SIGNALS

_LOOK_AGAIN_S = 0.1
_LONGEST_PAUSE_S = 30.0
_MOST_FAILED = 5


class Supervisor:
    """Runs `count` processes of `target(lead, *arguments)`; the others are started when the first one is ready.

    So what keeps all of them from starting is told once, and one brings the store up to date. To the first one `count`
    is given as a last argument, because what concerns all of them is its part to look at. `greeting` is printed
    when all of them are ready; `grace` is what a stop may take, in seconds.

    A process that ends by itself is started anew, at the earliest `calm` seconds after it was started. While that
    fails again and again, the pauses grow from that on, and when nothing serves any more, the supervisor ends.
    `on_stop` is called when a signal asks for it, before the processes are asked to stop.
    """

    def __init__(
        self,
        count: int,
        target: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        greeting: str,
        grace: float,
        calm: float = 1.0,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._count = count
        self._target = target
        self._arguments = arguments
        self._greeting = greeting
        self._grace = grace
        self._calm = calm
        self._on_stop = on_stop
        self._children: list[Child] = []
        self._ended: set[Child] = set()
        self._dead_workers: list[str] = []
        self._failed_starts = 0
        self._start_after = 0.0
        self._stopping = False

    def run(self) -> int:
        """Run until a signal ends it.

        Return the exit code: 1 when the first start failed, no process could be kept alive, or a stop failed.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._children = [Child(self._target, (*self._arguments, self._count))]
        started = False
        while not self._stopping:
            time.sleep(_LOOK_AGAIN_S)
            if self._stopping:
                break
            self._hear()
            started = started or any(child.ready for child in self._children)
            if not started and self._could_not_start():  # later ones may die of a run, and are started anew
                stop_all(self._children, self._grace)
                return 1
            self._note_ends()
            self._tell_of_dead()
            if self._lost:
                self._tell_lost()
                stop_all(self._children, self._grace)
                return 1
            self._complete()
            self._revive()
        self._on_stop()
        stop_all(self._children, self._grace)
        return 1 if any(child.process.exitcode == 1 for child in self._children) else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _spawn(self) -> Child:
        return Child(self._target, self._arguments)

    def _hear(self) -> None:
        waited = not self._all_ready()
        for child in self._children:
            was_ready = child.ready
            child.hear()
            if child.ready and not was_ready:
                self._failed_starts = 0
            if child.prepared and not child.begun:
                child.begin()
        if waited and self._all_ready():
            print(self._greeting, flush=True)

    def _all_ready(self) -> bool:
        return len(self._children) == self._count and all(child.ready for child in self._children)

    def _complete(self) -> None:
        if self._children[0].ready:
            self._children += [self._spawn() for _ in range(self._count - len(self._children))]

    def _could_not_start(self) -> bool:
        failed = [child for child in self._children if not child.alive]
        for child in failed:
            tell_failed_start(child)
        return bool(failed)

    def _note_ends(self) -> None:
        """Take note of each process that has ended, once: whose runs are to be taken up, and when another may start."""
        now = time.monotonic()
        for child in self._children:
            if child.alive or child in self._ended:
                continue
            self._ended.add(child)
            child.hear()  # what it has said before it died
            if child.worker is not None:
                self._dead_workers.append(child.worker)
            if child.ready:
                pause = max(0.0, self._calm - (now - child.since))
            else:
                pause = min(self._calm * 2**self._failed_starts, _LONGEST_PAUSE_S)
                self._failed_starts += 1
            self._start_after = max(self._start_after, now + pause)
            tell_sudden_end(child, None if self._lost else pause)

    def _tell_of_dead(self) -> None:
        """Let those that live take up the runs of those that died; while none is ready, the next one that is."""
        living = [child for child in self._children if child.ready and child.alive]
        if not living:
            return
        for worker in self._dead_workers:
            for child in living:
                child.tell_dead(worker)
        self._dead_workers = []

    @property
    def _lost(self) -> bool:
        """Whether starts fail in a row and nothing serves: what started this program may know a way out."""
        return self._failed_starts >= _MOST_FAILED and not any(child.alive for child in self._children)

    def _tell_lost(self) -> None:
        print(
            f"amoxi: {self._failed_starts} processes in a row have ended before they were ready, and no other is "
            "left; the lines above say why",
            file=sys.stderr,
        )

    def _revive(self) -> None:
        """Start anew what ended by itself; one at a time where it is not known that a start goes well."""
        if time.monotonic() < self._start_after:
            return
        proven = not self._failed_starts and any(child.ready and child.alive for child in self._children)
        if not proven and any(child.alive and not child.ready for child in self._children):
            return
        for place, child in enumerate(self._children):
            if child not in self._ended:
                continue
            self._ended.remove(child)
            child.link.close()
            self._children[place] = self._spawn()
            if not proven:
                return


def tell_failed_start(child: Child) -> None:
    """Say that a process ended before it was ready, unless it has said why by itself."""
    if child.process.exitcode != 1:
        print(f"amoxi: {child.name} {child.how_it_ended} before it was ready", file=sys.stderr)


def tell_sudden_end(child: Child, pause: float | None = 0.0) -> None:
    """Say that a process ended by itself and another takes its place, after so many seconds; none does for None."""
    ready = "" if child.ready else " before it was ready"
    then = "" if pause is None else f"; starting another in {pause:.0f} s" if pause >= 1 else "; starting another"
    print(f"amoxi: {child.name} {child.how_it_ended}{ready}{then}", file=sys.stderr)
