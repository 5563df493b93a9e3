"""The program itself: quick help, honest exit codes, messages where they belong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from processes import clean_environment

SCRIPT = Path(sysconfig.get_path("scripts")) / ("amoxi.exe" if sys.platform == "win32" else "amoxi")
WAYS = [[str(SCRIPT)], [sys.executable, "-m", "amoxi_py"]]


def anew(*arguments: str, way: int = 1, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*WAYS[way], *arguments], cwd=cwd, env=clean_environment(), text=True, capture_output=True, timeout=60
    )


def cpu_of(*command: str) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("way", [0, 1])
def test_the_script_and_the_module_are_the_same_program(way: int) -> None:
    answer = anew("--help", way=way)
    assert answer.returncode == 0
    assert answer.stdout.startswith("Usage: amoxi ")


def test_help_lists_the_commands_that_exist(amoxi: Any, tmp_path: Path) -> None:
    listed = [line.split()[0] for line in anew("--help").stdout.split("Commands:")[1].splitlines() if line.strip()]
    names = "new dev start worker chat ingest runs approvals connections export erase token migrate doctor bench"
    assert listed == names.split()
    for name in listed:
        assert amoxi(tmp_path, name, "--help").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        "new shop",
        "chat echo --message hello",
        "ingest --remove",
        "runs list",
        "approvals list",
        "token nightly",
        "migrate",
        "doctor",
    ],
)
def test_a_command_finds_all_that_it_imports_in_an_interpreter_of_its_own(
    app_folder: Any, make_store: Any, arguments: str
) -> None:
    folder = app_folder()
    make_store(folder / "data" / "ai")
    answer = anew(*arguments.split(), cwd=folder)
    assert answer.returncode == 0, answer.stderr


def test_help_takes_under_100_ms_of_cpu() -> None:
    """Measured beside an empty program, which others at work slow down as much; that takes 14 ms on a quiet machine."""
    tries = 50
    helps, empty = [], []
    for _ in range(tries):
        helps.append(cpu_of(*WAYS[0], "--help"))
        empty.append(cpu_of(sys.executable, "-c", "pass"))
        if min(helps) < 0.100 * max(1.0, min(empty) / 0.014):
            return
    pytest.fail(f"--help takes {min(helps):.3f} s of CPU, an empty program {min(empty):.3f} s")


def test_help_imports_nothing_heavy() -> None:
    code = "import sys, amoxi_py.cli.program as p\ntry: p.main(['--help'])\nexcept SystemExit: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout.split()
    heavy = {"asyncio", "pydantic", "fastapi", "uvicorn", "sqlite3", "psycopg", "mcp", "a2a", "openai", "dishka"}
    assert (heavy | {"rich"}) & set(loaded) == set()


def test_an_app_that_opens_no_other_door_loads_none_of_their_libraries() -> None:
    code = "import sys, amoxi_py.app.web, amoxi_py.cli.token, amoxi_py.cli.checks.a2a\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout.split()
    assert {"mcp", "a2a", "google.protobuf", "sse_starlette"} & set(loaded) == set()


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert anew("--version").stdout.strip() == f"amoxi {version('amoxi-py')}"


def test_the_help_of_each_command_has_its_lines_as_they_were_written() -> None:
    from amoxi_py.cli.program import program

    def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
        context = click.Context(command, info_name=path)
        yield path, command.get_help(context)
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from helps(below, f"{path} {name}")

    told = dict(helps(program, "amoxi"))
    assert "amoxi approvals decide" in told
    for path, text in told.items():
        assert not re.search(r"[\\\b]", text), path
    assert "\n    tests/            tests that pass: python -m pytest\n" in told["amoxi new"]


@pytest.mark.parametrize(
    "arguments", [["fly"], ["--fly"], ["start", "--fly"], ["start", "--workers", "0"], ["dev", "x"]]
)
def test_a_wrong_use_ends_with_2_and_says_so_on_stderr(amoxi: Any, tmp_path: Path, arguments: list[str]) -> None:
    answer = amoxi(tmp_path, *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "Error:" in answer.stderr


@pytest.mark.parametrize("command", ["dev", "start", "worker", "migrate", "chat", "runs list", "approvals list"])
def test_a_bad_setting_ends_with_1_and_no_traceback(amoxi: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "application.json").write_text('{"server": {"prot": 1}}', "utf-8")
    answer = amoxi(tmp_path, *command.split())
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "'server.prot' in application.json is no setting; did you mean 'server.port'?" in answer.stderr
    assert "Traceback" not in answer.stderr
