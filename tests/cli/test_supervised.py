"""`amoxi start` with several processes: the runs of one that is killed, starts that fail again and again, stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.testing.client import Client
from processes import clean_environment

TOKEN = "a-token-that-is-long-enough"
CALLER = {"AI_API_CALLERS_ACME": TOKEN}
LEASE_S = 600.0
BESIDE = Path(__file__).parent

KETTLE = {
    "app/__init__.py": "",
    "app/kettle.py": '''
import asyncio, os
from pathlib import Path
from amoxi_py import ToolContext, agent, tool


@tool(idempotent=True)
async def boil_water(ctx: ToolContext) -> str:
    """Boil water, until somebody takes it."""
    with open("boiled.log", "a") as log:
        log.write(f"{ctx.call_id} {os.getpid()}\\n")
    while not Path("taken").exists():
        await asyncio.sleep(0.02)
    return "it boils"


@agent(tools=[boil_water])
class Kettle:
    """You boil water."""
''',
}


@pytest.fixture(params=["file", "postgres"])
def store_env(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "file":
        return {}
    return {"AI_STORE_TYPE": "postgres", "DATABASE_URL": request.getfixturevalue("postgres_url")}


@pytest.fixture
def clients() -> Iterator[Callable[[str], Client]]:
    opened: list[Client] = []

    def client(url: str) -> Client:
        opened.append(Client(url, token=TOKEN))
        return opened[-1]

    yield client
    for one in opened:
        one.close()


@pytest.fixture
def terminals_hang_up() -> Iterator[None]:
    """Whoever runs the tests may have been started by nohup; what they start is not."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def wait_for(condition: Callable[[], Any], timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
    return found


def boiled(folder: Path) -> list[tuple[str, int]]:
    """Return the calls that have begun, with the process of each."""
    if not (folder / "boiled.log").exists():
        return []
    lines = (folder / "boiled.log").read_text("utf-8").splitlines()
    return [(call_id, int(pid)) for call_id, pid in map(str.split, lines)]


def submit_until_both_work(connect: Callable[[], Client], folder: Path) -> list[str]:
    """Submit runs until two processes execute some, and return the runs' ids when all calls have begun."""
    runs: list[str] = []
    while len({pid for _, pid in boiled(folder)}) < 2:
        assert len(runs) < 100, "one process takes all"
        runs.append(connect().submit("kettle", "boil water")["id"])  # each connection is accepted by either process
        wait_for(lambda: len(boiled(folder)) == len(runs))
    return runs


@pytest.mark.crash
def test_runs_of_a_killed_process_go_on_at_once_in_another_whatever_their_lease(
    serve: Any, app_folder: Any, store_env: dict[str, str], clients: Callable[[str], Client]
) -> None:
    folder = app_folder(KETTLE, {"ai": {"runs": {"lease-ms": LEASE_S * 1000}}})
    server = serve(folder, env={**CALLER, **store_env}, args=["--workers", "2"])
    server.wait_log("(2 processes)")
    runs = submit_until_both_work(lambda: clients(server.url), folder)
    begun = boiled(folder)
    victim = begun[-1][1]
    lost = {call_id for call_id, pid in begun if pid == victim}
    os.kill(victim, signal.SIGKILL)
    again = wait_for(lambda: found if len(found := boiled(folder)[len(begun) :]) == len(lost) else None)
    assert {call_id for call_id, _ in again} == lost, "what the other process does goes on undisturbed"
    assert victim not in {pid for _, pid in again}
    (folder / "taken").touch()
    api = clients(server.url)  # the connection to the killed process is broken
    for run, (call_id, pid) in zip(runs, begun, strict=True):
        ended = api.until_status(run)
        assert (ended["status"], ended["attempt"]) == ("completed", 2 if pid == victim else 1)
        assert len([one for one, _ in boiled(folder) if one == call_id]) == ended["attempt"]
    wait_for(lambda: f"process {victim} was killed by SIGKILL; starting another" in server.log())
    assert server.stop() == 0


