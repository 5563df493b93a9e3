#!/usr/bin/env python3
"""Does what a Dockerfile says without Docker, in an empty folder, and asks over HTTP what came of it.

`python3 tools/image_steps.py` takes the Dockerfile of this checkout, `... app_template` that of the template. It reads
the file itself, line by line, and refuses a line that it does not understand, so that the two cannot differ. FROM is a
fresh virtual environment; a path such as /data is in the folder; USER is meant where root can become that user.

With `--linked` what the packages need is not downloaded: the image imports it from the environment that this program
runs in. It is for tests; that no package is missing is what `newcomer.py` shows.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from newcomer import LONGEST_S, ROOT, SETTINGS, wait_for

QUESTION, ANSWER = "Where is order A-1001?", "Item: Trail backpack, 28 L"
LONGEST_STOP_S = 30.0
SECRETS = re.compile(r"SECRET|TOKEN|KEY|PASSWORD|CALLERS|DATABASE_URL")
INSTRUCTIONS = ("FROM", "WORKDIR", "RUN", "COPY", "USER", "ENV", "EXPOSE", "VOLUME", "HEALTHCHECK", "CMD")


class NotUnderstoodError(Exception):
    """A line of a Dockerfile that this program cannot carry out as Docker would."""


@dataclass(frozen=True)
class Line:
    """One instruction: its name in capitals, the rest as text, and the number of its first line."""

    number: int
    name: str
    rest: str

    def refuse(self, why: str) -> NotUnderstoodError:
        """Return the error that names this line."""
        return NotUnderstoodError(f"line {self.number} of the Dockerfile, {self.name} {self.rest}: {why}")


def read_dockerfile(text: str) -> list[Line]:
    """Return the instructions of a Dockerfile.

    Raises:
        NotUnderstoodError: one is unknown here, or the first is not FROM.
    """
    lines: list[Line] = []
    begun, start = "", 0
    for number, part in enumerate(text.splitlines(), 1):
        if not part.strip() or part.lstrip().startswith("#"):
            continue
        start = start if begun else number
        begun += part.strip()
        if begun.endswith("\\"):
            begun = begun[:-1]
            continue
        name, _, rest = begun.partition(" ")
        line = Line(start, name.upper(), rest.strip())
        if line.name not in INSTRUCTIONS or not line.rest or (line.name == "FROM") != (not lines):
            raise line.refuse(f"not understood; known are {', '.join(INSTRUCTIONS)}, with one FROM at the beginning")
        lines.append(line)
        begun = ""
    if begun:
        raise NotUnderstoodError(f"line {start} of the Dockerfile goes on after its end: {begun}")
    return lines


def exec_form(line: Line, text: str) -> list[str]:
    """Return the words of `["program", "argument"]`; a text would be run by a shell, which keeps signals to itself."""
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise line.refuse('write it as a list, ["program", "argument"]: a shell would not pass SIGTERM on')
    return words


def is_left_out(path: str, patterns: list[str]) -> bool:
    """Whether a `.dockerignore` with these lines keeps a path out of the image; the last line that fits decides."""
    places = [path, *map(str, PurePosixPath(path).parents)][:-1]
    left_out = False
    for pattern in patterns:
        plain = pattern.removeprefix("!").strip("/")
        forms = (plain, plain.removeprefix("**/")) if plain.startswith("**/") else (plain,)
        fits = any(
            form.count("/") == place.count("/") and fnmatch.fnmatchcase(place, form)
            for form in forms
            for place in places
        ) or (plain.startswith("**/") and any(fnmatch.fnmatchcase(place, plain) for place in places))
        left_out = not pattern.startswith("!") if fits else left_out
    return left_out


@dataclass
class Image:
    """What the lines have made so far.

    Attributes:
        source: The folder with the Dockerfile.
        root: The folder that stands for `/`.
        linked: Whether packages of this environment are used, and none downloaded.
    """

    source: Path
    root: Path
    linked: bool
    here: str = "/"
    uids: dict[str, int] = field(default_factory=dict)
    user: int = 0
    env: dict[str, str] = field(default_factory=dict)
    volumes: list[str] = field(default_factory=list)
    probe: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    @property
    def python(self) -> Path:
        """The interpreter of the image."""
        return self.root / "venv" / "bin" / "python"

    def place(self, path: str) -> Path:
        """Return where a path of the image is; it cannot lead out of it."""
        place = self.root / str(PurePosixPath(self.here) / path).lstrip("/")
        if ".." in PurePosixPath(path).parts:
            raise NotUnderstoodError(f"the path {path!r} leads up: write it from the root")
        return place

    def carry_out(self, line: Line) -> None:
        """Do what one instruction says."""
        getattr(self, f"_{line.name.lower()}")(line)

    def _from(self, line: Line) -> None:
        if not re.fullmatch(r"python:3\.\d+-slim", line.rest):
            raise line.refuse("only images such as python:3.12-slim are known")
        base = python_for_all() or sys.executable
        subprocess.run([base, "-m", "venv", "--without-pip", self.root / "venv"], check=True)
        if not self.linked:
            subprocess.run([self.python, "-m", "ensurepip", "--default-pip"], check=True, stdout=subprocess.DEVNULL)

    def _workdir(self, line: Line) -> None:
        self.here = str(PurePosixPath(self.here) / line.rest)
        self.place(".").mkdir(parents=True, exist_ok=True)

    def _env(self, line: Line) -> None:
        for pair in shlex.split(line.rest):
            name, sign, value = pair.partition("=")
            if not sign or SECRETS.search(name) or "$" in value:
                raise line.refuse("write NAME=VALUE, and no secret, which everybody who has the image could read")
            self.env[name] = value

    def _user(self, line: Line) -> None:
        if not line.rest.isdecimal() or int(line.rest) not in self.uids.values():
            raise line.refuse("name it by the number that useradd gave it: Kubernetes looks whether that is root's")
        self.user = int(line.rest)

    def _expose(self, line: Line) -> None:
        if not line.rest.isdecimal():
            raise line.refuse("write one port as a number")

    def _volume(self, line: Line) -> None:
        if not self.place(line.rest).is_dir():
            raise line.refuse("it is not there, and Docker would make it root's own: mkdir and chown it before")
        self.volumes.append(line.rest)

    def _healthcheck(self, line: Line) -> None:
        options, word, text = line.rest.partition("CMD ")
        if not word or not all(re.fullmatch(r"--[a-z-]+=\d+s?", option) for option in options.split()):
            raise line.refuse("write --option=NUMBERs ... CMD [...]")
        self.probe = exec_form(line, text)

    def _cmd(self, line: Line) -> None:
        self.command = exec_form(line, line.rest)

    def _copy(self, line: Line) -> None:
        *sources, target = line.rest.split()
        if not sources or any(part.startswith("--") for part in sources):
            raise line.refuse("write COPY SOURCE ... TARGET")
        file = self.source / ".dockerignore"
        patterns = [one for one in file.read_text("utf-8").split("\n") if one.strip()] if file.exists() else []
        for source in sources:
            given = self.source / source
            if not given.exists():
                raise line.refuse(f"{source!r} is not there")
            if given.is_file() and target != "." and not target.endswith("/"):
                raise line.refuse("end the folder that a file is copied to with '/': else it is the file's new name")
            into = self.place(target) / (given.name if given.is_file() else "")
            for path in [given] if given.is_file() else sorted(given.rglob("*")):
                name = path.relative_to(self.source).as_posix()
                if path.is_file() and not is_left_out(name, patterns):
                    copy = into if given.is_file() else into / path.relative_to(given)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(path, copy)

    def _run(self, line: Line) -> None:
        if self.user:
            raise line.refuse("write it before USER: that user may change nothing that the image has")
        for command in line.rest.split(" && "):
            if found := re.search(r"[;&|<>$`*?~\\]", command):
                raise line.refuse(f"what a shell makes of {found[0]!r} is not understood")
            self._do(line, shlex.split(command))

    def _do(self, line: Line, words: list[str]) -> None:
        match words:
            case ["useradd", "--create-home", "--uid", uid, name]:
                self.uids[name] = int(uid)
            case ["mkdir", path]:
                self.place(path).mkdir()
            case ["chown", name, path] if name in self.uids:
                if os.geteuid() == 0:
                    os.chown(self.place(path), self.uids[name], self.uids[name])
            case ["ln", "-s", target, path]:
                self.place(path).symlink_to(self.place(target))
            case ["pip", "install", "--no-cache-dir", what]:
                self._install(what)
            case _:
                raise line.refuse(f"{shlex.join(words)!r} is not understood; teach it to {Path(__file__).name}")

    def _install(self, what: str) -> None:
        needs = tomllib.loads((self.place(".") / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
        more = [str(ROOT)] if any(one.startswith("amoxi-py") for one in needs) else []  # as long as no registry has it
        if self.linked:
            more = ["--no-build-isolation", "--no-index", *more]
            self._link()
        command = [self.python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *more, what]
        quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "PIP_NO_COMPILE": "1"}
        done = subprocess.run(
            command,
            cwd=self.place("."),
            env={**clean_environment(), **self.env, **quiet},
            text=True,
            capture_output=True,
            timeout=LONGEST_S,
        )
        if done.returncode:
            sys.exit(f"pip install {what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def _link(self) -> None:
        """Let the image import what is installed here; what it installs itself comes before."""
        place = Path(sysconfig.get_path("purelib", "venv", {"base": str(self.root / "venv"), "platbase": ""}))
        (place / "linked.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")


def clean_environment() -> dict[str, str]:
    """Return the environment without settings of an app, as a container has none."""
    return {name: text for name, text in os.environ.items() if not name.startswith(SETTINGS)}


def python_for_all() -> str | None:
    """Return an interpreter of this version that every user may start, so that root can become another one."""
    if os.geteuid() != 0:
        return None
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [os.path.realpath(sys.executable), shutil.which(version, path="/usr/local/bin:/usr/bin")]
    return next((one for one in found if one and starts_as(10001, [one, "-c", ""])), None)


def starts_as(uid: int, command: list[str]) -> bool:
    """Whether root can run a command as another user."""
    try:
        return not subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True).returncode
    except OSError:
        return False


def build(image: Image) -> None:
    """Carry out all lines."""
    for line in read_dockerfile((image.source / "Dockerfile").read_text("utf-8")):
        began = time.monotonic()
        image.carry_out(line)
        print(f"{time.monotonic() - began:6.1f} s  {line.name} {line.rest[:90]}", flush=True)
    for what, there in (("CMD", image.command), ("HEALTHCHECK", image.probe), ("VOLUME", image.volumes)):
        if not there:
            raise NotUnderstoodError(f"the Dockerfile has no {what}")
    if not image.user:
        raise NotUnderstoodError("the Dockerfile has no USER, so the app would run as root")


def look(image: Image) -> None:
    """Start the command as the image's user, and ask: ready, one message, and a stop in time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = f"{image.python.parent}{os.pathsep}{os.defpath}"
    if image.env.get("SERVER_HOST") != "0.0.0.0":
        sys.exit("SERVER_HOST is not 0.0.0.0, so nothing outside of the container could reach it")
    env = {"PATH": path, "HOME": str(image.root), **image.env, "SERVER_HOST": "127.0.0.1", "PORT": str(port)}
    user: dict[str, Any] = {}
    if os.geteuid() == 0 and starts_as(image.user, [str(image.python), "-c", "import amoxi_py"]):
        user = {"user": image.user, "group": image.user, "extra_groups": []}
        print(f"it runs as user {image.user}, who can write to {', '.join(image.volumes)} alone", flush=True)
    else:
        print("it runs as the user of this program, who cannot be another one here", flush=True)
    log = image.root / "log"
    with log.open("wb") as printed:
        process = subprocess.Popen(
            image.command, cwd=image.place("."), env=env, stdout=printed, stderr=printed, **user
        )  # found by its PATH
    try:
        began = time.monotonic()
        check = [str(image.python), *image.probe[1:]] if image.probe[0] == "python" else image.probe
        around = {**env, "http_proxy": "http://127.0.0.1:9"}  # Docker gives containers the one of its own settings
        wait_for(lambda: not subprocess.run(check, env=around, capture_output=True, **user).returncode, "ready", log)
        print(f"{time.monotonic() - began:6.1f} s  the health check says that it is ready", flush=True)
        answer = ask(f"http://127.0.0.1:{port}", QUESTION)
        if ANSWER not in answer:
            sys.exit(f"{QUESTION!r} was answered {answer!r}")
        print(f"        {QUESTION!r} was answered", flush=True)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        code = process.wait(LONGEST_STOP_S)
        if code:
            sys.exit(f"after SIGTERM it ended with {code}:\n{log.read_text()}")
        print(f"{time.monotonic() - began:6.1f} s  it has stopped after SIGTERM", flush=True)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
    if not any(path.is_file() for path in image.place(image.volumes[0]).rglob("*")):
        sys.exit(f"nothing was kept in the volume {image.volumes[0]}")


def ask(url: str, message: str) -> str:
    """Return what the example's agent answers a visitor."""
    body = json.dumps({"message": message}).encode()
    request = urllib.request.Request(
        f"{url}/agents/support-agent/runs?wait=30", data=body, headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=40) as answer:
        return str(json.loads(answer.read())["output"])


def main() -> int:
    """Build and look at one image in a folder that is removed at the end."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("folder", nargs="?", default=".", help="with the Dockerfile, from the checkout's root")
    options.add_argument("--linked", action="store_true", help="link packages from this environment")
    given = options.parse_args()
    source = (ROOT / given.folder).resolve()
    with tempfile.TemporaryDirectory(prefix="image-") as place:
        os.chmod(place, 0o755)  # the image's user passes through
        image = Image(source=source, root=Path(place), linked=given.linked)
        try:
            build(image)
        except NotUnderstoodError as error:
            sys.exit(str(error))
        look(image)
    return 0


if __name__ == "__main__":
    sys.exit(main())
