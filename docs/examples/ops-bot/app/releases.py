"""Releases on disk: a folder for each version, `current` for the one that is live, and the history of deploys.

    data/releases/checkout/1.4.1/     put there by the build
    data/releases/checkout/1.4.2/
    data/releases/checkout/current -> 1.4.2
    data/releases/history.log         {"at": "2026-11-29T20:00:00Z", "service": "checkout", "version": "1.4.2", ...}

The line of a deploy is written before `current` is switched. So where there is no line, nothing was touched.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from amoxi_py import singleton

from .sign_in import OpsSettings


@dataclass(frozen=True)
class Entry:
    """A line of the history."""

    at: str
    service: str
    version: str
    by: str
    key: str


@singleton
class Releases:
    """The folder of releases. Its history is locked while somebody deploys, also for other processes."""

    def __init__(self, settings: OpsSettings) -> None:
        self.folder = settings.releases

    def services(self) -> list[str]:
        """Return the names of the services."""
        return sorted(path.name for path in self.folder.glob("*") if path.is_dir())

    def versions(self, service: str) -> list[str]:
        """Return the versions that the build has put there; none of a service that does not exist."""
        if service not in self.services():  # what is asked for is looked up, and never made a path
            return []
        folders = (self.folder / service).iterdir()
        return sorted(path.name for path in folders if path.is_dir() and not path.is_symlink())

    def current(self, service: str) -> str | None:
        """Return the version that is live."""
        link = self.folder / service / "current"
        return os.readlink(link) if link.is_symlink() else None

    def history(self) -> list[Entry]:
        """Return all deploys, the oldest first."""
        with self._locked_history() as file:
            return list(_entries(file))

    def deploy(self, service: str, version: str, by: str, key: str) -> bool:
        """Make a version live; False when the deploy with this key was begun before, and nothing is done."""
        with self._locked_history() as file:
            if any(entry.key == key for entry in _entries(file)):
                return False
            at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            file.write(json.dumps(asdict(Entry(at, service, version, by, key))) + "\n")
            file.flush()
            os.fsync(file.fileno())
            self._switch(self.folder / service, version)
            return True

    def _switch(self, service: Path, version: str) -> None:
        """Let `current` name the version: whoever looks sees the old one or the new one, and never none."""
        new = service / ".current-new"
        new.unlink(missing_ok=True)
        new.symlink_to(version, target_is_directory=True)
        os.replace(new, service / "current")

    @contextmanager
    def _locked_history(self) -> Iterator[TextIO]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "history.log").open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed, or the process ends
            yield file


def _entries(file: TextIO) -> Iterator[Entry]:
    file.seek(0)
    for line in file:
        yield Entry(**json.loads(line))
