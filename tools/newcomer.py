#!/usr/bin/env python3
"""Goes the way of a newcomer, from a wheel to an own tool, by nothing but what the commands print, and times each step.

It needs Python with venv, and a package index that pip can reach: `python3 tools/newcomer.py`.

With `--linked`, what the package and the app say that they need is not downloaded but linked from the environment that
this program runs in, and nothing else of it; pip then finds that all is there. It is for tests, which run often.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = (
    "AI_",
    "AMOXI_",
    "SERVER_",
    "APP_",
    "LOG_",
    "OPENAI_",
    "ANTHROPIC_",
    "DATABASE_URL",
    "PORT",
    "PYTHON",
    "PIP_R",
)
LONGEST_S = 300.0  # pip on a busy machine
PRINTED_URL = "http://localhost:8080"


class Newcomer:
    """Somebody at a terminal, in a folder, who reads what is printed and types it."""

    def __init__(self, home: Path) -> None:
        self.folder = home
        kept = {name: text for name, text in os.environ.items() if not name.startswith(SETTINGS)}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        scripts = home / "venv" / "bin"
        path = f"{scripts}{os.pathsep}{kept.get('PATH', '')}"
        self.environment = {
            **kept,
            "PATH": path,
            "SERVER_PORT": str(self.port),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_NO_COMPILE": "1",  # most of what is installed is not imported here
            "PYTHONUNBUFFERED": "1",
        }
        self.url = PRINTED_URL
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what is done in it."""
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.steps.append((name, took))
        print(f"{took:6.1f} s  {name}", flush=True)

    def type(self, *command: str) -> str:
        """Run a command to its end and return what it printed."""
        program, *arguments = command
        done = subprocess.run(
            [program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            timeout=LONGEST_S,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{shlex.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    @contextmanager
    def left_running(self, *command: str) -> Iterator[Path]:
        """Run a command in another terminal, and end it like Ctrl-C does; give the file with what it prints."""
        log = self.folder.parent / "running.log"
        with log.open("wb") as printed:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield log
            process.send_signal(signal.SIGINT)
            if process.wait(30):
                sys.exit(f"{shlex.join(command)} ended with {process.returncode}:\n{log.read_text()}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def ask(self, curl: list[str]) -> str:
        """Do what a printed curl command says, and return the answer of the agent."""
        [url] = [part for part in curl if part.startswith(PRINTED_URL)]
        body = curl[curl.index("-d") + 1].encode()
        name, _, value = curl[curl.index("-H") + 1].partition(": ")
        request = urllib.request.Request(url.replace(PRINTED_URL, self.url), data=body, headers={name: value})
        with urllib.request.urlopen(request, timeout=40) as answer:
            run: dict[str, Any] = json.loads(answer.read())
        if run["status"] != "completed":
            sys.exit(f"the run did not complete: {run}")
        return str(run["output"])


def wait_for(condition: Callable[[], Any], what: str, log: Path) -> Any:
    """Return what the condition gives once it gives something."""
    deadline = time.monotonic() + 40
    while not (found := condition()):
        if time.monotonic() > deadline:
            sys.exit(f"{what} did not happen; it printed:\n{log.read_text()}")
        time.sleep(0.05)
    return found


def commands_in(printed: str) -> list[list[str]]:
    """Return the indented lines of what was printed that are commands."""
    lines = [line[2:] for line in printed.splitlines() if re.match(r"  \S", line)]
    return [shlex.split(line) for line in lines]


def files_in(printed: str) -> list[tuple[str, str]]:
    """Return the files that are to be saved: their names, and the block of text after each."""
    found = re.findall(r"save this as (\S+)\n\n(.*?)\n(?=\S)|and this as (\S+)\n\n(.*?)\n(?=\S)", printed, re.DOTALL)
    return [(one or other, textwrap.dedent(text or more)) for one, text, other, more in found]


class Links:
    """Puts distributions of this environment into another one, as links to their files.

    Args:
        place: The folder that the other one imports from.
        own: The distribution that is not linked, and what it is: only what it needs is.
    """

    def __init__(self, place: Path, own: metadata.Distribution) -> None:
        self._place = place
        self._own = own
        self._seen: set[tuple[str, str]] = set()

    def add(self, requirements: list[str]) -> None:
        """Link what these ask for, and what that asks for."""
        from packaging.requirements import Requirement  # a newcomer's Python has none
        from packaging.utils import canonicalize_name

        queue = [Requirement(one) for one in requirements]
        while queue:
            wanted = queue.pop()
            name = canonicalize_name(wanted.name)
            try:
                found = self._own if name == canonicalize_name(self._own.name) else metadata.distribution(name)
            except metadata.PackageNotFoundError:  # pip gets it
                continue
            for extra in ("", *wanted.extras):
                if (name, extra) in self._seen:
                    continue
                if not extra and found is not self._own:
                    self._link(found)
                self._seen.add((name, extra))
                needs = [Requirement(one) for one in found.requires or ()]
                queue += [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]

    def _link(self, found: metadata.Distribution) -> None:
        source = str(found.locate_file(""))
        names = [str(file) for file in found.files or () if file.parts[0] != ".."]  # those are scripts and manuals
        code = [importlib.util.cache_from_source(name) for name in names if name.endswith(".py")]
        names = list(dict.fromkeys([*names, *code]))  # with the bytecode, which would take longer to make than all else
        for folder in {os.path.dirname(name) for name in names}:
            (self._place / folder).mkdir(parents=True, exist_ok=True)
        for name in names:  # each file, so that nothing done here reaches a folder there
            if os.path.exists(target := os.path.join(source, name)):
                os.symlink(target, os.path.join(self._place, name))


def main() -> int:
    """Go the whole way in a folder that is removed at the end."""
    linked = sys.argv[1:] == ["--linked"]
    with tempfile.TemporaryDirectory(prefix="newcomer-") as home:
        newcomer = Newcomer(Path(home))
        follow(newcomer, prepare(newcomer, linked))
    total = sum(took for _, took in newcomer.steps)
    print(f"{total:6.1f} s  in all", flush=True)
    return 0


def prepare(newcomer: Newcomer, linked: bool) -> Links | None:
    """Make a clean environment with the package as it is released."""
    with newcomer.step("a clean virtual environment"):
        newcomer.type(sys.executable, "-m", "venv", *(["--without-pip"] if linked else []), "venv")
    with newcomer.step("the wheel is built"):
        if importlib.util.find_spec("build") and importlib.util.find_spec("hatchling"):
            newcomer.type(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", str(ROOT))
        else:
            newcomer.type("python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist", str(ROOT))
    [wheel] = (newcomer.folder / "dist").glob("*.whl")
    links = None
    if linked:
        with newcomer.step("links to what the wheel needs"):
            links = link_for(newcomer.folder / "venv", wheel)
    with newcomer.step("pip install of the wheel"):
        newcomer.type("python", "-m", "pip", "install", "--quiet", str(wheel))
    return links


def link_for(environment: Path, wheel: Path) -> Links:
    """Link pip into an environment, and what a wheel says that it needs."""
    name, version = wheel.name.split("-")[:2]
    own = metadata.PathDistribution(zipfile.Path(wheel, f"{name}-{version}.dist-info/"))
    place = sysconfig.get_path("purelib", "venv", {"base": str(environment), "platbase": str(environment)})
    links = Links(Path(place), own)
    links.add(["pip", own.name])
    return links


def link_for_app(links: Links, folder: Path) -> None:
    """Link what an app and its tests say that they need."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    links.add([*project["dependencies"], *project["optional-dependencies"]["dev"]])


def follow(newcomer: Newcomer, links: Links | None) -> None:
    """Type what `amoxi new` prints, line by line."""
    with newcomer.step("amoxi new shop"):
        printed = newcomer.type("amoxi", "new", "shop")
    cd, install, dev, test, ask, ask_own = commands_in(printed)
    newcomer.folder /= cd[1]
    if links is not None:
        link_for_app(links, newcomer.folder)
    with newcomer.step(shlex.join(install)):
        newcomer.type(*install)
    began = time.monotonic()
    with newcomer.left_running(*dev) as log:
        with newcomer.step(f"{shlex.join(dev)}: it is ready"):
            ready = wait_for(lambda: re.search(r" is ready: (\S+)", log.read_text()), "the server's start", log)
            newcomer.url = ready[1]
        with newcomer.step("the first answer"):
            expect("A-1001", newcomer.ask(ask))
        print(f"          {time.monotonic() - began:.1f} s from amoxi dev to the first answer", flush=True)
        with newcomer.step("an own tool is saved while the app runs, and used"):
            for name, text in files_in(printed):
                (newcomer.folder / name).write_text(text, "utf-8")
            answer = wait_for(lambda: when_there(lambda: newcomer.ask(ask_own)), "the use of an own tool", log)
            expect("closed", answer)
    with newcomer.step(f"{shlex.join(test)}: its tests and the own one pass"):
        told = newcomer.type(*test)
    expect("test_hours.py", told)
    print(f"          {told.strip().splitlines()[-1]}", flush=True)


def when_there(ask: Callable[[], str]) -> str:
    """Return the answer, or nothing while the new agent is not known yet."""
    try:
        return ask()
    except (urllib.error.URLError, ConnectionError):
        return ""


def expect(part: str, text: str) -> None:
    """End with what was said instead when `part` is not in it."""
    if part not in text:
        sys.exit(f"{part!r} was expected, but this came:\n{text}")


if __name__ == "__main__":
    sys.exit(main())
