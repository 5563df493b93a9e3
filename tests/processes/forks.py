"""Commands of `amoxi` started without the second that its imports take: as forks of a process that has made them.

A fork is a process like one that `python -m amoxi_py` starts: it leads a session, and has its own memory, folder,
environment and signals. What it cannot show is the start of the interpreter itself; that is for real ones.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import fork_program


class Fork:
    """A running command; it has of a `Popen` what tests use.

    Attributes:
        pid: Its process id, which is also its group's.
        returncode: Its exit code when that was seen, minus the signal if one ended it.
    """

    def __init__(self, told: int, command: str) -> None:
        self._told = told
        self._command = command
        self.returncode: int | None = None
        self.pid = self._next_number()

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self.returncode = self._next_number()
            os.close(self._told)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended; raise when that takes too long."""
        if self.returncode is None:
            select.select([self._told], [], [], timeout)
        code = self.poll()
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self._command, timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to this process alone; one that has ended gets none."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def _next_number(self) -> int:
        text = b""
        while not text.endswith(b"\n"):
            byte = os.read(self._told, 1)
            if not byte:
                raise RuntimeError("the process that forks has ended; what it printed is on stderr")
            text += byte
        return int(text)


class Forks:
    """The process that forks, one for all processes of a test run; it is for Linux, where a fork lacks nothing.

    Args:
        env: Its environment. A command may have another one, but for what the interpreter itself reads at its start.
        folder: Of the test run. Who comes first starts the process, and the last one who leaves ends it.
    """

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        import fcntl  # where there are forks

        self._env = dict(env)
        with (folder / "forks.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._door = _connected(folder / "forks") or _started(folder / "forks", self._env)

    def can_start(self, env: Mapping[str, str]) -> bool:
        """Whether a fork would be the same for this environment: what the interpreter reads of it is no other."""
        return _of_interpreter(env) == _of_interpreter(self._env)

    def start(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> Fork:
        """Start a command with these files as its standard ones; they stay the caller's to close."""
        asked = {"arguments": [*arguments], "folder": str(folder.absolute()), "env": dict(env)}
        message = json.dumps(asked).encode()
        if len(message) > fork_program.MOST_BYTES:
            raise ValueError(f"a command of {len(message):,} bytes is longer than what a fork can be told")
        told, tell = os.pipe()
        try:
            socket.send_fds(self._door, [message], [stdin, stdout, stderr, tell])
        finally:
            os.close(tell)
        return Fork(told, f"amoxi {' '.join(arguments)}")

    def run(
        self, arguments: Sequence[str], *, folder: Path, env: Mapping[str, str], stdin: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end with pipes, as `subprocess.run` does with texts."""
        pipes = [os.pipe() for _ in range(3)]
        (given, to_give), (out, its_out), (err, its_err) = pipes
        try:
            process = self.start(arguments, folder=folder, env=env, stdin=given, stdout=its_out, stderr=its_err)
        finally:
            for file in (given, its_out, its_err):
                os.close(file)
        texts = _exchange(stdin.encode(), to_give, (out, err), time.monotonic() + timeout)
        if texts is None:
            os.killpg(process.pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired(f"amoxi {' '.join(arguments)}", timeout)
        return subprocess.CompletedProcess([*arguments], process.wait(timeout), *texts)

    def close(self) -> None:
        """Need no forks any more; what was started goes on."""
        self._door.close()


def _connected(path: Path) -> socket.socket | None:
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        door.connect(f"/proc/self/fd/{(place := os.open(path.parent, os.O_PATH))}/{path.name}")
    except (FileNotFoundError, ConnectionRefusedError):
        door.close()
        return None
    finally:
        os.close(place)
    return door


def _started(path: Path, env: Mapping[str, str]) -> socket.socket:
    path.unlink(missing_ok=True)
    command = [sys.executable, fork_program.__file__, path.name]
    subprocess.run(command, cwd=path.parent, env=env, stdin=subprocess.DEVNULL, check=True)
    door = _connected(path)
    assert door is not None
    return door


def _of_interpreter(env: Mapping[str, str]) -> dict[str, str]:
    names = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "MALLOC", "OTEL_", "SSL_")
    return {name: value for name, value in env.items() if name.startswith(names)}


def _exchange(given: bytes, to_give: int, taken: tuple[int, int], deadline: float) -> list[str] | None:
    """Write to one pipe and read two to their ends; None when that takes too long."""
    texts = dict.fromkeys(taken, b"")
    open_ones = {to_give, *taken}
    try:
        while open_ones:
            left = max(0.0, deadline - time.monotonic())
            readable, writable, _ = select.select(open_ones & {*taken}, open_ones & {to_give}, [], left)
            if not readable and not writable:
                return None
            for file in readable:
                data = os.read(file, 65536)
                texts[file] += data
                if not data:
                    open_ones.discard(file)
            if writable:
                try:
                    given = given[os.write(to_give, given[:4096]) :] if given else b""
                except BrokenPipeError:
                    given = b""
                if not given:
                    open_ones.discard(to_give)
                    os.close(to_give)
    finally:
        for file in (*taken, *({to_give} & open_ones)):
            os.close(file)
    return [text.decode() for text in texts.values()]
