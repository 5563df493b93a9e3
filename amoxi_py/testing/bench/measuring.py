"""One measurement: the clients of a load against a server, and what the server used within each of its windows."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from amoxi_py.errors import CommandRefused
from amoxi_py.testing.bench.figures import Window
from amoxi_py.testing.bench.server import Server
from amoxi_py.testing.bench.target import Load
from amoxi_py.testing.bench.usage import Usage

_PROGRAM = (sys.executable, "-m", "amoxi_py.testing.bench.clients")
_BOUNDARY = b"boundary "
_SAMPLE_S = 0.25


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A window of a load, with what the server used in it.

    Attributes:
        window: What the clients saw.
        cpu_s: CPU seconds of the server's processes within the window.
        rss: The most memory that they had in it, in bytes; that of the last window is until all turns have ended.
        store_bytes: What the store grew by, or None for a server whose store is not known.
    """

    window: Window
    cpu_s: float
    rss: int
    store_bytes: int | None = None

    @property
    def cpu_ms_per_turn(self) -> float | None:
        """Milliseconds of the server's CPU for each turn that ended."""
        return self.cpu_s * 1000 / self.window.ended if self.window.ended else None


def measure(server: Server, load: Load, on_window: Callable[[Measured], None] | None = None) -> list[Measured]:
    """Play a load and return its windows; `on_window` hears of each as soon as it is over.

    Raises:
        CommandRefused: the clients' process ended early.
    """
    found: list[Measured] = []
    used: list[Usage] = []
    stored: list[int | None] = []
    with _clients(load) as process, _Peaks(server) as peaks:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(_BOUNDARY):
                used.append(server.usage())
                stored.append(server.store_bytes())
                peaks.begin_window(used[-1].rss)
                continue
            window = msgspec.json.decode(line, type=Window)
            begin, end = used[window.number], used[window.number + 1]
            before, after = stored[window.number], stored[window.number + 1]
            found.append(
                Measured(
                    window=window,
                    cpu_s=end.cpu_s - begin.cpu_s,
                    rss=peaks.of_window(window.number, last=window.number + 1 == load.windows),
                    store_bytes=None if before is None or after is None else after - before,
                )
            )
            if on_window is not None:
                on_window(found[-1])
    if len(found) != load.windows:
        raise CommandRefused(f"the clients ended early, with {process.returncode}; what they said stands above")
    return found


@contextmanager
def _clients(load: Load) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(_PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - our own
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(load) + b"\n")
        process.stdin.flush()
        yield process
    finally:
        process.stdin.close()  # which ends it, if it has not ended by then
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


class _Peaks:
    """The most memory that a server has had in each window, looked at four times a second."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._peaks: list[int] = [0]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="amoxi-bench-memory", daemon=True)

    def begin_window(self, rss: int) -> None:
        self._peaks[-1] = max(self._peaks[-1], rss)  # also of the one that ends here
        self._peaks.append(rss)

    def of_window(self, number: int, *, last: bool) -> int:
        return max(self._peaks[number + 1 :]) if last else self._peaks[number + 1]

    def __enter__(self) -> _Peaks:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            self._peaks[-1] = max(self._peaks[-1], self._server.usage().rss)
