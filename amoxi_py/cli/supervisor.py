"""The process that an operator starts: it keeps several server processes alive and stops them.

It executes nothing itself and imports no app, so what it supervises can fail in any way.
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
_CALM_S = 1.0  # a process that lived shorter than this is not started again at once


class Supervisor:
    """Runs `count` processes of `target(lead, *arguments)`; the others are started when the first one is ready.

    So what keeps all of them from starting is told once, and one brings the store up to date. To the first one `count`
    is given as a last argument, because what concerns all of them is its part to look at. `greeting` is printed
    when all of them are ready; `grace` is what a stop may take, in seconds.
    """

    def __init__(
        self, count: int, target: Callable[..., None], arguments: tuple[Any, ...], *, greeting: str, grace: float
    ) -> None:
        self._count = count
        self._target = target
        self._arguments = arguments
        self._greeting = greeting
        self._grace = grace
        self._children: list[Child] = []
        self._stopping = False

    def run(self) -> int:
        """Run until a signal ends it; return the exit code: 1 when the first start failed, or a stop did."""
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
            self._complete()
            self._revive()
        stop_all(self._children, self._grace)
        return 1 if any(child.process.exitcode == 1 for child in self._children) else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _spawn(self) -> Child:
        return Child(self._target, self._arguments)

    def _hear(self) -> None:
        waited = not self._all_ready()
        for child in self._children:
            child.hear()
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

    def _revive(self) -> None:
        """Start anew what ended by itself."""
        for place, child in enumerate(self._children):
            if child.alive or time.monotonic() - child.since < _CALM_S:
                continue
            tell_sudden_end(child)
            child.link.close()
            self._children[place] = self._spawn()


def tell_failed_start(child: Child) -> None:
    """Say that a process ended before it was ready, unless it has said why by itself."""
    if child.process.exitcode != 1:
        print(f"amoxi: {child.name} ended with {child.process.exitcode} before it was ready", file=sys.stderr)


def tell_sudden_end(child: Child) -> None:
    """Say that a process ended by itself and another takes its place."""
    print(f"amoxi: {child.name} ended with {child.process.exitcode}; starting another", file=sys.stderr)