@pytest.mark.crash
def test_so_do_those_of_the_process_that_amoxi_dev_looks_after(
    serve: Any, app_folder: Any, postgres_url: str, clients: Callable[[str], Client]
) -> None:
    folder = app_folder(KETTLE, {"ai": {"runs": {"lease-ms": LEASE_S * 1000}}})
    env = {**CALLER, "AI_STORE_TYPE": "postgres", "DATABASE_URL": postgres_url}
    server = serve(folder, env=env, command="dev", args=["--no-reload"])
    run = clients(server.url).submit("kettle", "boil water")["id"]
    [(call_id, pid)] = wait_for(lambda: boiled(folder))
    os.kill(pid, signal.SIGKILL)
    assert wait_for(lambda: boiled(folder)[1:])[0][0] == call_id
    (folder / "taken").touch()
    ended = clients(server.url).until_status(run)
    assert (ended["status"], ended["attempt"]) == ("completed", 2)


@pytest.mark.crash
def test_and_those_of_one_that_dies_while_a_newer_version_is_prepared(
    serve: Any, app_folder: Any, postgres_url: str, clients: Callable[[str], Client]
) -> None:
    folder = app_folder(KETTLE, {"ai": {"runs": {"lease-ms": LEASE_S * 1000}}})
    server = serve(
        folder, env={**CALLER, "AI_STORE_TYPE": "postgres", "DATABASE_URL": postgres_url}, command="dev", anew=True
    )
    run = clients(server.url).submit("kettle", "boil water")["id"]
    [(call_id, pid)] = wait_for(lambda: boiled(folder))
    waiting = "import time\nfrom pathlib import Path\nwhile not Path('killed').exists():\n    time.sleep(0.02)\n"
    (folder / "app" / "kettle.py").write_text(waiting + KETTLE["app/kettle.py"], "utf-8")
    server.wait_log("starting the app anew")
    os.kill(pid, signal.SIGKILL)
    (folder / "killed").touch()
    assert wait_for(lambda: boiled(folder)[1:])[0][0] == call_id
    (folder / "taken").touch()
    ended = clients(server.url).until_status(run)
    assert (ended["status"], ended["attempt"]) == ("completed", 2)


def test_a_process_that_cannot_start_any_more_is_not_tried_for_ever_nor_in_haste(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        program = subprocess.Popen(
            [sys.executable, BESIDE / "supervised_program.py"],
            cwd=tmp_path,
            env=clean_environment(),
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: "both are ready" in (tmp_path / "log").read_text())
        for line in (tmp_path / "starts").read_text().splitlines():
            os.kill(int(line.split()[1]), signal.SIGKILL)
        assert program.wait(60) == 1
    finally:
        program.kill()
        program.wait(30)
    times = [float(line.split()[0]) for line in (tmp_path / "starts").read_text().splitlines()[2:]]
    assert len(times) == 5
    assert all(later - earlier >= 0.1 * 2**n for n, (earlier, later) in enumerate(pairwise(times)))
    *_, reason, ended, last = (tmp_path / "log").read_text().splitlines()
    assert reason == "the settings cannot be used"
    assert re.fullmatch(r"amoxi: process \d+ ended with 1 before it was ready", ended), "and no other is promised"
    assert last.startswith("amoxi: 5 processes in a row have ended before they were ready, and no other is left")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_lets_the_calls_of_all_processes_end_in_their_time(
    serve: Any,
    app_folder: Any,
    amoxi: Any,
    clients: Callable[[str], Client],
    terminals_hang_up: None,
    number: signal.Signals,
) -> None:
    folder = app_folder(KETTLE)
    server = serve(folder, env=CALLER, args=["--workers", "2"], anew=True)
    server.wait_log("(2 processes)")
    runs = submit_until_both_work(lambda: clients(server.url), folder)
    if number == signal.SIGHUP:
        server.signal(number)  # a terminal that is closed tells all that were started in it
    else:
        os.kill(server.pid, number)
    wait_for(lambda: refuses(clients, server.url))
    (folder / "taken").touch()
    assert server.wait_exit(60) == 0
    assert len(boiled(folder)) == len(runs)
    told = json.loads(amoxi(folder, "runs", "list", "--json").stdout)
    statuses = {run["id"]: (run["status"], run["attempt"]) for run in told["items"]}
    assert statuses == dict.fromkeys(runs, ("completed", 1))
    assert "Traceback" not in server.log()


def refuses(clients: Callable[[str], Client], url: str) -> bool:
    import httpx2

    try:
        clients(url).http.get("/health/ready")
    except httpx2.TransportError:
        return True
    return False


def test_what_nohup_has_started_does_not_hear_that_the_terminal_is_closed() -> None:
    program = (
        "import os, signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from amoxi_py.cli.leaving import leave_on_signal\nleave_on_signal()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('still here')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "still here\n", "")
