"""Which files of a folder are documents, and why the others are not. Nothing outside of the folder is read."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from amoxi_py.app.documents.block import Unreadable
from amoxi_py.app.documents.reading import KINDS, kind_of, largest
from amoxi_py.errors import CommandRefused

_LONGEST_PATH = 1000
_DEEPEST = 64


@dataclass(slots=True)
class Found:
    """What a folder has.

    Attributes:
        documents: Paths in the folder, with `/`, in the order of the alphabet.
        skipped: Why one cannot be taken, by its path: a link that leads out, a name that is no text. That of a folder
            that cannot be read ends with `/`.
        hidden: How many files and folders begin with a dot.
        others: How many files of each other ending there are.
    """

    documents: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    hidden: int = 0
    others: dict[str, int] = field(default_factory=dict)


def look_into(folder: Path) -> Found:
    """Find the documents of a folder and of those in it.

    Raises:
        CommandRefused: it is not there, is no folder, or may not be looked into.
    """
    found = Found()
    try:
        root = folder.resolve(strict=True)
        with os.scandir(root):
            pass
    except NotADirectoryError:
        raise CommandRefused(f"{str(folder)!r} is no folder: name the one that the documents are in") from None
    except OSError as error:
        raise CommandRefused(f"the folder {str(folder)!r} cannot be read: {error.strerror}") from None
    _walk(root, root, "", found)
    found.documents.sort()
    return found


def read_file(folder: Path, path: str) -> bytes:
    """Return the bytes of a document; raise `Unreadable` when they cannot be read, or are too many."""
    most = largest(kind_of(path))
    try:
        descriptor = os.open(folder / path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unreadable("it is no file")
            content = file.read(most + 1)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise Unreadable(f"it is larger than {most // 1_000_000} MB")
    return content


def _walk(root: Path, folder: Path, prefix: str, found: Found) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.skipped[prefix] = f"the folder cannot be read: {error.strerror}"
        return
    for entry in entries:
        path = prefix + entry.name
        if entry.name.startswith("."):
            found.hidden += 1
        elif problem := _problem(path):
            found.skipped[_shown(path)] = problem
        elif entry.is_dir(follow_symlinks=False):
            if path.count("/") >= _DEEPEST:
                found.skipped[path] = f"it is more than {_DEEPEST} folders deep"
            else:
                _walk(root, Path(entry.path), f"{path}/", found)
        elif kind_of(entry.name) not in KINDS and not (entry.is_symlink() and entry.is_dir()):
            kind = kind_of(entry.name) or "no ending"
            found.others[kind] = found.others.get(kind, 0) + 1
        elif entry.is_symlink() and (leads := _leads(root, entry)):
            found.skipped[path] = leads
        else:
            found.documents.append(path)


def _problem(path: str) -> str:
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    return f"its path is longer than {_LONGEST_PATH} bytes" if size > _LONGEST_PATH else ""


def _leads(root: Path, entry: os.DirEntry[str]) -> str:
    """Return why a link is not followed; empty for a link to a file of the folder."""
    try:
        target = Path(entry.path).resolve(strict=True)
    except (OSError, RuntimeError):
        return "it is a link that leads nowhere"
    if not target.is_relative_to(root):
        return "it is a link that leads out of the folder"
    return "it is a link to a folder, which is read in its own place" if target.is_dir() else ""


def _shown(path: str) -> str:
    return path.encode("utf-8", "backslashreplace").decode()
