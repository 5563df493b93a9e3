"""A process killed before or after any call of the store's port loses nothing and repeats nothing that is recorded."""

import json
import sqlite3
from collections import Counter
from pathlib import Path

import pytest
from crash_scenario import play_everything
from evidence import effects, recorded_steps

from amoxi_py.ports.files import FileStore
from amoxi_py.ports.store import Store
from amoxi_py.testing import crash

SHARDS = 2
VERBS = {name for name in (*vars(Store), *vars(FileStore)) if not name.startswith("_")}
Effects = Counter[tuple[str, str]]


def check_trial(killed: crash.Killed) -> None:
    check_story(killed.folder)
    check_effects(effects(killed.at_kill), recorded_steps(killed.at_kill), effects(killed.folder))


def check_story(folder: Path) -> None:
    """Check what must hold whatever happened: one end per run, one start and one result per call, no open call."""
    with sqlite3.connect(folder / "amoxi.db") as db:
        statuses = dict(db.execute("SELECT status, count(*) FROM run GROUP BY status").fetchall())
        ends = db.execute(
            "SELECT run, count(*) FROM event JOIN run ON run.key = event.run WHERE type >= 13 GROUP BY run"
        ).fetchall()
        told = db.execute("SELECT run, turn, n, type, count(*) FROM event WHERE type IN (7, 9) GROUP BY 1, 2, 3, 4")
        told_counts = told.fetchall()
        cancelled = {run_id for (run_id,) in db.execute("SELECT id FROM run WHERE status = 'cancelled'")}
        open_calls = db.execute("SELECT count(*) FROM tool_call WHERE status IN ('open', 'started')").fetchone()[0]
        files = db.execute("SELECT name, size FROM file").fetchall()
        deltas = db.execute("SELECT count(*) FROM event WHERE type = 4").fetchone()[0]
    assert statuses == {"completed": 2, "cancelled": 2}
    assert sorted(count for _run, count in ends) == [1, 1, 1, 1]
    assert {row[4] for row in told_counts} == {1}
    assert (open_calls, deltas) == (0, 0)
    assert {call for call, what in effects(folder) if what == "told"} == cancelled
    assert files == [("receipt.txt", 7)], "a call that runs again saves its file once"
    kept = [file.stat().st_size for file in (folder / "files").rglob("*") if file.is_file()]
    assert kept == [7], "no half file and none without an owner"
    assert json.loads((folder / "refused.json").read_text(encoding="utf-8")) == []


def check_effects(before: Effects, steps: set[tuple[str, str]], after: Effects) -> None:
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
@pytest.mark.parametrize("shard", range(1, SHARDS + 1))
def test_a_process_killed_at_any_store_call_is_finished_by_the_next_one(shard: int) -> None:
    report = crash.at_every_step(
        play_everything, check=check_trial, every_call=True, part=(shard, SHARDS), timeout=90.0
    )
    assert set(report.verbs) == VERBS, "the scenario calls every verb of the port"
    assert report.kills > len(report.commits) / SHARDS, "twice where it changes something"
