"""A page of the docs as a reader follows it: its files, commands, servers and Python, in a folder of its own.

The blocks of a page are found by Sybil. What each kind of block means is written down in CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Page as BrowserPage
from playwright.sync_api import sync_playwright
from sybil import Document, Example, Region, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from processes import clean_environment, free_port

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "ai", "*.log", "*.jsonl")
INFO = re.compile(r'(?P<language>[a-z]*)(?: title="(?P<title>[^"]+)")?[ \t]*\n')
NOT_RUN = re.compile(r"<!-- not run: [^\n]{10,} -->\n\s*\Z")
FILE = re.compile(r"[\w./-]*\.\w+")
PORT = re.compile(r"(\blocalhost:|\b127\.0\.0\.1:|--port |\bSERVER_PORT=)(8080|8081)\b")
DATABASE = "postgresql://shop:secret@localhost:5432/shop"  # a page that names it gets a database of its own
COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
ONE_COMMAND_S = 60.0
READY = {
    "uvicorn": ("Uvicorn running on",),
    "amoxi start": (" is ready: ",),
    "amoxi worker": ("the worker is ready",),
}
MODULE = "guide"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER_OPTIONS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]

TOKENS = re.compile(
    r"(?P<id>(?<![0-9a-f])[0-9a-f]{26}(?![0-9a-f])|\bR-[0-9a-f]{8}\b|(?<=kill -9 -)\d+)"
    r"|(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?Z?|\b\d\d:\d\d:\d\d\b|\b\d+\.\d+ ?s\b)"
    r"|(?P<number>(?<=^id: )\d+|(?<=\"last_event_id\":)\s*\d+)",
    re.MULTILINE,
)
ANYTHING = re.compile(r"(?<!\.)\.\.\.(?!\.)")
SHAPES = {"time": r"[\d:.TZ -]+s?", "number": r"\s*\d+"}
SHAPE_OF_ID = r"(?:[0-9a-f]{26}|R-[0-9a-f]{8}|\d+)"


class Ids:
    """What the ids on a page stand for in this run: each the same one wherever it is shown."""

    def __init__(self) -> None:
        self._actual: dict[str, str] = {}

    def put_in(self, text: str) -> str:
        """Return a text of the page with the ids of this run, as far as they were shown before."""
        return re.sub("|".join(map(re.escape, self._actual)) or r"\Z\A", lambda found: self._actual[found[0]], text)

    def match(self, expected: str, actual: str) -> bool:
        """Whether an output is the one on the page; what new ids stand for is remembered.

        What stands between two `...` is looked for where it comes first, so that no output takes long.
        """
        parts = ANYTHING.split(expected)
        known = dict(self._actual)
        place = 0
        for number, part in enumerate(parts):
            new: dict[str, str] = {}
            start = r"\A" if number == 0 else ""
            end = r"\Z" if number == len(parts) - 1 else ""
            found = re.compile(start + self._pattern(part, known, new) + end).search(actual, place)
            if found is None:
                return False
            bound = {shown: found[group] for shown, group in new.items()}
            if {*bound.values()} & {*known.values()} or len({*bound.values()}) < len(bound):
                return False  # two ids on the page are one in this run
            known |= bound
            place = found.end()
        self._actual = known
        return True

    def _pattern(self, text: str, known: dict[str, str], new: dict[str, str]) -> str:
        pattern = ""
        end = 0
        for token in TOKENS.finditer(text):
            pattern += re.escape(text[end : token.start()])
            end = token.end()
            kind, shown = str(token.lastgroup), token[0]
            if kind != "id":
                pattern += SHAPES[kind]
            elif shown in known:
                pattern += re.escape(known[shown])
            elif shown in new:
                pattern += f"(?P={new[shown]})"
            else:
                new[shown] = f"id{len(new)}"
                pattern += f"(?P<{new[shown]}>{SHAPE_OF_ID})"
        return pattern + re.escape(text[end:])


class Terminal:
    """A command that goes on while the reader does other things: a server, in a process group of its own."""

    def __init__(self, script: str, folder: Path, env: dict[str, str], log: Path) -> None:
        self._log = log
        self.folder = folder
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-ec", script],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def text(self) -> str:
        """What it has printed, without the lines of the log."""
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(line for line in lines if not re.match(r"\d\d:\d\d:\d\d ", line))

    def wait_for(self, text: str, times: int = 1) -> None:
        deadline = time.monotonic() + ONE_COMMAND_S
        while self.text().count(text) < times:
            assert self.process.poll() is None, f"it has ended:\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"not printed in time: {text!r}:\n{self._log.read_text()}"
            time.sleep(0.02)

    def interrupt(self) -> None:
        """Do what Ctrl-C does."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait(ONE_COMMAND_S)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)


