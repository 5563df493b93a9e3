"""The process that keeps programs for tests, such as a database, and ends them when nobody is there who uses them.

`python keeper_program.py FOLDER` answers at a socket in the folder and prints `ready`. Who is connected there is a
user: it may start and stop programs. When the last user has gone, also by `kill -9`, the programs are ended and the
folder is removed; who says that it leaves is told when that is done.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

DOOR = "keeper"
_FIRST_USER_S = 30.0
_END_S = 10.0


class Keeper:
    """The programs of a folder and those who use them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._end_signals: dict[str, int] = {}
        self._users: dict[socket.socket, bytes] = {}
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(folder / DOOR))
        self._door.listen(100)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._door, selectors.EVENT_READ)

    def serve(self) -> socket.socket | None:
        """Do what users ask until the last one has gone, and return that one if it waits to hear of the end."""
        last = None
        met = False
        while self._users or not met:
            ready = [key.fileobj for key, _ in self._selector.select(None if met else _FIRST_USER_S)]
            if not ready:
                break
            if self._door in ready:  # first, for one who comes when another leaves
                met = True
                user, _ = self._door.accept()
                self._users[user] = b""
                self._selector.register(user, selectors.EVENT_READ)
            for file in ready:
                if isinstance(file, socket.socket) and file in self._users and self._hear(file):
                    last = file
        return last

    def end(self) -> None:
        """End all programs and remove the folder."""
        self._door.close()
        (self._folder / DOOR).unlink(missing_ok=True)
        for name in reversed(self._programs):
            self._stop(name, self._end_signals[name])
        shutil.rmtree(self._folder, ignore_errors=True)

    def _hear(self, user: socket.socket) -> bool:
        """Take what a user says; whether it is the last one and waits to hear of the end."""
        try:
            data = user.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            self._forget(user)
            return False
        self._users[user] += data
        if not data.endswith(b"\n"):
            return False
        asked = json.loads(self._users[user])
        self._users[user] = b""
        if asked["do"] == "leave":
            self._forget(user, close=False)
            if not self._users:
                return True
            self._tell(user, {"ended": False})
            user.close()
            return False
        try:
            answer = getattr(self, f"_{asked.pop('do')}")(**asked)
        except Exception as error:
            self._tell(user, {"error": f"{type(error).__name__}: {error}"})
        else:
            self._tell(user, {"answer": answer})
        return False

    def _forget(self, user: socket.socket, *, close: bool = True) -> None:
        self._selector.unregister(user)
        del self._users[user]
        if close:
            user.close()

    def _tell(self, user: socket.socket, answer: dict[str, Any]) -> None:
        try:
            user.sendall(json.dumps(answer).encode() + b"\n")
        except ConnectionError:  # it has gone, which the next round sees
            pass

    def _start(self, name: str, command: list[str], env: dict[str, str], account: list[int], end_signal: int) -> int:
        drop: dict[str, Any] = {"user": account[0], "group": account[1], "extra_groups": []} if account else {}
        with (self._folder / f"{name}.log").open("ab") as log:
            self._programs[name] = subprocess.Popen(
                command,
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **drop,
            )
        self._end_signals[name] = end_signal
        return self._programs[name].pid

    def _code(self, name: str) -> int | None:
        return self._programs[name].poll()

    def _stop(self, name: str, number: int) -> int:
        """Send a signal and wait for the end, which is enforced when it takes too long."""
        program = self._programs[name]
        if program.poll() is None:
            program.send_signal(signal.SIGCONT)  # a test may have frozen it
            program.send_signal(number)
            try:
                program.wait(_END_S)
            except subprocess.TimeoutExpired:
                program.kill()
        return program.wait()


def main(folder: Path) -> None:
    """Keep programs in the background, as a process that no signal to a terminal's group reaches."""
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir(folder)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    keeper = Keeper(folder)
    print("ready", flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    last = None
    try:
        last = keeper.serve()
    finally:
        keeper.end()
    if last is not None:
        last.sendall(b'{"ended": true}\n')
    os._exit(0)  # who waits sees the end of this process as the end of the line


if __name__ == "__main__":
    main(Path(sys.argv[1]))
