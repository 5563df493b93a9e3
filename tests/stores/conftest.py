"""Runs of the embedded store, and programs that use it from other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = Path(__file__).with_name("store_program.py")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def program() -> Any:
    """Start `store_program.py` with arguments; what is still there at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def outcome() -> Callable[[subprocess.Popen[str]], str]:
    """Wait for a program to end well, and return what it printed."""

    def wait(process: subprocess.Popen[str]) -> str:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return out

    return wait
