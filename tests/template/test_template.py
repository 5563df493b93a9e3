"""The template app: what a newcomer gets runs as it is, and keeps the sentences that the docs show."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from processes import clean_environment

ROOT = Path(__file__).parents[2]


class Visitor:
    """A browser without a page: it keeps its cookie and reads JSON."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))

    def call(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"content-type": "application/json"})
        with self._opener.open(request, timeout=60) as answer:
            return json.loads(answer.read())

    def page(self, path: str) -> tuple[str, str]:
        with self._opener.open(self.url + path, timeout=60) as answer:
            return answer.headers.get("content-security-policy", ""), answer.read().decode()

    def ask(self, agent: str, message: str) -> Any:
        return self.call(f"/agents/{agent}/runs?wait=30", {"message": message})

    def wait(self, run_id: str, *statuses: str) -> Any:
        deadline = time.monotonic() + 60
        while (run := self.call(f"/runs/{run_id}"))["status"] not in statuses:
            assert time.monotonic() < deadline, run
            time.sleep(0.05)
        return run


def test_its_own_tests_pass(folder: Path) -> None:
    spared = [
        option
        for plugin in ("cacheprovider", "xdist", "schemathesis", "hypothesispytest")
        for option in ("-p", f"no:{plugin}")
    ]
    command = [sys.executable, "-m", "pytest", "-q", *spared]
    answer = subprocess.run(command, cwd=folder, env=clean_environment(), text=True, capture_output=True, timeout=110)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_it_answers_looks_up_and_notes_as_promised(serve: Any, folder: Path) -> None:
    visitor = Visitor(serve(folder, anew=True).url)
    agents = {agent["name"]: [tool["name"] for tool in agent["tools"]] for agent in visitor.call("/agents")["items"]}
    assert agents == {
        "assistant": ["list_notes", "add_note"],
        "support-agent": ["lookup_order", "cancel_order", "refund_order"],
    }
    run = visitor.ask("support-agent", "Where is order A-1001?")
    assert run["output"] == "Here's what I found:\nID: A-1001\nItem: Trail backpack, 28 L\nStatus: shipped"
    assert "not shipped" in visitor.ask("support-agent", "Where is order A-1002?")["output"]
    assert visitor.ask("assistant", "Add a note: buy tent pegs")["status"] == "completed"
    assert "buy tent pegs" in visitor.ask("assistant", "List my notes")["output"]


def test_what_its_tools_do_to_the_world_is_said_to_everybody(serve: Any, folder: Path) -> None:
    agents = Visitor(serve(folder).url).call("/agents")["items"]
    tools = {tool["name"]: tool for agent in agents for tool in agent["tools"]}
    facts = {name: (tool["read_only"], tool["idempotent"], tool["needs_approval"]) for name, tool in tools.items()}
    assert facts == {
        "list_notes": (True, False, False),
        "add_note": (False, False, False),
        "lookup_order": (True, False, False),
        "refund_order": (False, True, False),
        "cancel_order": (False, False, True),
    }


def test_notes_survive_a_restart_and_are_seen_by_their_owner_only(serve: Any, folder: Path) -> None:
    server = serve(folder)
    visitor, other = Visitor(server.url), Visitor(server.url)
    visitor.ask("assistant", "Add a note: buy tent pegs")
    assert "tent pegs" not in other.ask("assistant", "List my notes")["output"]
    server.stop()
    serve(folder, port=server.port)
    assert "tent pegs" in visitor.ask("assistant", "List my notes")["output"]


def test_a_refund_is_one_line_in_the_ledger_with_the_calls_id(serve: Any, folder: Path) -> None:
    visitor = Visitor(serve(folder).url)
    run = visitor.ask("support-agent", "Refund order A-1001")
    assert run["status"] == "completed"
    [line] = (folder / "data" / "refunds.log").read_text("utf-8").splitlines()
    match = re.fullmatch(r"(\S+) A-1001 key=(\S+)", line)
    assert match is not None
    assert match[1] in run["output"]
    messages = visitor.call(f"/agents/support-agent/conversations/{run['conversation_id']}")["items"]
    assert [call["call_id"] for message in messages for call in message["calls"]] == [match[2]]


@pytest.mark.parametrize(("decision", "status"), [("approve", "cancelled"), ("decline", "not shipped yet")])
def test_a_cancellation_waits_for_a_person(serve: Any, folder: Path, decision: str, status: str) -> None:
    visitor = Visitor(serve(folder).url)
    run_id = visitor.call("/agents/support-agent/runs", {"message": "Cancel order A-1002"})["id"]
    [waiting] = visitor.wait(run_id, "waiting")["waiting_for"]
    assert (waiting["tool"], waiting["arguments"]) == ("cancel_order", {"order_id": "A-1002"})
    visitor.call(f"/agents/support-agent/runs/{run_id}/approvals/{waiting['call_id']}", {"decision": decision})
    output = visitor.wait(run_id, "completed")["output"]
    if decision == "decline":
        assert output == "That didn't work: The person declined this action."
    assert f"Status: {status}" in visitor.ask("support-agent", "Where is order A-1002?")["output"]


def test_a_refund_goes_out_once_when_the_process_is_killed_while_the_receipt_is_sent(serve: Any, folder: Path) -> None:
    env = {"AI_RUNS_LEASE_MS": "2000"}
    server = serve(folder, env=env)
    visitor = Visitor(server.url)
    run_id = visitor.call("/agents/support-agent/runs", {"message": "Refund order A-1001"})["id"]
    ledger = folder / "data" / "refunds.log"
    deadline = time.monotonic() + 60
    while not (ledger.exists() and ledger.read_text("utf-8").endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    server.kill9()
    before = ledger.read_text("utf-8")
    serve(folder, env=env, port=server.port)
    run = visitor.wait(run_id, "completed")
    assert ledger.read_text("utf-8") == before
    assert before.split(" ")[0] in run["output"]
    assert run["attempt"] == 2


def test_the_pages_hold_nothing_inline_and_ask_nobody_else(serve: Any, folder: Path) -> None:
    visitor = Visitor(serve(folder).url)
    for path in ("/", "/assistant", "/support-agent"):
        policy, html = visitor.page(path)
        assert "default-src 'self'" in policy
        assert re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|https?://", html) is None
        assets = re.findall(r'(?:src|href)="/?((?:static|chat)/[^"]+)"', html)
        assert len(assets) == 4
        for asset in assets:
            assert visitor.page("/" + asset)[1]


def test_in_a_checkout_dev_runs_the_template(serve: Any, copy_template: Any, tmp_path: Path) -> None:
    copy_template(tmp_path / "app_template")
    shutil.copy(ROOT / "application.json", tmp_path)
    server = serve(tmp_path, command="dev", wait_ready=False)
    server.wait_log(f"agent-app is ready: http://localhost:{server.port}\n")
    visitor = Visitor(server.url)
    assert visitor.ask("support-agent", "Refund order A-1001")["status"] == "completed"
    assert (tmp_path / "data" / "refunds.log").exists()
    assert server.stop() == 0
