"""Runs of the embedded store, and programs that use it from other processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission

_PROGRAM = Path(__file__).with_name("store_program.py")


class Later:
    """The time, some seconds ahead."""

    ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead

    def running(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock() -> Later:
    """A clock that can be set ahead: `clock.ahead = 60`."""
    return Later()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def submission() -> Callable[..., Submission]:
    """Make Ann's first message of a new conversation, or another one."""

    def make(text: str = "hello", **more: Any) -> Submission:
        values = {
            "run_id": new_id("run"),
            "message_id": new_id("msg"),
            "conversation_id": new_id("conv"),
            "new_conversation": True,
            "agent": "a",
            "principal": Principal(id="user:ann"),
            "text": text,
        }
        return Submission(**(values | more))

    return make


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
