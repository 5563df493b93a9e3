"""Python, the installed package with its extras, the system, its limits and its clock."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path

import amoxi_py
from amoxi_py.cli.checks.finding import Finding

OLDEST_PYTHON = (3, 11)
_FEW_FILES = 4096
_EARLIEST = 1_767_225_600  # the beginning of 2026: this program is not older
_NOT_FOR_APPS = {"all", "dev", "docs"}
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def look_at_python() -> Iterator[Finding]:
    """Look at the interpreter."""
    said = f"Python {sys.version.split()[0]} in {sys.prefix}"
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        yield Finding(check="python", level="error", text=said, fix=f"use Python {oldest} or newer")
    elif sys.flags.optimize >= 2:
        yield Finding(
            check="python",
            level="warning",
            text=f"{said}, started with -OO: docstrings are gone, and with them what models read of tools",
            fix="start without -OO, and with PYTHONOPTIMIZE unset",
        )
    else:
        yield Finding(check="python", level="ok", text=said)


def look_at_installation() -> Iterator[Finding]:
    """Look at the installed package: its version, what it needs, and which extras are there."""
    try:
        installed = distribution("amoxi-py")
    except PackageNotFoundError:
        yield Finding(
            check="installation",
            level="error",
            text=f"amoxi-py is used from {Path(amoxi_py.__file__).parent}, but it is not installed",
            fix="pip install amoxi-py (or pip install -e . in a checkout)",
        )
        return
    yield Finding(
        check="installation", level="ok", text=f"amoxi-py {installed.version}, {Path(amoxi_py.__file__).parent}"
    )
    core, extras = _needed(installed.requires or [])
    if missing := _missing(core):
        yield Finding(
            check="installation",
            level="error",
            text=f"packages that amoxi-py needs are missing: {', '.join(missing)}",
            fix=f"pip install --force-reinstall amoxi-py=={installed.version}",
        )
    for extra in sorted(extras.keys() - _NOT_FOR_APPS):
        missing = _missing(extras[extra])
        if missing:
            text = f"the extra {extra!r} is not installed ({', '.join(missing)})"
            yield Finding(
                check="installation", level="note", text=text, fix=f"if you need it: pip install 'amoxi-py[{extra}]'"
            )
        else:
            yield Finding(check="installation", level="ok", text=f"the extra {extra!r} is installed")


def look_at_system() -> Iterator[Finding]:
    """Look at the operating system, the limit of open files and the clock."""
    if sys.platform == "linux":
        yield Finding(check="system", level="ok", text="Linux")
    else:
        yield Finding(
            check="system",
            level="note",
            text=f"{sys.platform}: amoxi_py is tested on Linux; here stand-ins take the place of what is missing",
            fix="run amoxi start on Linux where it matters",
        )
    if sys.platform == "win32" or importlib.util.find_spec("uvloop") is None:
        text = "the event loop is Python's own; uvloop is quicker, where it can be installed"
        yield Finding(check="system", level="note", text=text)
    yield from _look_at_limit()
    yield from _look_at_clock()


def _look_at_limit() -> Iterator[Finding]:
    if sys.platform == "win32":
        return
    import resource  # it exists on POSIX systems only

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "no limit" if hard == resource.RLIM_INFINITY else str(hard)
    if hard != resource.RLIM_INFINITY and hard < _FEW_FILES:
        yield Finding(
            check="system",
            level="warning",
            text=f"a process may have {most} files open; each reader of a stream takes one",
            fix=f"raise it to {_FEW_FILES} or more: ulimit -Hn, LimitNOFILE= in systemd, --ulimit in docker",
        )
    else:
        yield Finding(check="system", level="ok", text=f"open files: {soft}, which a server raises to {most}")


def _look_at_clock() -> Iterator[Finding]:
    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now))
    if now < _EARLIEST:
        fix = "set the clock; on a server let NTP keep it"
        yield Finding(check="system", level="warning", text=f"the clock says {said}, which is past", fix=fix)
    else:
        yield Finding(check="system", level="ok", text=f"the clock says {said}")


def _needed(requires: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    core: list[str] = []
    extras: dict[str, list[str]] = {}
    for line in requires:
        name = _REQUIREMENT.match(line)
        if name is None or name[0] == "amoxi-py":
            continue
        extra = _EXTRA.search(line)
        if extra is None:
            core.append(name[0])
        else:
            extras.setdefault(extra[1], []).append(name[0])
    return core, extras


def _missing(names: list[str]) -> list[str]:
    missing = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            missing.append(name)
    return missing
