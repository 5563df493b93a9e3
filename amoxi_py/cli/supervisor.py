"""The process that an operator starts: it keeps server processes alive, renews them when code changed, and stops them.

It executes nothing itself and imports no app, so what it supervises can fail in any way.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any

from amoxi_py.cli.leaving import STOP_SIGNALS, leave_on_signal

READY = b"ready"
_CONTEXT = get_context("spawn")
_CALM_S = 1.0  # a process that lived shorter than this is not started again at once


@dataclass(kw_only=True)
class _Child:
    process: SpawnProcess
    link: Connection
    since: float = field(default_factory=time.monotonic)
    ready: bool = False


class Supervisor:
    """Runs `count` processes of `target(link, *arguments)`; the others are started when the first one is ready.

    So what keeps all of them from starting is told once, and one brings the store up to date.
    `link` is the child's end of a pipe: it sends `READY` when it takes traffic, and reads the end of the pipe when the
    supervisor is gone. `greeting` is printed when all of them are ready; `grace` is what a stop may take, in seconds.
    """

    def __init__(
        self, count: int, target: Callable[..., None], arguments: tuple[Any, ...], *, greeting: str, grace: float
    ) -> None:
        self._count = count
        self._target = target
        self._arguments = arguments
        self._greeting = greeting
        self._grace = grace
        self._children: list[_Child] = []
        self._stopping = False

    def run(self, changed: Iterator[bool] | None = None) -> int:
        """Run until a signal ends it; return the exit code: 1 when the first start failed.

        Args:
            changed: Waits a moment at each turn and says whether code changed; None when nobody looks.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._children = [self._spawn()]
        started = False
        while not self._stopping:
            if changed is None:
                time.sleep(0.1)
            elif next(changed, False):
                self._renew()
            if self._stopping:
                break
            self._note_ready()
            started = started or any(child.ready for child in self._children)
            if not started and self._could_not_start():  # later ones may die of a run, and are started anew
                self._stop()
                return 1
            self._complete()
            self._revive(only_if_it_ran=changed is not None)
        self._stop()
        return 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _spawn(self) -> _Child:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_run_child, args=(self._target, theirs, _stdin(), *self._arguments))
        with _interrupts_held():
            process.start()
        theirs.close()
        return _Child(process=process, link=ours)

    def _note_ready(self) -> None:
        waited = not self._all_ready()
        for child in self._children:
            try:
                if not child.ready and child.link.poll() and child.link.recv_bytes() == READY:
                    child.ready = True
            except (EOFError, OSError):
                pass  # it ended before it was ready, which is seen by its process
        if waited and self._all_ready():
            print(self._greeting, flush=True)

    def _all_ready(self) -> bool:
        return len(self._children) == self._count and all(child.ready for child in self._children)

    def _complete(self) -> None:
        if self._children[0].ready:
            self._children += [self._spawn() for _ in range(self._count - len(self._children))]

    def _could_not_start(self) -> bool:
        failed = [child for child in self._children if not child.process.is_alive()]
        for child in failed:
            if child.process.exitcode != 1:  # with 1 it has said why by itself
                print(
                    f"amoxi: process {child.process.pid} ended with {child.process.exitcode} before it was ready",
                    file=sys.stderr,
                )
        return bool(failed)

    def _renew(self) -> None:
        self._stop()
        self._children = [self._spawn()]

    def _revive(self, *, only_if_it_ran: bool) -> None:
        """Start anew what ended by itself; in development, what could not start waits for the next change."""
        for place, child in enumerate(self._children):
            if child.process.is_alive() or (only_if_it_ran and not child.ready):
                continue
            if time.monotonic() - child.since < _CALM_S:
                continue
            print(
                f"amoxi: process {child.process.pid} ended with {child.process.exitcode}; starting another",
                file=sys.stderr,
            )
            child.link.close()
            self._children[place] = self._spawn()

    def _stop(self) -> None:
        for child in self._children:
            if child.process.is_alive():
                child.process.terminate()
        deadline = time.monotonic() + self._grace + 3.0
        for child in self._children:
            child.process.join(max(0.0, deadline - time.monotonic()))
            if child.process.is_alive():
                print(f"amoxi: process {child.process.pid} did not stop in time and is killed", file=sys.stderr)
                child.process.kill()
                child.process.join()
            child.link.close()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Start a process with Ctrl-C held back: a terminal sends it to all, and a new one cannot handle it yet."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its own start would let the signal through again
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _run_child(target: Callable[..., None], link: Connection, stdin: int | None, *arguments: Any) -> None:
    leave_on_signal()
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if stdin is not None:
        sys.stdin = os.fdopen(stdin)  # so that a debugger can be used in development
    target(link, *arguments)


def _stdin() -> int | None:
    try:
        return sys.stdin.fileno() if sys.stdin.isatty() else None
    except (AttributeError, OSError, ValueError):
        return None
