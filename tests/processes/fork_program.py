"""The process whose forks are commands of `amoxi`: it has imported all of it once and never runs anything itself.

`python fork_program.py PATH` ends when the process that takes commands, a fork of it, answers at the socket PATH. That
one ends when nobody is connected any more. A command is a message of JSON (arguments, folder, environment) with four
files, the standard ones and a pipe. To the pipe it writes the fork's process id, then, when that has ended, its exit
code, minus the signal if one ended it. The forks are what `python -m amoxi_py` is, in a session of their own; they end
as every interpreter ends, because all of this has returned before a command begins. The server processes that such a
command starts by `multiprocessing` are forks of it, in place of the interpreters it asks for.
"""

from __future__ import annotations

import atexit
import contextlib
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
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import util
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
    "amoxi_py.stores.postgres.store",
    "amoxi_py.surfaces.mcp.door",
    "anthropic",
    "openai",
    "pydantic.v1",
    "fastapi.telemetry._runtime",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
MOST_BYTES = 200_000
_FILES = 4
_FIRST_USER_S = 60.0
_FOR_A_PROCESS = "--multiprocessing-fork"
_spawn = util.spawnv_passfds


def main(path: str) -> Mapping[str, Any] | None:
    """Fork for each command until nobody can send one any more; in a fork, return its command."""
    gc.disable()
    for name in IMPORTED:
        importlib.import_module(name)
    gc.enable()
    assert threading.active_count() == 1, f"a fork has no other threads: {threading.enumerate()!r}"
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(path)
    door.listen(100)
    if os.fork():
        return None
    os.setsid()
    gc.collect()
    gc.freeze()  # the forks share these pages as long as nobody writes to them
    heard, ended = os.pipe()
    os.set_blocking(heard, False)
    os.set_blocking(ended, False)
    signal.set_wakeup_fd(ended)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    told: dict[int, int] = {}
    users: list[socket.socket] = []
    met = False
    while users or not met:
        ready, _, _ = select.select([door, heard, *users], [], [], None if met else _FIRST_USER_S)
        if not ready:
            break
        if heard in ready:
            os.read(heard, 4096)
            _tell_ends(told)
        if door in ready:
            met = True
            users.append(door.accept()[0])
        for user in {*users}.intersection(ready):
            message, files, flags, _ = socket.recv_fds(user, MOST_BYTES, _FILES)
            assert not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC), "a command came in part"
            if not message:
                users.remove(user)
                user.close()
                continue
            child = os.fork()
            if child == 0:
                command: Mapping[str, Any] = json.loads(message)
                _become(command, files)
                for one in (door, *users):
                    one.detach()  # they are closed
                return command
            told[child] = files.pop()
            for file in files:
                os.close(file)
            _tell(told[child], child)
    return None


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
    os.environ.setdefault("PYTHONMALLOC", "pymalloc")  # what this process has; a fork cannot choose
    sys.path[0] = command["folder"]
    sys.argv[1:] = command["arguments"]
    importlib.invalidate_caches()
    util.spawnv_passfds = _start_process


def _start_process(path: bytes, arguments: Sequence[str], files: Sequence[int]) -> int:
    """Start what `multiprocessing` starts, and return its process id: one of ours is a fork, with these files alone."""
    if _FOR_A_PROCESS not in arguments:
        return _spawn(path, arguments, files)
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        gc.freeze()  # what the command has let go must not close files here, whose numbers others have by then
        atexit._clear()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        close_files(files)
        place = arguments.index("-c")
        sys.argv = arguments[place : place + 1] + arguments[place + 2 :]
        exec(arguments[place + 1], {})  # what `python -c` would run
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        os._exit(code)  # the command that was forked must not go on here, in a second process


def close_files(but: Sequence[int] = ()) -> None:
    """Close all files but the standard ones and these, however high their numbers are."""
    for number in sorted(map(int, os.listdir("/proc/self/fd"))):
        if number > 2 and number not in but:
            with contextlib.suppress(OSError):  # the one of the look itself
                os.close(number)


def _open_standard_files() -> None:
    """Look anew at what the standard files are, as the interpreter does at its start; output is not buffered."""
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=sys.stdin.errors, closefd=False)  # noqa: SIM115 - to the end
    for name, number in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        bare = open(number, "wb", buffering=0, closefd=False)  # noqa: SIM115 - to the end
        setattr(sys, name, io.TextIOWrapper(bare, old.encoding, old.errors, newline="\n", write_through=True))


if __name__ == "__main__" and main(sys.argv[1]) is not None:
    runpy.run_module("amoxi_py", run_name="__main__", alter_sys=True)
