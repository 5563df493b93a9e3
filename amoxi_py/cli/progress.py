"""A progress bar on stderr for work that takes longer than two seconds; without a terminal nothing, or lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_QUIET_S = 2.0
_LINE_EVERY_S = 10.0


class Progress:
    """Counts what is done; `with Progress("cancelling", 500) as progress: ... progress.advance()`.

    The total is None where nobody knows how much there is. With `lines` there is a line every ten seconds where no
    terminal is.
    """

    def __init__(self, what: str, total: int | None, *, lines: bool = False) -> None:
        self._what = what
        self._total = total
        self._lines = lines
        self._line_at = time.monotonic() + _LINE_EVERY_S
        self._done = 0
        self._begun = time.monotonic()
        self._bar: tuple[Bar, TaskID] | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def advance(self, count: int = 1) -> None:
        """Count so many more."""
        self.reach(self._done + count, self._total)

    def reach(self, done: int, total: int | None) -> None:
        """Say that so many are done, of so many."""
        self._done, self._total = done, total
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=done, total=total)
            if done == total:
                self._bar[0].stop()  # what comes after it may have a bar of its own
        elif not sys.stderr.isatty():
            self._print_line()
        elif time.monotonic() - self._begun > _QUIET_S:
            self._bar = self._show()

    def _print_line(self) -> None:
        now = time.monotonic()
        if self._lines and now >= self._line_at:
            self._line_at = now + _LINE_EVERY_S
            of = "" if self._total is None else f" of {self._total}"
            print(f"{self._what}: {self._done}{of}", file=sys.stderr, flush=True)

    def _show(self) -> tuple[Bar, TaskID]:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn
        from rich.progress import Progress as Bar

        bar = Bar(*Bar.get_default_columns(), MofNCompleteColumn(), console=Console(stderr=True), transient=True)
        bar.start()
        return bar, bar.add_task(self._what, total=self._total, completed=self._done)
