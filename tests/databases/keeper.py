"""Folders with programs for tests that end with those who use them, also when these are killed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keeper_program

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 6 * 2**30
_ENV = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"}


class Account:
    """The account that programs run under: this one, or as root, which a database refuses, another that is there."""

    def __init__(self) -> None:
        import pwd  # Windows, which collects this module, has none

        self.ids: list[int] = []
        if os.geteuid() == 0:
            names = {entry.pw_name: entry for entry in pwd.getpwall()}
            entry = names.get("postgres") or names["nobody"]
            self.ids = [entry.pw_uid, entry.pw_gid]

    def own(self, path: Path) -> None:
        """Give a file or folder to the account."""
        if self.ids:
            os.chown(path, *self.ids)

    def can_cross(self, folder: Path) -> bool:
        """Whether the account gets to what lies in a folder, as far as that needs others' rights."""
        if not self.ids:
            return True
        return all(level.stat().st_mode & stat.S_IXOTH for level in (folder, *folder.parents))


class Kept:
    """A folder and its programs, for as long as somebody is there who made or joined it.

    Attributes:
        folder: It belongs to the account that the programs run under.
    """

    def __init__(self, folder: Path, line: socket.socket) -> None:
        self.folder = folder
        self.account = Account()
        self._line = line
        self._answers = line.makefile("rb")

    @classmethod
    def new(cls, name: str, *, in_memory: bool = False) -> Kept:
        """Make a folder, and the process that keeps it; `in_memory`, where there is room, it makes files quickly."""
        account = Account()
        places = [place for place in (Path(tempfile.gettempdir()), Path("/tmp")) if account.can_cross(place)]
        if in_memory and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ENOUGH_BYTES:
            places.insert(0, _MEMORY)
        folder = Path(tempfile.mkdtemp(prefix=f"amoxi-{name}-", dir=places[0]))
        account.own(folder)
        command = [sys.executable, "-S", "-E", keeper_program.__file__, str(folder)]
        keeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        with keeper:
            assert keeper.stdout is not None
            if keeper.stdout.readline() != b"ready\n":
                raise RuntimeError(f"the process that would keep {str(folder)!r} did not start; stderr says why")
        kept = cls.join(folder)
        assert kept is not None
        return kept

    @classmethod
    def join(cls, folder: Path) -> Kept | None:
        """Become one more user of a folder; None when its last one has just gone."""
        line = socket.socket(socket.AF_UNIX)
        try:
            line.connect(str(folder / keeper_program.DOOR))
            kept = cls(folder, line)
            kept._ask("code", name="")
        except LookupError:  # the answer of one that is there
            return kept
        except OSError:
            line.close()
            return None
        raise AssertionError("nothing has an empty name")

    def start(self, name: str, command: Sequence[str | Path], *, end_signal: int, env: Mapping[str, str] = {}) -> int:
        """Start a program, which ends with the folder by `end_signal`, and return its process id."""
        return int(
            self._ask(
                "start",
                name=name,
                command=[str(part) for part in command],
                env={**_ENV, "HOME": str(self.folder), **env},
                account=self.account.ids,
                end_signal=end_signal,
            )
        )

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a program to its end; raise with what it printed when that is bad."""
        drop: dict[str, Any] = {}
        if self.account.ids:
            drop = {"user": self.account.ids[0], "group": self.account.ids[1], "extra_groups": []}
        ran = subprocess.run(
            command, cwd=self.folder, env={**_ENV, "HOME": str(self.folder)}, capture_output=True, check=False, **drop
        )
        if ran.returncode:
            printed = (ran.stdout + ran.stderr).decode("utf-8", "replace")
            raise RuntimeError(f"{command[0]} ended with {ran.returncode}:\n{printed}")

    def stop(self, name: str, number: int) -> int:
        """End a program by a signal and return its exit code."""
        return int(self._ask("stop", name=name, number=number))

    def code(self, name: str) -> int | None:
        """Return the exit code of a program, or None while it runs."""
        code = self._ask("code", name=name)
        return None if code is None else int(code)

    def log(self, name: str) -> str:
        """Return what a program has printed."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def leave(self) -> None:
        """Be no user any more; the last one waits until all has ended and the folder is gone."""
        try:
            self._line.sendall(b'{"do": "leave"}\n')
            self._answers.read()
        finally:
            self._answers.close()
            self._line.close()

    def _ask(self, do: str, **more: Any) -> Any:
        self._line.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
        said = self._answers.readline()
        if not said:
            raise ConnectionError(f"the process that keeps {str(self.folder)!r} has gone")
        answer = json.loads(said)
        if "error" in answer:
            raise (LookupError if answer["error"].startswith("KeyError") else RuntimeError)(answer["error"])
        return answer["answer"]
