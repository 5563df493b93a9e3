"""The seed story across servers on one database: a refund begun on one, finished by another, once."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)]

TEMPLATE = Path(__file__).parents[2] / "app_template"
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "refunds.log", "ai", "*.jsonl", "cancelled.log")
SENDING = "Refund done, sending the receipt..."


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[], Path]:
    """Make a folder with the template app, as on a machine of its own: only the database is shared."""
    made: list[Path] = []

    def make() -> Path:
        made.append(Path(shutil.copytree(TEMPLATE, tmp_path / f"shop-{len(made)}", ignore=LEFT_OUT)))
        return made[-1]

    return make


def refunds(*shops: Path) -> list[str]:
    files = [shop / "data" / "refunds.log" for shop in shops]
    return [line for file in files if file.exists() for line in file.read_text("utf-8").splitlines()]


def test_a_refund_whose_server_is_killed_is_finished_by_another_within_the_lease_and_read_as_one_story(
    machine: Any, start: Any, client: Any, reader: Any, one_story: Any, lease_s: float
) -> None:
    here, there = machine(), machine()
    first, second = start(here), start(there)
    run = client(first).submit("support-agent", "Refund order A-1001")
    staying, moving = reader(second, run), reader(first, run)
    staying.wait_for("tool.progress", text=SENDING)
    moving.wait_for("tool.progress", text=SENDING)
    assert len(refunds(here)) == 1
    first.kill9()
    killed = time.monotonic()
    moving.moved(second.url)
    staying.wait_for("run.resumed", attempt=2)
    assert time.monotonic() - killed < lease_s + 1 + 20  # the slack is for a busy machine
    told = staying.wait_end()
    one_story(told)
    assert staying.connections == 1, "the server that goes on serves it all in one stream"
    assert [event for event in moving.wait_end() if event.type != "message.delta"] == [
        event for event in told if event.type != "message.delta"
    ]
    [line] = refunds(here, there)
    found = re.fullmatch(r"(R-\w+) A-1001 key=(\S+)", line)
    assert found is not None, line
    refund_id, key = found.groups()
    ended = client(second).run(run["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 2)
    assert refund_id in ended["output"]
    [completed] = [event for event in told if event.type == "tool.completed"]
    assert completed.data["call_id"] == key
    assert completed.data["result"] == {"refund_id": refund_id, "emailed": True}


def test_a_refund_handed_over_by_an_orderly_stop_goes_on_at_once_elsewhere(
    machine: Any, start: Any, client: Any, reader: Any, one_story: Any
) -> None:
    env = {"AI_RUNS_LEASE_MS": "60000", "SERVER_STOP_GRACE_S": "0.5"}
    here, there = machine(), machine()
    first, second = start(here, env=env), start(there, env=env)
    run = client(first).submit("support-agent", "Refund order A-1001")
    person = reader(second, run)
    person.wait_for("tool.progress", text=SENDING)
    first.process.terminate()
    person.wait_for("run.resumed", attempt=1, timeout=0.5 + 20)  # no lease (60 s) is waited for
    one_story(person.wait_end())
    assert first.wait_exit(60) == 0
    assert len(refunds(here, there)) == 1
    ended = client(second).run(run["id"])
    assert (ended["status"], ended["attempt"]) == ("completed", 1), "a hand-over is no crash"
