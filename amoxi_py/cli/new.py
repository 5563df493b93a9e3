"""`amoxi new`: the folder of a new app, with what to do next."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from textwrap import indent

import click

_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_WINDOWS_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10))}
_TOOL_FILE = "app/hours.py"
_TOOL = '''\
from amoxi_py import agent, tool


@tool(read_only=True)
def opening_hours(day: str) -> str:
    """Tell the opening hours of the shop on a day.

    Args:
        day: The day of the week, e.g. Sunday
    """
    return "closed" if day == "Sunday" else "9 to 18"


@agent(tools=[opening_hours])
class Doorkeeper:
    """You tell people when the shop is open."""
'''
_TEST_FILE = "tests/test_hours.py"
_TEST = """\
from app.hours import opening_hours


def test_sunday_is_free() -> None:
    assert opening_hours("Sunday") == "closed"
"""


@click.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Add what is missing to a folder that is not empty; overwrites nothing.")
def new(name: str, force: bool) -> None:
    """Make the folder NAME with an app that runs as it is.

    \u0008
    What it makes:
      app/              two agents with their tools, and two pages
      tests/            tests that pass: python -m pytest
      application.json  settings; .env.example shows those that are secret
      pyproject.toml    what the app needs
      Dockerfile, .gitignore, README.md
      data/             where runs, and what the example tools write, are kept

    NAME may be a path: its last part is the app's name. A folder that is not empty is refused.
    """
    from amoxi_py.cli.app_files import files_of_new_app

    folder = Path(name)
    app = folder.resolve().name
    _check_name(app, name)
    files = files_of_new_app(app)
    kept = _make(folder, files, force=force)
    click.echo(
        f"made {folder}: an app with two agents, its pages and its tests ({len(files) - len(kept)} files written)"
    )
    for path in (path for path, same in kept.items() if not same):
        click.echo(f"kept {folder / path}, which was there and is not the template's")
    click.echo(_next_steps(folder))


def _check_name(app: str, given: str) -> None:
    if not _NAME.fullmatch(app):
        raise click.UsageError(
            f"{app!r} (of {given!r}) is no name for an app: 1 to 64 of a-z, A-Z, 0-9, - and _, "
            "beginning with a letter and ending with a letter or digit, such as my-shop"
        )
    if app.lower() in _WINDOWS_DEVICES:
        raise click.UsageError(f"{app!r} is no name for an app: it is a device on Windows; choose another")
    if _normal(app) in _distributions():
        raise click.UsageError(
            f"{app!r} is no name for an app: it is a package that the app needs, and pip would take one for the other; "
            f"choose another, such as {app}-app"
        )


def _distributions() -> set[str]:
    """Return the names of this package and of what it is made with."""
    from importlib.metadata import requires

    needed = {match[0] for line in requires("amoxi-py") or () if (match := re.match(r"[A-Za-z0-9._-]+", line))}
    return {_normal(name) for name in {"amoxi-py", *needed}}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _make(folder: Path, files: dict[str, bytes], *, force: bool) -> dict[str, bool]:
    """Write the files; return those that were there already, and whether they are the same."""
    from amoxi_py.errors import CommandRefused

    try:
        if not folder.exists():
            _make_whole(folder, files)
            return {}
        if not folder.is_dir():
            raise CommandRefused(f"{str(folder)!r} is a file: choose another name, or move it away")
        there = {path for path in files if os.path.lexists(folder / path)}
        if any(folder.iterdir()) and not force:
            raise CommandRefused(_not_empty(folder, there))
        kept = {path: _is_same(folder / path, files[path]) for path in sorted(there)}
        for path in files.keys() - there:
            _write(folder / path, files[path])
    except OSError as error:
        place = error.filename or folder
        raise CommandRefused(
            f"{str(folder)!r} cannot be made: {str(place)!r}: {error.strerror or error}; "
            "make room, or choose a folder that this user may write to"
        ) from error
    return kept


def _not_empty(folder: Path, there: set[str]) -> str:
    would = f"--force would keep {', '.join(sorted(there))} as they are and add the rest" if there else ""
    return (
        f"the folder {str(folder)!r} is not empty: choose another name, or add the app's files with --force, "
        f"which overwrites nothing{'; ' + would if would else ''}"
    )


def _is_same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _make_whole(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder that is there with all of its files, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as half:
        made = Path(half) / folder.name
        for path, content in files.items():
            _write(made / path, content)
        made.rename(folder)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:  # never over something that came meanwhile
        file.write(content)


def _next_steps(folder: Path) -> str:
    url = "http://localhost:8080"
    ask = f"{url}/agents/support-agent/runs?wait=30"
    question = """-H 'content-type: application/json' -d '{"message": "Where is order A-1001?"}'"""
    own = f"{url}/agents/doorkeeper/runs?wait=30"
    own_question = """-H 'content-type: application/json' -d '{"message": "What are the opening hours on Sunday?"}'"""
    python, amoxi, first = _programs()
    lines = [
        "",
        "next:",
        f"  cd {shlex.quote(str(folder))}",
        *(f"  {line}" for line in first),
        f"  {python} -m pip install -e '.[dev]'",
        f"  {amoxi} dev",
        f"  {python} -m pytest",
        "",
        f"{amoxi} dev needs no key: an offline model answers. Open {url} and ask: Where is order A-1001?",
        "Or in another terminal:",
        f"  curl -s '{ask}' {question}",
        "",
        f"A tool of your own: while {amoxi} dev runs, save this as {_TOOL_FILE}",
        "",
        indent(_TOOL, "    "),
        f"and this as {_TEST_FILE}",
        "",
        indent(_TEST, "    "),
        "then ask for it, and run the tests again:",
        f"  curl -s '{own}' {own_question}",
    ]
    return "\n".join(lines)


def _programs() -> tuple[str, str, list[str]]:
    """Return how to call Python and amoxi in the new app, and what comes before.

    Whoever runs in an environment of Python goes on in it; else the app gets one of its own.
    """
    if sys.prefix == sys.base_prefix:
        scripts = r".venv\Scripts" if sys.platform == "win32" else ".venv/bin"
        python = "py" if sys.platform == "win32" else "python3"
        return os.path.join(scripts, "python"), os.path.join(scripts, "amoxi"), [f"{python} -m venv .venv"]
    return _command("python"), _command("amoxi"), []


def _command(name: str) -> str:
    """Return the name if a shell finds the program of this environment by it, else the program's path."""
    ours = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is not None and Path(found).parent == ours.parent:
        return name
    return shlex.quote(str(ours))
