"""What a process and those that it started use: CPU seconds and resident memory, on Linux and macOS."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amoxi_py.errors import CommandRefused

_PS = ("ps", "-A", "-o", "pid=,ppid=,rss=,time=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Of all processes of a tree together: CPU seconds since their start, resident bytes, and how many they are."""

    cpu_s: float
    rss: int
    processes: int


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    cpu_s: float
    rss: int


def usage_of(pid: int) -> Usage:
    """Return what a process and all below it use now; all are 0 when it has ended.

    Memory that several of them share counts for each.

    Raises:
        CommandRefused: this system does not tell.
    """
    everything = _from_proc() if sys.platform == "linux" else _from_ps()
    tree = [everything[number] for number in _tree(pid, everything)]
    return Usage(
        cpu_s=sum(process.cpu_s for process in tree),
        rss=sum(process.rss for process in tree),
        processes=len(tree),
    )


def _tree(top: int, everything: Mapping[int, _Process]) -> list[int]:
    below: dict[int, list[int]] = {}
    for number, process in everything.items():
        below.setdefault(process.parent, []).append(number)
    found = [top] if top in everything else []
    for number in found:  # it grows meanwhile
        found += below.get(number, [])
    return found


def _from_proc() -> dict[int, _Process]:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        used = sum(map(int, fields[11:15])) / ticks  # with what ended children have used
        found[int(folder.name)] = _Process(int(fields[1]), used, int(fields[21]) * page)
    return found


def _from_ps() -> dict[int, _Process]:
    try:
        told = subprocess.run(_PS, capture_output=True, text=True, check=True).stdout  # noqa: S603 - fixed words
    except (OSError, subprocess.CalledProcessError) as error:
        raise CommandRefused(
            f"this system does not tell what a process uses ({error}): measure on Linux or macOS"
        ) from error
    found = {}
    for line in told.splitlines():
        pid, parent, kilobytes, used = line.split()
        found[int(pid)] = _Process(int(parent), _seconds(used), int(kilobytes) * 1024)
    return found


def _seconds(text: str) -> float:
    """Read `[[days-]hours:]minutes:seconds[.hundredths]`."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * int(days or 0)
