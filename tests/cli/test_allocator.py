"""Servers run with the system's allocator, which gives memory back, unless their environment names another one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amoxi_py.cli import allocator


class Begun(Exception):
    """The program would begin anew here."""


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        calls.append((path, arguments, environment))
        raise Begun

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(allocator, "_has_glibc", lambda: True)
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    return calls


def test_the_program_begins_anew_as_it_was_called(begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-X", "utf8", "/bin/amoxi", "start"])

    with pytest.raises(Begun):
        allocator.use_system_allocator()

    arguments = [sys.executable, "-X", "utf8", "/bin/amoxi", "start"]
    assert begun == [(sys.executable, arguments, {**os.environ, "PYTHONMALLOC": "malloc"})]


@pytest.mark.parametrize("named", ["malloc", "pymalloc", "pymalloc_debug"])
def test_what_the_environment_names_is_used(named: str, begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONMALLOC", named)

    allocator.use_system_allocator()

    assert (begun, os.environ["PYTHONMALLOC"]) == ([], named)


def test_with_another_c_library_nothing_is_chosen(begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_has_glibc", lambda: False)

    allocator.use_system_allocator()

    assert begun == []
    assert "PYTHONMALLOC" not in os.environ


@pytest.mark.parametrize(
    "interpreter",
    [
        {"flags": SimpleNamespace(ignore_environment=1, dev_mode=False)},
        {"flags": SimpleNamespace(ignore_environment=0, dev_mode=True)},
        {"abiflags": "t"},
        {"executable": ""},
        {"executable": None},
    ],
    ids=["-E", "-X dev", "free-threaded", "without a path", "without any path"],
)
def test_an_interpreter_that_would_not_take_it_is_left_alone(
    interpreter: dict[str, Any], begun: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in interpreter.items():
        monkeypatch.setattr(sys, name, value)

    allocator.use_system_allocator()

    assert begun == []


def test_a_program_that_cannot_begin_anew_goes_on(begun: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def execve(*call: Any) -> None:
        begun.append(call)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "execve", execve)

    allocator.use_system_allocator()

    assert len(begun) == 1
    assert "PYTHONMALLOC" not in os.environ, "programs that it starts would have another one than it has"


def environments(server: Any) -> list[dict[str, str]]:
    """Return the environment that each process of a server was started with, that of the started one first."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    found = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (server.pid, *children)]
    return [dict(line.split("=", 1) for line in each.decode().split("\0") if "=" in line) for each in found]


@pytest.mark.parametrize("command", ["start", "worker"])
def test_a_server_begins_anew_as_the_same_process(command: str, app_folder: Any, serve: Any) -> None:
    server = serve(app_folder(), command=command, anew=True, wait_ready=False)
    server.wait_log("is ready")

    assert environments(server)[0]["PYTHONMALLOC"] == "malloc"
    assert server.stop() == 0


def test_all_processes_of_a_server_have_it(app_folder: Any, serve: Any) -> None:
    server = serve(app_folder(), args=["--workers", "2"], anew=True, wait_ready=False)
    server.wait_log("is ready")

    assert {each.get("PYTHONMALLOC") for each in environments(server)} == {"malloc"}
    assert len(environments(server)) >= 3
    assert server.stop() == 0


def test_a_server_keeps_the_one_that_it_was_given(app_folder: Any, serve: Any) -> None:
    server = serve(app_folder(), env={"PYTHONMALLOC": "pymalloc"}, anew=True, wait_ready=False)
    server.wait_log("is ready")

    assert environments(server)[0]["PYTHONMALLOC"] == "pymalloc"
    assert server.stop() == 0
