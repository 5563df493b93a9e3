"""One process of a benchmark: started in a group of its own, heard until it is ready, and ended with all below it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.usage import Usage, usage_of

_READY_S = 60.0
_STOP_S = 30.0
_LOOK_S = 0.02
_TOLD_LINES = 12


class Child:
    """A running program; a context manager that stops it.

    Args:
        name: What messages call it.
        command: The program and its arguments.
        folder: Its current directory.
        log: The file for all that it prints.
        env: Its environment; this process's own by default.
        with_parent: Whether it ends when its standard input is closed, so that it never outlives this process.

    Raises:
        CommandRefused: it cannot be started.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        folder: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        with_parent: bool = False,
    ) -> None:
        self.name = name
        self._log = log
        stdin = subprocess.PIPE if with_parent else subprocess.DEVNULL
        try:
            with log.open("wb") as output:
                self._process = subprocess.Popen(  # noqa: S603 - what the caller measures
                    command,
                    cwd=folder,
                    env=None if env is None else dict(env),
                    stdin=stdin,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=sys.platform != "win32",
                )
        except OSError as error:
            raise CommandRefused(f"{name} cannot be started: {command[0]!r}: {error.strerror or error}") from error

    def wait_for(self, pattern: str) -> str:
        """Return the first group of a regular expression once the program has printed what fits it.

        Raises:
            CommandRefused: it ended before, or took more than a minute; with the end of what it has printed.
        """
        deadline = time.monotonic() + _READY_S
        while True:
            ended = self._process.poll()
            found = re.search(pattern, self._printed())
            if found is not None:
                return found[1]
            self._refuse_if(ended, deadline)
            time.sleep(_LOOK_S)

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Return once it is ready in the caller's eyes.

        Raises:
            CommandRefused: as from `wait_for`.
        """
        deadline = time.monotonic() + _READY_S
        while not ready():
            self._refuse_if(self._process.poll(), deadline)
            time.sleep(_LOOK_S)

    def usage(self) -> Usage:
        """Return what it and its processes use now."""
        return usage_of(self._process.pid)

    def stop(self) -> None:
        """End it in an orderly way, and by force what is left of it after that."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                pass
        if sys.platform == "win32":
            self._process.kill()
        else:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing is left
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _refuse_if(self, ended: int | None, deadline: float) -> None:
        if ended is not None:
            raise CommandRefused(f"{self.name} ended with {ended} before it was ready:\n{self._last_lines()}")
        if time.monotonic() > deadline:
            raise CommandRefused(f"{self.name} was not ready in {_READY_S:g} s:\n{self._last_lines()}")

    def _printed(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def _last_lines(self) -> str:
        return "\n".join(f"  {line}" for line in self._printed().splitlines()[-_TOLD_LINES:])
