"""Real server processes for tests: started in an app's folder, frozen, killed and stopped as an operator would.

Nothing here reaches into the server: it is a process with an address, a log and signals.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from amoxi_py.models.loopback import SWITCH
from forks import Fork, Forks

_OURS = ("AI_", "AMOXI_", "SERVER_", "APP_", "LOG_", "OPENAI_", "ANTHROPIC_", "DATABASE_URL", "PORT")


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without any setting of a server, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if name == SWITCH or not name.startswith(_OURS)}
    return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def _own_group() -> dict[str, Any]:
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


class ServerProcess:
    """A running `amoxi` command with the whole group of its processes.

    With `forks` it is a fork of theirs, where that is the same as a process that Python starts anew.

    Attributes:
        url: Its address, without a slash at the end.
        port: The port of the address.
        folder: The app's folder, which is its current directory.
        process: The process that was started; it leads the group.
    """

    def __init__(
        self, folder: Path, command: Sequence[str], *, port: int, env: Mapping[str, str], forks: Forks | None = None
    ) -> None:
        self.folder = folder
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log_path = folder / f".server-{port}-{time.monotonic_ns()}.log"
        whole_env = clean_environment({"SERVER_PORT": str(port), **env})
        with self._log_path.open("wb") as log, open(os.devnull, "rb") as nothing:
            self.process: subprocess.Popen[bytes] | Fork
            if forks is not None and forks.can_start(whole_env):
                self.process = forks.start(
                    command,
                    folder=folder,
                    env=whole_env,
                    stdin=nothing.fileno(),
                    stdout=log.fileno(),
                    stderr=log.fileno(),
                )
                return
            self.process = subprocess.Popen(
                [sys.executable, "-m", "amoxi_py", *command],
                cwd=folder,
                env=whole_env,
                stdin=nothing,
                stdout=log,
                stderr=subprocess.STDOUT,
                **_own_group(),
            )

    @property
    def pid(self) -> int:
        """The process that was started."""
        return self.process.pid

    def log(self) -> str:
        """Return all that the processes have printed so far."""
        return self._log_path.read_text("utf-8", "replace")

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Return when the server answers that it takes traffic; raise with its log when it ends or takes too long."""
        self._wait_for(self._is_ready, timeout, "did not get ready")

    def wait_log(self, text: str, timeout: float = 60.0) -> None:
        """Return when the processes have printed `text`; raise with the log when they end or take too long."""
        self._wait_for(lambda: text in self.log(), timeout, f"did not print {text!r}")

    def wait_exit(self, timeout: float = 60.0) -> int:
        """Return the exit code when the process has ended by itself; raise with its log when it takes too long."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the server did not end in {timeout} s; its log:\n{self.log()}") from None

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; one that is gone is no error."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass

    def kill9(self) -> None:
        """Kill the whole group at once, as a power cut would, and wait until it is gone."""
        if sys.platform == "win32":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(self.pid)], check=False, capture_output=True)
        else:
            self.signal(signal.SIGKILL)
        self.process.wait(30)

    def stop(self, timeout: float = 40.0) -> int:
        """Ask the started process to stop in an orderly way and return its exit code."""
        self.process.terminate()
        return self.wait_exit(timeout)

    def freeze(self) -> None:
        """Stop the whole group in the middle of whatever it does, without telling it."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen group go on."""
        self.signal(signal.SIGCONT)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None and not condition():
                raise RuntimeError(f"the server ended with {self.process.returncode}; its log:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server {what} in {timeout} s; its log:\n{self.log()}")
            time.sleep(0.02)
