"""The processes of a crash test: each plays the scenario in a folder of its own, and most of them are killed.

`python -m amoxi_py.testing.crash_program JOB.json` plays the scenario of a job once to its end, and then waits at its
standard input for the kills: a line of JSON with lists of (call, moment); the lists are worked off at the same time.
A process that is to be killed is a fork of this one, which spares the imports; where there are no forks it is a new
process, which is given its folder, the call and the moment as further arguments.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from amoxi_py.testing.killing import CHECKPOINTS, Killer, When
from amoxi_py.testing.scene import SCENE, Scene

AT_KILL = "at-kill"
EXITS = "exits.json"
FOLDER = "folder"
LOG = "program.log"
RECORD = "record.json"
_LOOK_EVERY_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a crash program is to do.

    Attributes:
        module, file, function: Where the scenario is.
        path: What modules are imported from.
        top: The folder with one folder for each trial.
        checkpoints: Whether only the calls count that change what is known of a run.
        timeout: Seconds for one process.
    """

    module: str
    file: str
    function: str
    path: list[str]
    top: str
    checkpoints: bool
    timeout: float


def main(arguments: list[str]) -> None:
    """Work off a job, or play its scenario once."""
    job = Job(**json.loads(Path(arguments[0]).read_text("utf-8")))
    sys.path[:] = job.path
    scenario = find_scenario(job)
    if len(arguments) > 1:
        play(job, scenario, Path(arguments[1]), int(arguments[2]), cast(When, arguments[3]))
        return
    run_trial(job, arguments[0], scenario, 0, "before")
    _run_lanes(job, arguments[0], scenario, json.loads(sys.stdin.readline() or "[]"))


def _run_lanes(
    job: Job, job_file: str, scenario: Callable[[], Any], lanes: Sequence[Sequence[tuple[int, When]]]
) -> None:
    """Work off lists of kills, all lists at the same time."""

    def run_lane(number: int) -> None:
        for at, when in lanes[number]:
            run_trial(job, job_file, scenario, at, when)

    if not hasattr(os, "fork"):
        with ThreadPoolExecutor(max(len(lanes), 1)) as pool:
            list(pool.map(run_lane, range(len(lanes))))
        return
    children = []
    for number in range(len(lanes)):
        child = os.fork()
        if child == 0:
            _be_child(Path(job.top) / LOG, partial(run_lane, number))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise SystemExit("the kills were not worked off; see above")


def run_trial(job: Job, job_file: str, scenario: Callable[[], Any], at: int, when: When) -> None:
    """Let one process die at a call, keep a copy of what it left, and let a second one go on to the end."""
    trial = Path(job.top) / trial_name(at, when)
    folder = trial / FOLDER
    folder.mkdir(parents=True)

    def start(at: int, log: str) -> int:
        return _run(job, job_file, scenario, folder, at, when, trial / log)

    first = start(at, "first.log")
    if at:
        shutil.copytree(folder, trial / AT_KILL)
        second = start(0, "second.log") if first != 0 else 0
    else:
        second = first
    told = {"first": first, "second": second}
    whole = trial / f"{EXITS}.part"
    whole.write_text(json.dumps(told), "utf-8")
    whole.replace(trial / EXITS)


def trial_name(at: int, when: When) -> str:
    """Return the name of a trial's folder."""
    return f"{at:04}-{when}"


def play(job: Job, scenario: Callable[[], Any], folder: Path, at: int, when: When) -> None:
    """Play the scenario in a folder, to its end or to the call at which this process dies."""
    os.chdir(folder)
    record = folder.parent / RECORD

    def note(what: str) -> None:
        record.write_text(json.dumps({"what": what}), "utf-8")

    killer = Killer(at, when, verbs=CHECKPOINTS if job.checkpoints else None, on_kill=note)
    SCENE.set(Scene(store=folder / ".amoxi-store", wrap_store=killer.wrap))
    outcome = scenario()
    if inspect.iscoroutine(outcome):
        asyncio.run(outcome)
    if not at and not record.exists():
        record.write_text(json.dumps({"counted": killer.counted, "verbs": killer.verbs_called}), "utf-8")


def find_scenario(job: Job) -> Callable[[], Any]:
    """Import the module of the scenario and return the function."""
    found = getattr(_import(job), job.function, None)
    if not callable(found):
        raise SystemExit(f"{job.file!r} has no function {job.function!r} at its top")
    return cast(Callable[[], Any], found)


def _import(job: Job) -> ModuleType:
    if job.module != "__main__":
        try:
            module = importlib.import_module(job.module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{job.module}.".startswith(f"{error.name}."):
                raise
        else:
            if module.__file__ is not None and os.path.samefile(module.__file__, job.file):
                return module
    name = "amoxi_scenario" if job.module == "__main__" else job.module
    spec = importlib.util.spec_from_file_location(name, job.file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _run(job: Job, job_file: str, scenario: Callable[[], Any], folder: Path, at: int, when: When, log: Path) -> int:
    """Play in another process; return 0, a positive exit code, or minus the signal that ended it."""
    if not hasattr(os, "fork"):
        command = [sys.executable, "-m", __spec__.name, job_file, str(folder), str(at), when]
        with log.open("wb") as out:
            try:
                return subprocess.run(
                    command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=job.timeout, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return _too_long(job, log)
    child = os.fork()
    if child == 0:
        _be_child(log, lambda: play(job, scenario, folder, at, when))
    deadline = time.monotonic() + job.timeout
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return _too_long(job, log)
        time.sleep(_LOOK_EVERY_S)


def _too_long(job: Job, log: Path) -> int:
    with log.open("a", encoding="utf-8") as out:
        out.write(f"\nthe scenario did not end in {job.timeout:g} s\n")
    return 1


def _be_child(log: Path, work: Callable[[], None]) -> None:
    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - the fork ends here, whatever it was: the log tells it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def write_job(job: Job, file: Path) -> None:
    """Write a job where a program reads it."""
    file.write_text(json.dumps(asdict(job)), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
