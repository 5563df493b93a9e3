"""What all tests share: a folder of its own for each, with tables of tenants and invoices that it writes."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable

import nightly
import pytest

DUE, LATER = "2026-01-31", "2999-12-31"


@pytest.fixture(autouse=True)
def own_folder(amoxi_folder):
    """Make a new folder the current one, with the settings of `application.json`."""


@pytest.fixture
def books() -> Callable[..., set[str]]:
    """Write the tables for so many tenants, and return the invoices that are due."""

    def write(count: int, *, broken: str = "") -> set[str]:
        tenants = [f"Tenant {number}" for number in range(count)]
        rows = [(one, f"{one}-{n}", "Ann", "12.50", DUE if n < 2 else LATER) for one in tenants for n in range(3)]
        rows = [(*row[:3], "a lot", row[4]) if row[0] == broken else row for row in rows]
        write_table("tenants.csv", ["tenant"], ([one] for one in tenants))
        write_table("invoices.csv", ["tenant", "invoice", "customer", "amount", "due"], rows)
        return {row[1] for row in rows if row[4] == DUE and row[0] != broken}

    return write


def write_table(name: str, header: list[str], rows: Iterable[Iterable[str]]) -> None:
    with open(name, "w", encoding="utf-8", newline="") as table:
        csv.writer(table).writerows([header, *rows])


@pytest.fixture(autouse=True)
def short_lease(monkeypatch):
    """Let what a killed script had begun be taken up half a second later."""
    monkeypatch.setenv("AI_RUNS_LEASE_MS", "500")


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Start the script as cron does: a process of its own. It is killed with the test at the latest."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        command = [sys.executable, nightly.__file__, "--json", *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def script(capsys, monkeypatch) -> Callable[..., tuple[int, str, str]]:
    """Run the script here to its end, and return its exit code and what it says on stdout and stderr."""

    def run(*options: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nightly.py", *options])
        code = nightly.main()
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def summary(script) -> Callable[..., tuple[int, dict, str]]:
    """Run the script here to its end, and return its exit code, its summary and what it says on stderr."""

    def run(*options: str) -> tuple[int, dict, str]:
        code, out, err = script("--json", *options)
        return code, json.loads(out), err

    return run
