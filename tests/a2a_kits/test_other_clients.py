"""Clients that are not ours, each a process of its own: the SDK before 1.0, google-adk, and the SDK for JavaScript."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kits import Kits
from processes import ServerProcess

pytestmark = [pytest.mark.xdist_group("a2a-clients"), pytest.mark.timeout(300)]  # one server, all clients at once

HERE = Path(__file__).parent
HOOK = "https://hooks.example.com/0.3"
Report = Callable[[], dict[str, Any]]


@pytest.fixture(scope="module")
def reports(kits: Kits, server: ServerProcess, tokens: dict[str, str]) -> Iterator[dict[str, Report]]:
    """What each client tells, by its name; all begin at once."""
    env = {"A2A_TOKEN": tokens["kits"]}
    processes = {
        "0.3": kits.start_python("a2a-0.3", HERE / "client_of_0_3.py", server.url, env=env),
        "adk": kits.start_python("google-adk", HERE / "agent_of_adk.py", server.url, env=env),
        "js": kits.start_node(HERE / "client_of_js.mjs", server.url, str(kits.packages), env=env),
    }

    def report_of(process: subprocess.Popen[str]) -> Report:
        def report() -> dict[str, Any]:
            out, err = process.communicate(timeout=250)
            assert process.returncode == 0, f"{err}\n{server.log()}"
            told: dict[str, Any] = json.loads(out)
            return told

        return report

    yield {name: report_of(process) for name, process in processes.items()}
    for process in processes.values():
        with process:
            process.kill()


def test_the_sdk_before_1_0_asks_answers_follows_and_cancels(
    reports: dict[str, Report], server: ServerProcess, found_order: str, declined: str
) -> None:
    report = reports["0.3"]()
    assert (report["sdk"], report["protocol"], report["url"]) == ("0.3.26", "0.3", f"{server.url}/a2a")
    for mode in ("JSONRPC call", "JSONRPC stream", "HTTP+JSON call", "HTTP+JSON stream"):
        assert report[mode].pop("stopped", ["canceled"] * 3) == ["canceled"] * 3
        assert report[mode] == {
            "found": ["completed", found_order],
            "waiting": "input-required",
            "declined": ["completed", declined, True],
            "again": ["completed", declined],
            "unknown": -32001 if mode.startswith("JSONRPC") else 404,
            "webhook": [["mine", HOOK, "t1"], ["mine", HOOK, "t1"], ["mine"], []],
        }


def test_an_agent_of_google_adk_keeps_its_context_and_answers_the_task_that_waits(
    reports: dict[str, Report], found_order: str, declined: str
) -> None:
    turns = reports["adk"]()["turns"]
    assert [turn["error"] for turn in turns] == [None] * 4
    found, waiting, answered, more = turns
    assert found["text"] == found_order
    assert waiting["open"] == ["mock_function_call_for_required_user_input"]
    assert (answered["text"], answered["open"]) == (declined, [])
    assert answered["task"] == waiting["task"]
    assert "A-1002" in more["text"]
    assert len({turn["context"] for turn in turns}) == 1
    assert len({turn["task"] for turn in turns}) == 3


def test_the_sdk_for_javascript_asks_answers_follows_and_cancels(
    reports: dict[str, Report], found_order: str, declined: str
) -> None:
    report = reports["js"]()
    assert list(report) == ["JSONRPC 1.0", "JSONRPC 0.3", "HTTP+JSON 1.0", "HTTP+JSON 0.3"]
    for told in report.values():
        assert told == {
            "found": ["TASK_STATE_COMPLETED", found_order],
            "waiting": "TASK_STATE_INPUT_REQUIRED",
            "declined": ["TASK_STATE_COMPLETED", declined, True],
            "stream": {"first": "task", "last": "TASK_STATE_COMPLETED", "text": found_order},
            "stopped": ["TASK_STATE_CANCELED", "TASK_STATE_CANCELED"],
        }
