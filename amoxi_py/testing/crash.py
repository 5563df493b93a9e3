"""`crash.at_every_step`: plays a scenario again and again, kills its process at each step, and checks what it left.

A step is a commit of the store: a message that is saved, a reply of the model, a step of a tool, a result, a decision,
the end. The process is killed (SIGKILL; TerminateProcess on Windows) right before the commit and right after it, and a
new process plays the scenario again, in the same folder: its runs go on where they stopped.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amoxi_py.testing.crash_program import AT_KILL, EXITS, FOLDER, LOG, RECORD, Job, trial_name, write_job
from amoxi_py.testing.killing import LOOKS, When

__all__ = ["Killed", "Report", "at_every_step", "at_most", "each_line_once", "exactly"]

Check = Callable[[list[str]], object]
"""Looks at the lines of a ledger: it raises `AssertionError` or returns False when a promise is broken."""

_MOMENTS: tuple[When, When] = ("before", "after")
_MOST_SHOWN = 5
_MOST_LINES = 20
_START_S = 60.0
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed:
    """One kill, and what came of it.

    Attributes:
        at: Which commit of the store it was, from 1.
        when: `before` or `after` it.
        what: What the commit was about, such as `write (the step 'refund')`.
        at_kill: A copy of the scenario's folder as the kill left it.
        folder: The folder when the next process had finished.
    """

    at: int
    when: When
    what: str
    at_kill: Path
    folder: Path

    def __str__(self) -> str:
        return f"killed {self.when} commit {self.at}: {self.what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a crash test did.

    Attributes:
        kills: How many processes were killed.
        commits: What the store was asked for, in order, when nothing was killed.
        verbs: How often each verb of the store's port was called then.
    """

    kills: int
    commits: tuple[str, ...]
    verbs: Mapping[str, int]


def each_line_once(lines: list[str]) -> None:
    """Check that no line is in the ledger twice."""
    twice = sorted({line for line in lines if lines.count(line) > 1})
    assert not twice, f"these lines are there more than once: {twice!r}"


def exactly(count: int) -> Check:
    """Check that the ledger has so many lines, and none of them twice."""

    def check(lines: list[str]) -> None:
        assert len(lines) == count, f"{count} lines are promised, and there are {len(lines)}"
        each_line_once(lines)

    return check


def at_most(count: int) -> Check:
    """Check that the ledger has no more lines, and none of them twice: for effects that may be left undone."""

    def check(lines: list[str]) -> None:
        assert len(lines) <= count, f"at most {count} lines are promised, and there are {len(lines)}"
        each_line_once(lines)

    return check


def at_every_step(
    scenario: Callable[[], Any],
    *,
    ledgers: Mapping[str, Check] | None = None,
    check: Callable[[Killed], object] | None = None,
    every_call: bool = False,
    part: tuple[int, int] = (1, 1),
    processes: int = 2,
    timeout: float = 60.0,
) -> Report:
    """Play a scenario once to its end, then once for each kill; check the ledgers each time.

    The scenario is a function without parameters at the top of a module, often of the test's own module. It calls
    `run_agent` (or awaits `arun_agent`) once or more, and may assert what must hold in the end. It is played in other
    processes, in an empty folder as the current one, so what it uses is made in it or imported: no fixture, lambda,
    closure or method. Effects that a ledger tells of must be written to a file, at the moment of the effect.

    Args:
        scenario: The function, plain or async.
        ledgers: Checks by file, such as `{"refunds.log": crash.exactly(1)}`. The file is relative to the scenario's
            folder; one that is not there has no lines. The check gets the lines: `exactly`, `at_most`,
            `each_line_once`, or a function of your own.
        check: Called for each kill, in this process, to look at anything else.
        every_call: Kill at every call of the store, not only at commits. A call that only reads leaves all as it was,
            so there is one kill for it, not two.
        part: `(2, 4)` does the second of four parts of all kills, for tests that share the work.
        processes: How many play at the same time.
        timeout: Seconds for one process.

    Raises:
        AssertionError: a promise was broken; says at which kills, and what each ledger held.
        TypeError: the scenario cannot be played by another process.
    """
    module, file, function = _place(scenario)
    top = Path(tempfile.mkdtemp(prefix="amoxi-crash-"))

    job = Job(
        module=module,
        file=file,
        function=function,
        path=[entry or os.getcwd() for entry in sys.path],
        top=str(top),
        checkpoints=not every_call,
        timeout=timeout,
    )
    whole = top / trial_name(0, "before")
    with _program(job) as program:
        _wait_for_whole(job, program, whole / EXITS)
        _check_whole(function, whole, ledgers or {})
        record = json.loads((whole / RECORD).read_text("utf-8"))
        trials = _trials(record["counted"], part)
        _work_off(job, program, [trials[start::processes] for start in range(min(processes, len(trials)))])
    kills, broken = 0, []
    for at, when in trials:
        killed, problems = _look(top / trial_name(at, when), at, when, ledgers or {}, check)
        kills += killed
        broken += problems
    sys.stdout.write(f"crash.at_every_step({function}): {kills} kills, {len(broken)} broken promises\n")
    if broken:
        raise AssertionError(_told(function, kills, broken, top))
    shutil.rmtree(top, ignore_errors=True)
    return Report(kills=kills, commits=tuple(record["counted"]), verbs=record["verbs"])


