"""The seed story on the template app: a refund, the plug pulled while the receipt is sent, a start, one refund."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.crash

TEMPLATE = Path(__file__).parents[2] / "app_template"
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".pytest_cache", "refunds.log", "ai", "*.jsonl", "cancelled.log")
LONG_LEASE = {"AI_RUNS_LEASE_MS": "60000"}
AT_ONCE_S = 30.0  # a hand-over waits for no lease (60 s here); the slack is for a busy machine


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TEMPLATE, tmp_path / "shop", ignore=LEFT_OUT))


def refunds(shop: Path) -> list[str]:
    file = shop / "data" / "refunds.log"
    return file.read_text("utf-8").splitlines() if file.exists() else []


def check_the_one_refund(shop: Path, run: dict[str, Any], events: list[Any]) -> None:
    [line] = refunds(shop)
    found = re.fullmatch(r"(R-\w+) A-1001 key=(\S+)", line)
    assert found is not None, line
    refund_id, key = found.groups()
    assert run["status"] == "completed"
    assert refund_id in run["output"]
    [called] = [event for event in events if event.type == "tool.called"]
    [completed] = [event for event in events if event.type == "tool.completed"]
    assert called.data["call_id"] == completed.data["call_id"] == key
    assert completed.data["result"] == {"refund_id": refund_id, "emailed": True}


@pytest.mark.parametrize(
    ("command", "args"), [("start", ["--workers", "1"]), ("start", ["--workers", "2"]), ("dev", [])]
)
def test_a_refund_whose_server_is_killed_while_the_receipt_is_sent_happens_once(
    shop: Path, start: Any, client: Any, reader: Any, one_story: Any, lease_s: float, command: str, args: list[str]
) -> None:
    server = start(shop, command=command, args=args)
    run = client(server).submit("support-agent", "Refund order A-1001")
    person = reader(server, run)
    person.wait_for("tool.progress", text="Refund done, sending the receipt...")
    server.kill9()
    assert len(refunds(shop)) == 1
    again = start(shop, command=command, args=args, port=server.port)
    ready = time.monotonic()
    person.wait_for("run.resumed", attempt=2)
    assert time.monotonic() - ready < lease_s + 1 + 20  # the slack is for a busy machine
    events = person.wait_end()
    one_story(events)
    assert person.connections >= 2
    check_the_one_refund(shop, client(again).run(run["id"]), events)
    if "2" not in args:  # a second process of the same server may take it up before all are ready
        assert [event.data["attempt"] for event in events if event.type == "run.resumed"] == [2]


def test_a_refund_handed_over_by_an_orderly_stop_goes_on_at_once_after_the_start(
    shop: Path, start: Any, client: Any, reader: Any, one_story: Any
) -> None:
    env = {**LONG_LEASE, "SERVER_STOP_GRACE_S": "1"}
    server = start(shop, env=env)
    run = client(server).submit("support-agent", "Refund order A-1001")
    person = reader(server, run)
    person.wait_for("tool.progress", text="Refund done, sending the receipt...")
    assert server.stop(1 + 30) == 0
    again = start(shop, env=env, port=server.port)
    ready = time.monotonic()
    person.wait_for("run.resumed", attempt=1)
    assert time.monotonic() - ready < AT_ONCE_S
    events = person.wait_end()
    one_story(events)
    check_the_one_refund(shop, client(again).run(run["id"]), events)


def test_a_refund_goes_on_at_once_on_a_second_server_when_the_first_stops(
    shop: Path, start: Any, client: Any, reader: Any, one_story: Any
) -> None:
    env = {**LONG_LEASE, "SERVER_STOP_GRACE_S": "0.5"}
    first, second = start(shop, env=env), start(shop, env=env)
    run = client(first).submit("support-agent", "Refund order A-1001")
    person = reader(second, run)
    person.wait_for("tool.progress", text="Refund done, sending the receipt...")
    first.process.terminate()
    person.wait_for("run.resumed", attempt=1, timeout=0.5 + AT_ONCE_S)
    events = person.wait_end()
    assert first.wait_exit(60) == 0
    one_story(events)
    check_the_one_refund(shop, client(second).run(run["id"]), events)


def test_a_refund_goes_on_within_the_lease_on_a_second_server_when_the_first_is_killed(
    shop: Path, start: Any, client: Any, reader: Any, one_story: Any, lease_s: float
) -> None:
    first, second = start(shop), start(shop)
    run = client(first).submit("support-agent", "Refund order A-1001")
    person = reader(second, run)
    person.wait_for("tool.progress", text="Refund done, sending the receipt...")
    first.kill9()
    person.wait_for("run.resumed", attempt=2, timeout=lease_s + 21)
    events = person.wait_end()
    one_story(events)
    check_the_one_refund(shop, client(second).run(run["id"]), events)
