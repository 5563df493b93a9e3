"""Windows: nothing that it does not have is imported at the start, and tests that need such things are left out."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
NEEDS_POSIX = re.compile(
    r"""^import\ (fcntl|resource)$ | f"/proc/ | "/proc"\)\.glob | os\.fork | killpg | SIGKILL | SIGSTOP | SIGTERM
      | \.freeze\( | stop\([^)]*\)\ ==\ 0 | \.terminate\(\)""",
    re.MULTILINE | re.VERBOSE,
)
# All modules are imported twice, so that the second time finds other libraries loaded and meets only our own imports.
IMPORT_AS_ON_WINDOWS = """
import importlib, os, pkgutil, signal, sys, time, types

def import_all():
    import amoxi_py
    names = [module.name for module in pkgutil.walk_packages(amoxi_py.__path__, "amoxi_py.")]
    for name in [name for name in names if not name.startswith("amoxi_py._app_template")]:
        if not name.endswith("__main__"):
            importlib.import_module(name)

import_all()
for name in [name for name in sys.modules if name.split(".")[0] == "amoxi_py"]:
    del sys.modules[name]
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "uvloop"):
    sys.modules[name] = None
sys.modules["msvcrt"] = types.ModuleType("msvcrt")
for place, names in {
    os: "fork killpg getpgrp setsid getuid geteuid sched_getaffinity",
    signal: "SIGKILL SIGSTOP SIGCONT SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD pthread_sigmask alarm setitimer",
    time: "clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC",
}.items():
    for name in names.split():
        delattr(place, name)
signal.SIGBREAK = signal.Signals.SIGTRAP
sys.platform = "win32"
import_all()
"""


def test_the_package_imports_nothing_that_windows_does_not_have() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORT_AS_ON_WINDOWS], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def on_windows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `tests/conftest.py` says there."""
    monkeypatch.setattr(sys, "platform", "win32")
    return runpy.run_path(str(TESTS / "conftest.py"))


def test_tests_that_need_posix_are_left_out_on_windows_and_named_and_no_others_anywhere(
    on_windows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    needing = [path for path in TESTS.rglob("test_*.py") if NEEDS_POSIX.search(path.read_text("utf-8"))]
    needing = [path for path in needing if path != Path(__file__)]
    left_out = set(on_windows["collect_ignore"])
    assert {path.relative_to(TESTS).as_posix() for path in needing} - left_out == set(), "name them in conftest.py"
    assert [name for name in left_out if not (TESTS / name).is_file()] == []
    told: list[str] = []
    reporter = type("Reporter", (), {"write_line": staticmethod(told.append)})
    on_windows["pytest_terminal_summary"](reporter)
    assert all(any(name in line for line in told) for name in left_out)

    monkeypatch.undo()
    assert runpy.run_path(str(TESTS / "conftest.py"))["collect_ignore"] == []
