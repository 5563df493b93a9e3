"""What an app opens once per process may fail or hang: every kind of process says so, and closes all the rest."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

APP = {
    "app/__init__.py": "",
    "app/db.py": '''
import asyncio
import os
from collections.abc import AsyncIterator

from amoxi_py import agent, provides


class Pool: ...
class Factory: ...


@provides
async def pool() -> AsyncIterator[Pool]:
    print("pool open", flush=True)
    yield Pool()
    print("pool closed", flush=True)


@provides
async def factory(pool: Pool) -> AsyncIterator[Factory]:
    mode = os.environ["MODE"]
    if mode == "open fails":
        raise ValueError("no such database")
    if mode == "open hangs":
        print("factory hangs", flush=True)
        await asyncio.Event().wait()
    yield Factory()
    if mode == "close fails":
        raise ValueError("it is gone")


@agent
class Echo:
    """You echo."""
''',
}
ONE = ["--workers", "1"]
TWO = ["--workers", "2"]


@pytest.fixture
def begin(serve: Any, app_folder: Any) -> Any:
    """Start a command for the app in a mode, and do not wait until it is ready."""

    def start(mode: str, command: str, args: list[str]) -> Any:
        folder: Path = app_folder(APP)
        env = {"MODE": mode, "SERVER_STOP_GRACE_S": "5", "LOG_FORMAT": "text"}
        return serve(folder, command=command, args=args, env=env, wait_ready=False)

    return start


@pytest.mark.parametrize(
    ("command", "args", "code"),
    [("start", ONE, 0), ("dev", [], 0), ("worker", [], 0), ("chat", ["--message", "hello"], 128 + signal.SIGTERM)],
)
def test_a_signal_ends_a_start_that_hangs_and_what_was_open_is_closed(
    begin: Any, command: str, args: list[str], code: int
) -> None:
    server = begin("open hangs", command, args)
    server.wait_log("factory hangs")
    heard = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(60) == code
    assert time.monotonic() - heard < 40
    assert "pool closed" in server.log()
    assert "Traceback" not in server.log()


@pytest.mark.parametrize(("command", "args"), [("start", ONE), ("worker", [])])
def test_a_provider_that_fails_to_open_is_named_in_one_line(begin: Any, command: str, args: list[str]) -> None:
    server = begin("open fails", command, args)
    assert server.wait_exit(60) == 1
    *before, last = server.log().splitlines()
    assert last == "amoxi: app.db: provider 'factory' failed to open: ValueError: no such database"
    assert "pool closed" in before
    assert len(before) < 10
    assert "dishka" not in server.log()


@pytest.mark.parametrize(("command", "args"), [("start", ONE), ("start", TWO), ("worker", [])])
def test_a_provider_that_fails_to_close_is_named_and_the_exit_says_so(
    begin: Any, command: str, args: list[str]
) -> None:
    server = begin("close fails", command, args)
    server.wait_log("the worker is ready" if command == "worker" else "is ready: ")
    server.process.send_signal(signal.SIGTERM)
    assert server.wait_exit(60) == 1
    log = server.log()
    assert "\namoxi: app.db: provider 'factory' failed to close: ValueError: it is gone\n" in log
    assert log.count("pool closed") == log.count("pool open")
    assert log.count("Traceback") == log.count("pool open")
    assert "dishka" not in log
