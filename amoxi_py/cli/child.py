"""One server process of a supervisor, and the words that the two say to each other over a pipe.

The process says `PREPARED` when the app is imported and checked, waits for `BEGIN`, and says `READY` when it takes
traffic. `WORKER` tells under which id it executes runs, and `DEAD` which such id has no process any more. `HAND_OVER`
asks it to stop because another one goes on with its runs. The end of the pipe is the end of the one that held it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from amoxi_py.cli.leaving import leave_on_signal

_PREPARED = b"prepared"
_BEGIN = b"begin"
_READY = b"ready"
_HAND_OVER = b"hand over"
_WORKER = b"worker "
_DEAD = b"dead "
_CONTEXT = get_context("spawn")
_AFTER_GRACE_S = 3.0


class Child:
    """A process that runs `target(lead, *arguments)`, seen from its supervisor.

    Attributes:
        process: The process.
        link: Our end of the pipe; call `hear` when something can be read.
        since: When it was started, on the clock `time.monotonic`.
        prepared: Whether its app is imported and in order.
        begun: Whether it was told to begin.
        ready: Whether it takes traffic.
        worker: The id under which it executes runs, in the store; None when it has told none.
    """

    def __init__(self, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self.link, theirs = _CONTEXT.Pipe()
        self.process = _CONTEXT.Process(target=_run, args=(target, theirs, _stdin(), *arguments))
        self.since = time.monotonic()
        self.prepared = self.begun = self.ready = False
        self.worker: str | None = None
        with _interrupts_held():
            self.process.start()
        theirs.close()

    @property
    def alive(self) -> bool:
        """Whether the process has not ended."""
        return self.process.is_alive()

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"process {self.process.pid}"

    @property
    def how_it_ended(self) -> str:
        """What became of it, in words; for one that has ended."""
        code = self.process.exitcode or 0
        return f"ended with {code}" if code >= 0 else f"was killed by {_name_of_signal(-code)}"

    def hear(self) -> None:
        """Take in what it has said."""
        try:
            while self.link.poll():
                said = self.link.recv_bytes()
                self.prepared = self.prepared or said == _PREPARED
                self.ready = self.ready or said == _READY
                if said.startswith(_WORKER):
                    self.worker = said.removeprefix(_WORKER).decode()
        except (EOFError, OSError):
            pass  # it has ended, which is seen by its process

    def begin(self) -> None:
        """Let it take traffic and execute runs."""
        self.begun = True
        self._say(_BEGIN)

    def hand_over(self) -> None:
        """Ask it to stop, and to hand over at once what another process can go on with."""
        self._say(_HAND_OVER)

    def tell_dead(self, worker: str) -> None:
        """Tell it under which id a process that is dead now has executed runs."""
        self._say(_DEAD + worker.encode())

    def terminate(self) -> None:
        """Ask it to stop in an orderly way; one that has not begun has nothing to hand over."""
        if self.alive:
            self.process.terminate() if self.begun else self.process.kill()

    def end(self, deadline: float) -> None:
        """Return when it has ended, by force after `deadline`."""
        self.process.join(max(0.0, deadline - time.monotonic()))
        if self.alive:
            print(f"amoxi: {self.name} did not stop in time and is killed", file=sys.stderr)
            self.process.kill()
            self.process.join()
        self.link.close()

    def _say(self, word: bytes) -> None:
        try:
            self.link.send_bytes(word)
        except OSError:
            pass  # it has ended


class Lead:
    """The supervisor, seen from the process: when it is gone or asks for it, this process stops."""

    def __init__(self, link: Connection) -> None:
        self._link = link
        self._begin = threading.Event()
        self.on_hand_over: Callable[[], None] = lambda: None
        self.on_dead: Callable[[str], None] = lambda worker: None

    def follow(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._listen, name="amoxi-supervisor", daemon=True).start()

    def wait_to_begin(self) -> None:
        """Say that all is prepared, and return when it is this process's turn."""
        self._say(_PREPARED)
        while not self._begin.wait(0.2):  # a wait without an end would not hear Ctrl-C on Windows
            pass

    def say_ready(self) -> None:
        """Say that this process takes traffic."""
        self._say(_READY)

    def say_worker(self, worker: str) -> None:
        """Say under which id this process executes runs from now on."""
        self._say(_WORKER + worker.encode())

    def _say(self, word: bytes) -> None:
        try:
            self._link.send_bytes(word)
        except OSError:
            pass  # the supervisor is gone, which stops this process

    def _listen(self) -> None:
        try:
            while (word := self._link.recv_bytes()) != _HAND_OVER:
                if word == _BEGIN:
                    self._begin.set()
                elif word.startswith(_DEAD):
                    self.on_dead(word.removeprefix(_DEAD).decode())
            self.on_hand_over()
        except (EOFError, OSError):
            pass  # without a supervisor this process would keep the port, and nobody could stop it
        os.kill(os.getpid(), signal.SIGTERM)


def stop_all(children: list[Child], grace: float) -> None:
    """Stop processes together, each in an orderly way within the grace, by force after it."""
    for child in children:
        child.terminate()
    deadline = time.monotonic() + longest_stop(grace)
    for child in children:
        child.end(deadline)


def longest_stop(grace: float) -> float:
    """Return the seconds after which a process that was asked to stop is killed."""
    return grace + _AFTER_GRACE_S


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


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


def _run(target: Callable[..., None], link: Connection, stdin: int | None, *arguments: Any) -> None:
    leave_on_signal()
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if stdin is not None:
        sys.stdin = os.fdopen(stdin)  # so that a debugger can be used in development
    lead = Lead(link)
    lead.follow()
    target(lead, *arguments)


def _stdin() -> int | None:
    try:
        return sys.stdin.fileno() if sys.stdin.isatty() else None
    except (AttributeError, OSError, ValueError):
        return None
