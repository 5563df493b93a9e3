"""A process killed before or after any call of the store's port loses nothing and repeats nothing that is recorded."""

import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from amoxi_py.ports.store import Store

PROGRAM = Path(__file__).with_name("program.py")
SHARDS = 4
VERBS = {name for name in vars(Store) if not name.startswith("_")}
Effects = Counter[tuple[str, str]]


def run_program(folder: Path, *arguments: object) -> None:
    command = [sys.executable, str(PROGRAM), str(folder), *map(str, arguments)]
    done = subprocess.run(
        command, timeout=500, capture_output=True, text=True, env={**os.environ, "PYTHONWARNINGS": ""}
    )
    assert done.returncode == 0, done.stderr


def count_calls(folder: Path) -> Counter[str]:
    folder.mkdir()
    run_program(folder, "count")
    return Counter(json.loads((folder / "calls.json").read_text(encoding="utf-8")))


def read_effects(rows: list[tuple[str, str, int]]) -> Effects:
    return Counter({(call, what): count for call, what, count in rows})


def check_story(folder: Path) -> None:
    """Check what must hold whatever happened: one end per run, one start and one result per call, no open call."""
    with sqlite3.connect(folder / "amoxi.db") as db:
        statuses = dict(db.execute("SELECT status, count(*) FROM run GROUP BY status").fetchall())
        ends = db.execute(
            "SELECT run, count(*) FROM event JOIN run ON run.key = event.run WHERE type >= 13 GROUP BY run"
        ).fetchall()
        told = db.execute("SELECT run, turn, n, type, count(*) FROM event WHERE type IN (7, 9) GROUP BY 1, 2, 3, 4")
        told_counts = told.fetchall()
        open_calls = db.execute("SELECT count(*) FROM tool_call WHERE status IN ('open', 'started')").fetchone()[0]
        deltas = db.execute("SELECT count(*) FROM event WHERE type = 4").fetchone()[0]
    assert statuses == {"completed": 2, "cancelled": 2}
    assert sorted(count for _run, count in ends) == [1, 1, 1, 1]
    assert {row[4] for row in told_counts} == {1}
    assert (open_calls, deltas) == (0, 0)
    assert json.loads((folder / "refused.json").read_text(encoding="utf-8")) == []


def check_effects(before: Effects, steps: set[tuple[str, ...]], after: Effects) -> None:
    """Check that nothing recorded ran again, and that no unsafe tool ran twice."""
    for (call, what), count in after.items():
        if what in ("charge", "cancel", "ship"):
            assert count == 1, (call, what, count)
        if what.startswith("refund-"):
            step = "refund" if what == "refund-money" else "mail"
            most = before[call, what] if (call, step) in steps else before[call, what] + 1
            assert count <= most, (call, what, count)
    # A-2 was approved and A-3 declined; none at all when it died between the start's record and the effect.
    assert sum(what == "cancel" for _call, what in after) <= 1


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_process_killed_at_any_store_call_is_finished_by_the_next_one(tmp_path: Path, shard: int) -> None:
    total = count_calls(tmp_path / "counted").total()
    run_program(tmp_path, "trials", shard + 1, total, SHARDS)
    trials = sorted(tmp_path.glob("trial-*"))
    assert len(trials) == 2 * len(range(shard + 1, total + 1, SHARDS))
    for folder in trials:
        trial = json.loads((folder / "trial.json").read_text(encoding="utf-8"))
        assert trial["finished"] == 0, (folder.name, trial, (folder / "finish.log").read_text(encoding="utf-8"))
        check_story(folder)
        steps = {tuple(step) for step in trial["steps"]}
        check_effects(read_effects(trial["before"]), steps, read_effects(trial["after"]))


@pytest.mark.crash
def test_the_script_of_the_kill_test_calls_every_verb_of_the_port(tmp_path: Path) -> None:
    assert set(count_calls(tmp_path / "counted")) == VERBS
