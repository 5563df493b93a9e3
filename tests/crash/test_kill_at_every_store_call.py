"""A process killed before or after any call of the store's port loses nothing and repeats nothing that is recorded."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from crash_scenario import play_everything
from evidence import DATABASE, booked, effects, recorded_before, rows_of

from amoxi_py.ports.files import FileStore
from amoxi_py.ports.kept_data import KeptDataStore
from amoxi_py.ports.measures import MeasuredStore
from amoxi_py.ports.passages import PassageStore
from amoxi_py.ports.records import RecordStore
from amoxi_py.ports.store import Store
from amoxi_py.ports.tasks import TaskStore
from amoxi_py.ports.transactions import TransactionStore
from amoxi_py.ports.webhooks import WebhookStore
from amoxi_py.testing import crash
from whole import WHOLE

FILE_PARTS = 9
POSTGRES_PARTS = 44
PORTS = (
    Store,
    FileStore,
    KeptDataStore,
    MeasuredStore,
    PassageStore,
    RecordStore,
    TaskStore,
    TransactionStore,
    WebhookStore,
)
VERBS = {name for port in PORTS for name, verb in vars(port).items() if callable(verb) and not name.startswith("_")}
STEP_OF = {"refund-money": "refund", "refund-mail": "mail", "label": "label", "pack": "pack"}
Effects = Counter[tuple[str, str]]


def parts_of(parts: int) -> list[int]:
    """The parts of all kills that are tried; all of them with AMOXI_TEST_ALL=1, which takes minutes."""
    return [*range(1, parts + 1)] if WHOLE else [1]


def check_trial(killed: crash.Killed) -> None:
    check_story(killed.folder)
    check_effects(effects(killed.at_kill), recorded_before(killed.folder), effects(killed.folder))


def check_story(folder: Path) -> None:
    """Check what must hold whatever happened: one end per run, one start and one result per call, no open call."""
    rows = rows_of(folder)
    statuses = dict(rows("SELECT status, count(*) FROM @run GROUP BY status"))
    ends = [
        row[1]
        for row in rows(
            "SELECT run, count(*) FROM @event WHERE run IN (SELECT key FROM @run) AND type IN (13, 14, 15) GROUP BY run"
        )
    ]
    told = rows("SELECT run, turn, n, type, count(*) FROM @event WHERE type IN (7, 9) GROUP BY 1, 2, 3, 4")
    cancelled = {run_id for (run_id,) in rows("SELECT id FROM @run WHERE status = 'cancelled'")}
    assert statuses == {"completed": 5, "cancelled": 2}
    assert ends == [1] * 7
    assert rows("SELECT result FROM @tool_call WHERE tool = 'ask_helper_agent' ORDER BY n") == [
        ('"A-1 is packed."',),
        ('"A-2 is packed."',),
    ]
    assert rows("SELECT status, result FROM @tool_call WHERE tool = 'pack'") == [("done", '"packed"')] * 3
    assert booked(folder) == ([1] if DATABASE in os.environ else [])
    assert {row[4] for row in told} == {1}
    assert rows("SELECT count(*) FROM @tool_call WHERE status IN ('open', 'started')") == [(0,)]
    assert rows("SELECT count(*) FROM @event WHERE type = 4") == [(0,)]
    asked = rows("SELECT type, count(*) FROM @event WHERE type IN (16, 17, 18) GROUP BY type ORDER BY type")
    assert asked == [(16, 1), (17, 1), (18, 1)], "asked, answered and signalled once"
    assert rows("SELECT result FROM @tool_call WHERE tool = 'deliver'") == [('"to 1 Elm Street, paid 7"',)]
    assert {call for call, what in effects(folder) if what == "told"} == cancelled
    assert rows("SELECT name, size FROM @file") == [("receipt.txt", 7)], "a call that runs again saves its file once"
    assert kept_bytes(folder) == [7], "no half file and none without an owner"
    assert json.loads((folder / "refused.json").read_text(encoding="utf-8")) == []


def kept_bytes(folder: Path) -> list[int]:
    """The sizes of all files whose bytes the store keeps."""
    if (folder / "files").exists():
        return [file.stat().st_size for file in (folder / "files").rglob("*") if file.is_file()]
    parts = rows_of(folder)(
        "SELECT sum(length(bytes))::integer FROM @upload_part AS p JOIN @upload AS u ON u.key = p.upload "
        "WHERE u.blob IS NOT NULL GROUP BY p.upload"
    )
    return [size for (size,) in parts]


def check_effects(before: Effects, steps: set[tuple[str, str]], after: Effects) -> None:
    """Check that nothing recorded ran again, and that no unsafe tool ran twice."""
    for (call, what), count in after.items():
        if what in ("charge", "cancel", "ship"):
            assert count == 1, (call, what, count)
        if what in STEP_OF:
            step = STEP_OF[what]
            most = before[call, what] if (call, step) in steps else before[call, what] + 1
            assert count <= most, (call, what, count)
    # A-2 was approved and A-3 declined; none at all when it died between the start's record and the effect.
    assert sum(what == "cancel" for _call, what in after) <= 1


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", parts_of(FILE_PARTS))
def test_a_process_killed_at_any_store_call_is_finished_by_the_next_one(part: int) -> None:
    kill_at_every_call(part, FILE_PARTS)


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", parts_of(POSTGRES_PARTS))
def test_a_process_killed_at_any_store_call_on_postgres_is_finished_by_the_next_one(
    part: int, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE, postgres_url)
    kill_at_every_call(part, POSTGRES_PARTS)


def kill_at_every_call(part: int, parts: int) -> None:
    report = crash.at_every_step(play_everything, check=check_trial, every_call=True, part=(part, parts), timeout=90.0)
    assert set(report.verbs) == VERBS, "the scenario calls every verb of the port"
    assert report.kills > len(report.commits) / parts, "twice where it changes something"
