"""The process whose forks are commands of `amoxi`: it has imported all of it once and never runs anything itself.

`python fork_program.py FD` takes commands at a socket: each is a message of JSON (arguments, folder,
environment) with four files, the standard ones and a pipe. To the pipe it writes the fork's process id, then, when that
has ended, its exit code, minus the signal if one ended it. The forks are what `python -m amoxi_py` is, in a session of
their own; they end as every interpreter ends, because all of this has returned before a command begins.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any

IMPORTED = (
    "amoxi_py.app.logs",
    "amoxi_py.app.process",
    "amoxi_py.app.web",
    "amoxi_py.app.worker",
    *(
        f"amoxi_py.cli.{name}"
        for name in ("approvals", "chat", "dev", "doctor", "migrate", "runs", "start", "worker", "new", "token")
    ),
    "openai",
    "pydantic.v1",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
MOST_BYTES = 200_000
_FILES = 4


def main(door: socket.socket) -> Mapping[str, Any] | None:
    """Fork for each command until nobody can send one any more; in a fork, return its command."""
    for name in IMPORTED:
        importlib.import_module(name)
    assert threading.active_count() == 1, f"a fork has no other threads: {threading.enumerate()!r}"
    gc.collect()
    gc.freeze()  # the forks share these pages as long as nobody writes to them
    heard, ended = os.pipe()
    os.set_blocking(heard, False)
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(ended)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([door.fileno(), heard], [], [])
        if heard in ready:
            os.read(heard, 4096)
            _tell_ends(told)
        if door.fileno() in ready:
            message, files, flags, _ = socket.recv_fds(door, MOST_BYTES, _FILES)
            assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "a command came in part"
            if not message:
                return None
            child = os.fork()
            if child == 0:
                command: Mapping[str, Any] = json.loads(message)
                _become(command, files)
                return command
            told[child] = files.pop()
            for file in files:
                os.close(file)
            _tell(told[child], child)


def _tell_ends(told: dict[int, int]) -> None:
    while told:
        child, status = os.waitpid(-1, os.WNOHANG)
        if not child:
            return
        pipe = told.pop(child)
        _tell(pipe, os.waitstatus_to_exitcode(status))
        os.close(pipe)


def _tell(pipe: int, number: int) -> None:
    try:
        os.write(pipe, f"{number}\n".encode())
    except BrokenPipeError:  # whoever started it has gone
        pass


def _become(command: Mapping[str, Any], files: list[int]) -> None:
    """Make this fork what a new interpreter is: its signals, files, terminal, folder and environment."""
    import fcntl  # POSIX systems have them, and only there are forks
    import termios

    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    for number in range(3):
        os.dup2(files[number], number)
    close_files()
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _open_standard_files()
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.path[0] = command["folder"]
    sys.argv[1:] = command["arguments"]
    importlib.invalidate_caches()


def close_files() -> None:
    """Close all files but the standard ones, however high their numbers are."""
    os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)


def _open_standard_files() -> None:
    """Look anew at what the standard files are, as the interpreter does at its start; output is not buffered."""
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115 - to the end
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        bare = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - to the end
        setattr(sys, name, io.TextIOWrapper(bare, old.encoding, old.errors, newline="\n", write_through=True))


if __name__ == "__main__" and main(socket.socket(fileno=int(sys.argv[1]))) is not None:
    runpy.run_module("amoxi_py", run_name="__main__", alter_sys=True)