class Reader:
    """Somebody who does what a page says, block by block."""

    def __init__(self, folder: Path, database: str = DATABASE) -> None:
        self.folder = folder
        self.here = folder
        self.ids = Ids()
        self.ports = {"8080": free_port(), "8081": free_port()}
        self._database = database
        self.last: Callable[[], str] = lambda: ""
        self.ran = 0
        self._failed = ""
        self._terminals: dict[str, Terminal] = {}
        self._state = folder.parent / "state.sh"
        self._state.write_text("")
        bin_folder = str(Path(sys.executable).parent)
        self._env = {
            **clean_environment({"SERVER_PORT": str(self.ports["8080"]), "HOME": str(folder.parent)}),
            "PATH": bin_folder + os.pathsep + os.environ["PATH"],
            "PYTEST_ADDOPTS": "-p no:schemathesis -p no:hypothesispytest",  # no page needs them; they take a second
        }

    def follow(self, example: Example) -> None:
        """Do what one block says."""
        block = example.region.lexemes
        title = block["title"] or ""
        source = self.ids.put_in(self._with_ports(str(block["source"])).replace(DATABASE, self._database))
        language = block["language"]
        self.ran += 1
        if title == "output":
            self._failed = ""  # a page may show what goes wrong
            self._compare(str(block["source"]))
            return
        self.check()
        if language == "sh" and title.endswith("terminal"):
            self._run_in(title, source)
        elif language == "sh" and not title:
            self._run(source)
        elif language == "js" and title.startswith("console of "):
            self._run_in_browser(self._with_ports(title.removeprefix("console of ")), source)
        elif FILE.fullmatch(title):
            self._write(title, source)
        elif language == "python" and not title:
            self._run_python(example, source)
        else:
            raise AssertionError(f"nobody knows how to run a block {language!r} with the title {title!r}")

    def _with_ports(self, text: str) -> str:
        """Return a text of the page with the ports of this run."""
        return PORT.sub(lambda found: f"{found[1]}{self.ports[found[2]]}", text)

    def check(self) -> None:
        """Raise when the last command failed and the page does not show that."""
        assert not self._failed, self._failed

    def close(self) -> None:
        """End all that the page has started."""
        for terminal in self._terminals.values():
            terminal.kill()
        forget_modules_of(self.folder)
        sys.modules.pop(MODULE, None)

    def _write(self, name: str, text: str) -> None:
        path = self.here / name
        assert path.resolve().is_relative_to(self.folder.resolve())
        path.parent.mkdir(parents=True, exist_ok=True)
        running = [
            one
            for one in self._terminals.values()
            if path.resolve().is_relative_to(one.folder.resolve()) and one.process.poll() is None
        ]
        seen = [one.text().count("the new version answers") for one in running]
        path.write_text(text, "utf-8")
        forget_modules_of(self.folder)
        if path.suffix == ".py" and "tests" not in path.parts:
            for terminal, before in zip(running, seen, strict=True):
                terminal.wait_for("the new version answers", before + 1)

    def _run(self, script: str) -> None:
        """Run commands to their end; variables and the current folder are kept for the next ones, as in a shell."""
        killed = re.findall(r"kill -9 -(\d+)", script)
        groups = {str(one.process.pid) for one in self._terminals.values() if one.process.poll() is None}
        assert set(killed) <= groups, f"this would kill what the page has not started: {script!r}"
        keep = f'{{ export -p; echo "cd \\"$PWD\\""; }} > "{self._state}"'
        whole = f"set -a; . \"{self._state}\"; set -o pipefail; trap 'code=$?; {keep}; exit $code' EXIT\n{script}"
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=self.here,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ONE_COMMAND_S,
            check=False,
        )
        text = done.stdout.decode("utf-8", "replace")
        self.last = lambda: text
        if done.returncode:
            self._failed = f"exit code {done.returncode}:\n{script}\n{text}"
        self.here = Path(self._state.read_text("utf-8").rpartition('cd "')[2].rstrip('"\n'))

    def _run_in(self, title: str, script: str) -> None:
        """Run what goes on until it is stopped, after stopping what went on in the same terminal before."""
        if title in self._terminals:
            self._terminals[title].interrupt()
        log = self.folder.parent / f"{title.replace(' ', '-')}-{self.ran}.log"
        terminal = self._terminals[title] = Terminal(script, self.here, self._env, log)
        self.last = terminal.text
        for sign in next((signs for word, signs in READY.items() if word in script), (" is ready: ", "to kill it")):
            terminal.wait_for(sign)

    def _run_python(self, example: Example, source: str) -> None:
        """Run Python in the namespace of the page, as if it were a program in the current folder."""
        printed = io.StringIO()
        example.parsed = type(example.region.lexemes["source"])(source, 0, 0)
        with contextlib.chdir(self.here), contextlib.redirect_stdout(printed), importing_from(self.here):
            PythonEvaluator()(example)
        self.last = printed.getvalue

    def _run_in_browser(self, url: str, source: str) -> None:
        """Run JavaScript as if it were typed into the console of a page of the app."""
        printed: list[str] = []
        with sync_playwright() as playwright:
            found = next(filter(None, map(shutil.which, BROWSERS)), None)
            browser = playwright.chromium.launch(
                executable_path=found, headless=True, chromium_sandbox=False, args=BROWSER_OPTIONS
            )
            page: BrowserPage = browser.new_page()
            page.goto(url)
            page.on("console", lambda message: printed.append(message.text) if message.type == "log" else None)
            page.evaluate(f"(async () => {{\n{source}\n}})()")
            browser.close()
        self.last = lambda: "\n".join(printed)

    def _compare(self, expected: str) -> None:
        expected = tidy(expected)
        actual = self.last()
        for given, shown in ((self._database, DATABASE), (place_of(self._database), place_of(DATABASE))):
            actual = actual.replace(given, shown)
        for shown, port in self.ports.items():
            actual = actual.replace(f":{port}", f":{shown}")
        actual = tidy(actual)
        assert self.ids.match(expected, actual), f"the page says:\n{expected}\n\nbut this came:\n{actual}"


