#!/usr/bin/env python3
"""Two commands for a fresh machine, with nothing but Python: `python3 dev.py run` and `python3 dev.py test`."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
        install("[dev]")
        find_programs()
        return test(arguments[1:])
    print(USAGE, file=sys.stderr)
    return 2


def install(extras: str) -> None:
    """Make `.venv` and install the project into it, when that was not done since pyproject.toml changed."""
    stamp = VENV / f"installed{extras}"
    wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if PYTHON.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    if not PYTHON.exists() or call("-c", HAS_PIP):  # uv makes them without pip
        make_venv()
    print("installing into .venv; this takes a minute or two, and warnings of pip can be ignored ...", flush=True)
    for old in VENV.glob("installed*"):
        old.unlink()
    if call("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", f".{extras}"):
        sys.exit("the installation failed; the lines above say why. Try again with: python3 dev.py " + sys.argv[1])
    stamp.write_text(wanted)
    if extras:
        (VENV / "installed").write_text(wanted)


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


def has_browser() -> bool:
    """Whether there is a browser, the system's or Playwright's own."""
    return any(map(shutil.which, BROWSERS)) or call("-c", HAS_OWN_BROWSER) == 0


def has_pooler() -> bool:
    """Whether there is a PgBouncer, which Debian puts where only root looks."""
    return shutil.which("pgbouncer", path=SYSTEM_FOLDERS) is not None


def has_wrong_clock() -> bool:
    """Whether there is a libfaketime."""
    return any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


def has_debian_postgres() -> bool:
    """Whether there is a PostgreSQL without pgvector, beside the one that comes with the installation."""
    return any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


PROGRAMS: tuple[tuple[str, Callable[[], bool], str], ...] = (
    ("chromium", has_browser, "of the pages"),
    ("pgbouncer", has_pooler, "of PostgreSQL behind a pooler"),
    ("libfaketime", has_wrong_clock, "of servers whose clocks are wrong"),
    ("postgresql", has_debian_postgres, "of PostgreSQL without pgvector"),
)


def find_programs() -> None:
    """Make sure that what the tests need beside Python is there, or say in a line for each how to get it."""
    missing = [program for program in PROGRAMS if not program[1]()]
    if missing and hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = [package for package, _, _ in missing]
        print(f"installing what the tests need: apt-get install {' '.join(packages)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        one_by_one = [["install", "-qq", "-y", "--no-install-recommends", package] for package in packages]
        for command in (["update", "-qq"], *one_by_one):  # a system without one of them still gets the others
            subprocess.run(["apt-get", *command], env=quiet, stdin=subprocess.DEVNULL, check=False)
        missing = [program for program in missing if not program[1]()]
    for package, _, tests in missing:
        more = f", or run {PYTHON.relative_to(ROOT)} -m playwright install chromium" if package == "chromium" else ""
        print(f"no {package} found, so the tests {tests} will fail: apt install {package}{more}", file=sys.stderr)


def test(pytest_arguments: list[str]) -> int:
    """Run all checks and all tests, also when one fails; with arguments, only pytest with these."""
    call("-m", "compileall", "-q", "amoxi_py")  # hundreds of processes start, and some systems keep no bytecode
    if pytest_arguments:
        return call("-m", "pytest", *pytest_arguments)
    cores = os.cpu_count() or 1  # there is one process more than these, because tests of servers also wait
    checks = {
        "ruff check": ("-m", "ruff", "check", "."),
        "ruff format": ("-m", "ruff", "format", "--check", "."),
        "mypy": ("-m", "mypy"),
        "import-linter": ("-c", "from importlinter.cli import lint_imports_command as check; check()"),
        "pytest": ("-m", "pytest", "-n", str(cores + 1), "--dist", "loadgroup"),
    }
    failed = [name for name, check in checks.items() if call(*check)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed", file=sys.stderr)
    return 1 if failed else 0


def run(*arguments: str) -> int:
    """Become the project's Python with these arguments, so that signals reach it; Windows can only wait for it."""
    if os.name == "nt":
        return call(*arguments)
    os.chdir(ROOT)
    os.execv(PYTHON, [str(PYTHON), *arguments])


def call(*arguments: str) -> int:
    """Run the project's Python with these arguments and return its exit code; Ctrl-C is the child's to handle."""
    with subprocess.Popen([str(PYTHON), *arguments], cwd=ROOT) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
