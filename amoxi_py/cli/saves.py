"""Which files of an app were saved: its sources and settings, not what it writes itself or what editors leave about."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from amoxi_py.config.load import SETTINGS_FILE
from amoxi_py.config.settings import Settings

SUFFIXES = frozenset({".py", ".md", ".txt", ".toml", ".yaml", ".yml", ".jinja", ".jinja2", ".j2", ".sql"})
_NOT_SOURCES = frozenset({"data", "static", "tests", "node_modules", "site-packages", "venv", "build", "dist"})
_CALM_MS = 200  # a burst of saves is one: it ends when nothing was saved for so long
_LOOK_AGAIN_MS = 250


def watch_saves(settings: Settings) -> Connection:
    """Begin to watch, and return where saved files can be read with `read_saves`."""
    ours, theirs = Pipe(duplex=False)
    threading.Thread(target=_watch, args=(settings, theirs), name="amoxi-saves", daemon=True).start()
    return ours


def read_saves(connection: Connection) -> list[str]:
    """Return the files that were saved since the last time, as the developer calls them."""
    saved: list[str] = []
    try:
        while connection.poll():
            saved += json.loads(connection.recv_bytes())
    except (EOFError, OSError):
        pass  # the watch has ended, and has said so
    return list(dict.fromkeys(saved))


def is_source(path: Path, folder: Path) -> bool:
    """Whether a file under the app's folder is one that the running app was made of."""
    try:
        parts = path.relative_to(folder).parts
    except ValueError:
        return False
    return path.suffix in SUFFIXES and not any(
        part.startswith((".", "#", "~", "__pycache__")) or part in _NOT_SOURCES for part in parts
    )


def _watch(settings: Settings, told: Connection) -> None:
    try:
        for saved in _saves(settings):
            told.send_bytes(json.dumps(saved).encode())
    except Exception as error:  # noqa: BLE001 - a boundary: whatever stops the watch, the app goes on without it
        print(f"amoxi: saves are not noticed any more ({error}): start amoxi dev again", file=sys.stderr, flush=True)
        threading.Event().wait()  # an end that is closed would wake its reader for ever


def _saves(settings: Settings) -> Iterator[list[str]]:
    folder = settings.folder
    before = _top_files(folder)
    for changed in _changes(folder, _source_folders(settings)):
        now = _top_files(folder)
        on_top = {name for name in before | now if before.get(name) != now.get(name)}
        before = now
        saved = on_top | {Path(path).relative_to(folder).as_posix() for path in changed}
        if saved:
            yield sorted(saved)


def _changes(folder: Path, sources: list[Path]) -> Iterator[set[str]]:
    """Say again and again, about four times a second, which sources were saved."""
    from watchfiles import watch  # only a developer's machine needs it

    while not sources:  # the app is one module
        time.sleep(_LOOK_AGAIN_MS / 1000)
        yield set()
    for changed in watch(
        *sources,
        watch_filter=lambda _, path: is_source(Path(path), folder),
        yield_on_timeout=True,
        rust_timeout=_LOOK_AGAIN_MS,
        step=_CALM_MS,
        raise_interrupt=False,
        ignore_permission_denied=True,
    ):
        yield {path for _, path in changed}


def _source_folders(settings: Settings) -> list[Path]:
    """Return the app's package and the packages beside it that it may import."""
    folder, own = settings.folder, settings.app.package.split(".")[0]
    beside = (file.parent.name for file in folder.glob("*/__init__.py"))
    names = {own, *(name for name in beside if name not in _NOT_SOURCES and not name.startswith("."))}
    return [folder / name for name in sorted(names) if (folder / name).is_dir()]


def _top_files(folder: Path) -> dict[str, int]:
    """Return when the settings and the modules beside the packages were saved."""
    patterns = (SETTINGS_FILE.replace(".json", "*.json"), ".env", "*.py")
    files: dict[str, int] = {}
    for file in (file for pattern in patterns for file in folder.glob(pattern)):
        try:
            files[file.name] = file.stat().st_mtime_ns
        except OSError:
            continue  # it went in this moment
    return files