def place_of(url: str) -> str:
    """Return an address as messages show it, without its user."""
    return url.rpartition("@")[2]


def tidy(text: str) -> str:
    """Return an output without colours, and without spaces and empty lines at its ends."""
    return "\n".join(line.rstrip() for line in COLOUR.sub("", text).strip().splitlines())


@contextlib.contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def forget_modules_of(folder: Path) -> None:
    """Have the modules of a folder imported anew: they were changed, or the next page has its own of the same name."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def blocks_of(path: Path, follow: Callable[[Example], None] = lambda _: None) -> Document:
    """Return a page with all of its blocks; those that a comment before them takes out are left away."""

    def parse(document: Document) -> Iterable[Region]:
        for region in RawFencedCodeBlockLexer(INFO)(document):
            if not NOT_RUN.search(document.text[: region.start]):
                region.evaluator = follow
                region.parsed = region.lexemes["source"]
                yield region

    return Sybil(parsers=[parse], encoding="utf-8").parse(path)


@pytest.fixture
def read_page(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[[Path, bool], int]]:
    """Follow a page to its end: `read_page(path, checkout)` gives how many blocks there were.

    With `checkout` the folder looks like a clone of this repository, else it is empty. In that clone `dev.py` runs the
    app without the installation that comes before, because the tests have everything.
    """
    readers: list[Reader] = []

    def read(path: Path, checkout: bool) -> int:
        folder = tmp_path / "reader"
        folder.mkdir()
        if checkout:
            shutil.copytree(ROOT / "app_template", folder / "app_template", ignore=LEFT_OUT)
            shutil.copy(ROOT / "application.json", folder)
            (folder / "data").mkdir()
            (folder / "dev.py").write_text(
                f"import os\nos.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'amoxi_py', 'dev'])\n"
            )
        names_database = DATABASE in path.read_text("utf-8")
        reader = Reader(folder, request.getfixturevalue("postgres_url") if names_database else DATABASE)
        readers.append(reader)
        document = blocks_of(path, reader.follow)
        module = sys.modules[MODULE] = ModuleType(MODULE)  # so that classes of the page are found by their name
        document.namespace = module.__dict__
        for example in document.examples():
            try:
                example.evaluate()
            except BaseException as error:
                error.add_note(f"in {path.relative_to(ROOT)}, the block at line {example.line}")
                raise
        reader.check()
        return reader.ran

    yield read
    for reader in readers:
        reader.close()


@pytest.fixture
def try_readme() -> Iterator[Callable[[Path], str]]:
    """Follow an app's README in its folder up to the first request or script, and return what that printed.

    A block that shows its output is compared.
    """
    readers: list[Reader] = []

    def attempt(readme: Path) -> str:
        reader = Reader(readme.parent)
        readers.append(reader)
        printed = ""
        for example in blocks_of(readme, reader.follow).examples():
            block = example.region.lexemes
            if printed and block["title"] != "output":
                break
            example.evaluate()
            if block["language"] == "sh" and not block["title"] and re.search(r"\b(curl|python3?) ", block["source"]):
                printed = reader.last()
        reader.check()
        return printed

    yield attempt
    for reader in readers:
        reader.close()


@pytest.fixture
def count_blocks() -> Callable[[Path], tuple[int, int]]:
    """Of a page: how many blocks it has, and how many of them are run."""

    def count(path: Path) -> tuple[int, int]:
        fences = len(re.findall(r"^\s*```", path.read_text("utf-8"), re.MULTILINE)) // 2
        return fences, len(list(blocks_of(path).examples()))

    return count
