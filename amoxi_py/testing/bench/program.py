"""What the processes of a benchmark have in common: the quickest event loop, many sockets, an end with their parent."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine
from typing import Any

from amoxi_py.app.process import tune_memory, tune_process


def run_program(main: Coroutine[Any, Any, None]) -> None:
    """Run a program of the kit to its end, or until Ctrl-C."""
    tune_process()
    tune_memory()
    try:
        with asyncio.Runner(loop_factory=_quickest_loop()) as runner:
            runner.run(main)
    except KeyboardInterrupt:
        pass


def tell(line: bytes) -> None:
    """Write one line to stdout, at once: whoever started this process acts on it."""
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def end_with_parent() -> None:
    """End this process when its standard input is closed: whoever started it has gone, however that came about."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):  # through the file object it would hold its lock at the end
            pass
        os._exit(0)

    threading.Thread(target=wait, name="amoxi-parent", daemon=True).start()


def _quickest_loop() -> Any:
    if sys.platform == "win32":
        return None
    import uvloop  # it does not exist for Windows

    return uvloop.new_event_loop
