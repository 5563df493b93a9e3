"""A fork that runs a command of `amoxi` is what a new interpreter would be: its files, ends and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fork_program
from forks import Forks
from processes import ServerProcess, clean_environment, free_port

SAYS_WHERE_IT_IS = """
import atexit, os, sys
from amoxi_py import agent

print("app", os.getcwd(), sys.path[0], sys.argv[1:], os.environ["APP_NAME"], os.environ.get("APP_GONE"))
print(__name__, sys.modules["__main__"].__spec__.name, os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd")))
print(sys.stdout.encoding, sys.stdout.errors, sys.stdout.write_through, sys.stderr.errors, sys.stdin.encoding)
atexit.register(print, "at the exit")


@agent
class Echo:
    "You echo."
"""
COMMANDS = [
    (["--version"], 0),
    (["start", "--fly"], 2),
    (["chat", "echo"], 0),
    (["chat", "nobody", "--message", "hello"], 2),
    (["runs", "show", "x"], 1),
]


@pytest.fixture
def both(forks: Forks) -> Any:
    """Run a command in both ways: `both(folder, *arguments)` gives the fork's end and the interpreter's."""

    def run(folder: Path, *arguments: str) -> list[subprocess.CompletedProcess[str]]:
        env = clean_environment({"APP_NAME": "kiosk"})
        assert forks.can_start(env)
        fork = forks.run(arguments, folder=folder, env=env, stdin="hello\n", timeout=60)
        command = [sys.executable, "-m", "amoxi_py", *arguments]
        options: dict[str, Any] = {"cwd": folder, "env": env, "input": "hello\n", "start_new_session": True}
        return [fork, subprocess.run(command, **options, text=True, capture_output=True, timeout=60)]

    return run


@pytest.mark.parametrize(("arguments", "code"), COMMANDS)
def test_a_fork_reads_writes_and_ends_like_a_new_interpreter(
    both: Any, app_folder: Any, arguments: list[str], code: int
) -> None:
    folder = app_folder({"app/__init__.py": SAYS_WHERE_IT_IS})
    fork, interpreter = both(folder, *arguments)
    assert (fork.returncode, fork.stdout, fork.stderr) == (
        interpreter.returncode,
        interpreter.stdout,
        interpreter.stderr,
    )
    assert fork.returncode == code


def test_the_signal_that_ends_a_fork_is_told(app_folder: Any, forks: Forks) -> None:
    server = ServerProcess(app_folder(), ["start", "--workers", "1"], port=free_port(), env={}, forks=forks)
    server.wait_ready()
    assert server.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        server.process.wait(0.01)
    os.killpg(server.pid, signal.SIGKILL)
    assert server.process.wait(60) == server.process.poll() == -signal.SIGKILL
    server.process.send_signal(signal.SIGTERM)  # to nobody


def test_the_server_processes_of_a_fork_are_forks_of_it_and_end_with_it(app_folder: Any, forks: Forks) -> None:
    server = ServerProcess(app_folder(), ["start", "--workers", "2"], port=free_port(), env={}, forks=forks)
    try:
        server.wait_log("(2 processes)")
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        commands = {child: Path(f"/proc/{child}/cmdline").read_text() for child in children}
        ours = [child for child, command in commands.items() if fork_program.__file__ in command]
        assert len(ours) == 2, commands
        assert server.stop() == 0
        assert not any(Path(f"/proc/{child}").exists() for child in ours)
        assert "Traceback" not in server.log()
    finally:
        server.kill9()


def test_all_processes_of_a_test_run_have_their_forks_from_one(forks: Forks, run_folder: Path, app_folder: Any) -> None:
    other = Forks(clean_environment(), run_folder)
    servers = [
        ServerProcess(app_folder(), ["start", "--workers", "1"], port=free_port(), env={}, forks=one)
        for one in (forks, other)
    ]
    try:
        stats = [Path(f"/proc/{server.pid}/stat").read_text() for server in servers]
        assert len({stat.rpartition(")")[2].split()[1] for stat in stats}) == 1, "one parent"
    finally:
        for server in servers:
            server.kill9()
        other.close()
    answer = forks.run(["--version"], folder=app_folder(), env=clean_environment(), stdin="", timeout=60)
    assert answer.returncode == 0, "it goes on without who has left"


def test_what_the_interpreter_itself_reads_from_the_environment_needs_a_new_one(forks: Forks) -> None:
    assert not forks.can_start(clean_environment({"PYTHONUNBUFFERED": ""}))
    assert not forks.can_start(clean_environment({"TZ": "Pacific/Auckland"}))
    assert forks.can_start(clean_environment({"AI_MODEL": "offline"}))


def test_a_fork_keeps_no_file_of_the_process_that_forks_however_high_its_number() -> None:
    code = "import os, fork_program; os.dup2(0, 900); fork_program.close_files(); print(*os.listdir('/proc/self/fd'))"
    env = clean_environment({"PYTHONPATH": str(Path(fork_program.__file__).parent)})
    listed = subprocess.run([sys.executable, "-c", code], env=env, text=True, stdout=subprocess.PIPE, check=True).stdout
    assert listed.split() == ["0", "1", "2", "3"]  # the last one is the look itself


def test_a_command_that_is_too_long_to_be_told_is_refused_and_the_next_is_not(app_folder: Any, forks: Forks) -> None:
    folder, env = app_folder(), clean_environment()
    with pytest.raises(ValueError, match="longer than what a fork can be told"):
        forks.run(["x" * 200_000], folder=folder, env=env, stdin="", timeout=60)
    assert forks.run(["--version"], folder=folder, env=env, stdin="", timeout=60).returncode == 0
