"""What a person types at the terminal: lines, and Ctrl-C, which is heard only where somebody waits for it."""

from __future__ import annotations

import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_PATIENCE = 3
_NUDGES_AFTER_S = (0.05, 0.2, 1.0)


class Interrupted(Exception):
    """Ctrl-C was pressed."""


class Abandoned(Exception):
    """The question that was being asked has been answered elsewhere."""


class Keyboard:
    """Reads lines in the main thread; `install` makes Ctrl-C an exception of `listening` parts, and of nothing else.

    Elsewhere it is kept for the next such part. Who presses it three times without being heard is let go at once: what
    runs goes on elsewhere, as after a crash.
    """

    def __init__(self) -> None:
        self._listening = False
        self._asking = False
        self._pressed = 0
        self._abandoned = False
        self._editing = False

    def install(self) -> None:
        """Take Ctrl-C over, and let lines be edited where the system can do that."""
        signal.signal(signal.SIGINT, self._on_signal)
        if sys.platform != "win32":
            _nudge_what_misses_a_signal()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        if sys.stdin.isatty() and sys.stdout.isatty():
            try:
                import readline
            except ImportError:  # Windows' console edits by itself
                return
            readline.set_auto_history(False)
            self._editing = True

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Raise `Interrupted` here when Ctrl-C is pressed, also when it was pressed just before."""
        self._listening = True
        try:
            if self._pressed:
                self._pressed = 0
                raise Interrupted
            yield
        finally:
            self._listening = False

    def ask(
        self, prompt: str, *, unless: Callable[[], bool] | None = None, prefilled: str = "", remember: bool = False
    ) -> str:
        """Return the next line.

        Args:
            prompt: What is asked.
            unless: Says whether nobody needs to ask any more.
            prefilled: A line to be changed, where lines can be edited.
            remember: Whether the arrow keys bring it back later.

        Raises:
            EOFError: there are no more lines.
            Interrupted: Ctrl-C was pressed instead.
            Abandoned: `unless` holds, or `abandon` was called.
        """
        if prefilled and self._editing:
            self._prefill(prefilled)
        try:
            with self.listening():
                self._asking = True
                if unless is not None and unless():  # after that, so that what comes between is heard as well
                    raise Abandoned
                line = self._read(prompt)
        finally:
            self._asking = self._abandoned = False
            if prefilled and self._editing:
                self._prefill("")
        if remember and self._editing and line.strip():
            import readline

            readline.add_history(line)
        return line

    def abandon(self) -> None:
        """End the question that is being asked, if there is one, from any thread."""
        if sys.platform != "win32" and self._asking:  # there the question stays until Enter is pressed
            self._abandoned = True
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _read(self, prompt: str) -> str:
        if self._editing:
            return input(prompt)
        print(prompt, end="", file=sys.stderr, flush=True)  # stdout may be a file
        return input()

    def _prefill(self, text: str) -> None:
        import readline

        readline.set_startup_hook((lambda: readline.insert_text(text)) if text else None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._abandoned:
            self._abandoned = False
            if self._asking:
                raise Abandoned
        elif self._listening:
            raise Interrupted
        else:
            self._pressed += 1
            if self._pressed >= _PATIENCE:
                os._exit(128 + number)


def _nudge_what_misses_a_signal() -> None:
    """Wake the main thread up again after each Ctrl-C.

    One that comes after a prompt was shown and before the C library waits for a key would be heard at the next key
    only. SIGURG does nothing but end that wait, so it may come too often.
    """
    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    signal.signal(signal.SIGURG, lambda number, frame: None)
    signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_nudge, args=(ear, mouth), name="amoxi-keyboard", daemon=True).start()


def _nudge(ear: socket.socket, mouth: socket.socket) -> None:
    while True:
        if signal.SIGINT in ear.recv(64):
            for after_s in _NUDGES_AFTER_S:
                time.sleep(after_s)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGURG)
