"""A progress bar for work that takes longer than two seconds, on stderr, when that is a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_QUIET_S = 2.0


class Progress:
    """Counts what is done; `with Progress("cancelling", 500) as progress: ... progress.advance()`.

    The total is None where nobody knows how much there is.
    """

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
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
        self._done += count
        if self._bar is not None:
            self._bar[0].update(self._bar[1], completed=self._done)
        elif time.monotonic() - self._begun > _QUIET_S and sys.stderr.isatty():
            self._bar = self._show()

    def _show(self) -> tuple[Bar, TaskID]:
        from rich.console import Console
        from rich.progress import Progress as Bar

        bar = Bar(console=Console(stderr=True), transient=True)
        bar.start()
        return bar, bar.add_task(self._what, total=self._total, completed=self._done)