def _place(scenario: Callable[[], Any]) -> tuple[str, str, str]:
    """Return the module, the file and the name of a function that another process can find."""
    name = getattr(scenario, "__qualname__", repr(scenario))
    if not inspect.isfunction(scenario) or "." in name or name == "<lambda>":
        raise TypeError(
            f"the scenario {name!r} is played by other processes, which import it: "
            "give a function that stands at the top of a module, not a method, a lambda or one inside of a function"
        )
    if inspect.signature(scenario).parameters:
        raise TypeError(f"the scenario {name!r} has parameters; make what it needs in it (no fixture is there)")
    file = scenario.__code__.co_filename
    if not (file.endswith(".py") and os.path.isfile(file)):
        raise TypeError(f"the scenario {name!r} is in no module that other processes could import: {file!r}")
    return scenario.__module__, os.path.abspath(file), name


def _trials(counted: list[str], part: tuple[int, int]) -> list[tuple[int, When]]:
    """Return the kills of a part: before and after each call, but only before one that changes nothing."""
    number, parts = part
    ats = range(number, len(counted) + 1, parts)
    return [(at, when) for at in ats for when in _MOMENTS if when == "before" or counted[at - 1] not in LOOKS]


@contextmanager
def _program(job: Job) -> Iterator[subprocess.Popen[str]]:
    """Start the program of a job, which plays the scenario once, and end it."""
    file = Path(job.top) / "job.json"
    write_job(job, file)
    command = [sys.executable, "-m", "amoxi_py.testing.crash_program", str(file)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(job.path)}
    with (Path(job.top) / LOG).open("wb") as out:
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=env, text=True)
    with program:
        try:
            yield program
        finally:
            if program.poll() is None:
                program.kill()


def _wait_for_whole(job: Job, program: subprocess.Popen[str], exits: Path) -> None:
    deadline = time.monotonic() + _START_S + job.timeout
    while not exits.exists():
        if program.poll() is not None or time.monotonic() > deadline:
            raise _failed(job, program)
        time.sleep(_LOOK_EVERY_S)


def _work_off(job: Job, program: subprocess.Popen[str], lanes: list[list[tuple[int, When]]]) -> None:
    """Let the program do lists of kills, all lists at the same time."""
    try:
        program.communicate(json.dumps(lanes) + "\n", timeout=2 * job.timeout * (1 + max(map(len, lanes), default=0)))
    except subprocess.TimeoutExpired:
        pass
    if program.poll() != 0:
        raise _failed(job, program)


def _failed(job: Job, program: subprocess.Popen[str]) -> AssertionError:
    code = program.poll()
    outcome = "does not come to an end" if code is None else f"ended with {code}"
    return AssertionError(f"the crash program {outcome}:\n{_tail(Path(job.top) / LOG)}")


def _check_whole(function: str, trial: Path, ledgers: Mapping[str, Check]) -> None:
    if json.loads((trial / EXITS).read_text("utf-8"))["first"] != 0:
        raise AssertionError(f"the scenario {function!r} fails without any kill:\n{_tail(trial / 'first.log')}")
    problems = _check_ledgers(trial / FOLDER, ledgers)
    if problems:
        raise AssertionError(f"the scenario {function!r} breaks a promise without any kill: " + "\n  ".join(problems))


def _look(
    trial: Path, at: int, when: When, ledgers: Mapping[str, Check], check: Callable[[Killed], object] | None
) -> tuple[int, list[str]]:
    """Return 1 for a kill and what was broken; 0 when the scenario ended before it came to this call."""
    exits = json.loads((trial / EXITS).read_text("utf-8"))
    record = trial / RECORD
    if exits["first"] == 0:
        return 0, []
    what = json.loads(record.read_text("utf-8")).get("what", "") if record.exists() else None
    if what is None:
        return 0, [f"not killed, but ended with {exits['first']} (commit {at}):\n{_tail(trial / 'first.log')}"]
    killed = Killed(at=at, when=when, what=what, at_kill=trial / AT_KILL, folder=trial / FOLDER)
    if exits["second"] != 0:
        return 1, [f"{killed}: the next process did not come to the end:\n{_tail(trial / 'second.log')}"]
    problems = [f"{killed}: {problem}" for problem in _check_ledgers(killed.folder, ledgers)]
    if check is not None and (problem := _broken(lambda: check(killed))) is not None:
        problems.append(f"{killed}: {problem}")
    return 1, problems


def _check_ledgers(folder: Path, ledgers: Mapping[str, Check]) -> list[str]:
    problems = []
    for name, check in ledgers.items():
        file = folder / name
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        problem = _broken(lambda check=check, lines=lines: check(lines))  # type: ignore[misc]
        if problem is not None:
            held = "".join(f"\n      {line}" for line in lines[:_MOST_LINES]) or " nothing"
            problems.append(f"ledger {name!r}: {problem}; it holds:{held}")
    return problems


def _broken(check: Callable[[], object]) -> str | None:
    try:
        answer = check()
    except AssertionError as error:
        return str(error) or "the check does not hold"
    return "the check does not hold" if answer is False else None


def _told(function: str, kills: int, broken: list[str], top: Path) -> str:
    shown = "".join(f"\n  - {problem}" for problem in broken[:_MOST_SHOWN])
    more = f"\n  ... and {len(broken) - _MOST_SHOWN} more" if len(broken) > _MOST_SHOWN else ""
    return f"{function!r} broke {len(broken)} promises at {kills} kills:{shown}{more}\n  all folders are in {top}"


def _tail(log: Path) -> str:
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    return "\n".join(f"    {line}" for line in text.splitlines()[-30:])
