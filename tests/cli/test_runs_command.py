"""`amoxi runs` from outside: what an operator sees of all runs, and does to them, beside a server and without one."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

TOKEN = "a-token-that-is-long-enough"
CALLER = {"AI_API_CALLERS_ACME": TOKEN}


def call(server: Any, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        server.url + path,
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def wait_for(condition: Any, timeout: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def test_runs_of_everybody_are_listed_beside_a_running_server(
    shop: Path, serve: Any, amoxi: Any, read: Any, say: Any, make_store: Any
) -> None:
    make_store(shop / "data" / "ai")
    store = str(shop / "data" / "ai")
    assert amoxi(shop, "runs", "list").stderr == f"no runs: {store!r} is the store of the profile 'production'\n"
    own = say(shop, "Look up order A-1001")
    server = serve(shop, env=CALLER)
    theirs = call(server, "/agents/shop/runs", {"message": "Cancel order A-1002"})
    wait_for(lambda: call(server, f"/runs/{theirs['id']}")["status"] == "waiting")
    listed = read(shop, "runs", "list")
    assert [run["id"] for run in listed["items"]] == [theirs["id"], own["id"]]
    assert listed["next_cursor"] is None
    of_acme, mine = listed["items"]
    assert of_acme["requested_by"] == {"id": "api:acme", "name": "acme"}
    assert mine["requested_by"]["id"].startswith("system:")
    without_owner = {key: value for key, value in of_acme.items() if key != "requested_by"}
    assert without_owner == call(server, f"/runs/{theirs['id']}")

    def ids(*options: str) -> list[str]:
        return [run["id"] for run in read(shop, "runs", "list", *options)["items"]]

    assert ids("--status", "waiting") == ids("--principal", "api:acme") == [theirs["id"]]
    assert ids("--status", "completed", "--agent", "shop") == [own["id"]]
    first = read(shop, "runs", "list", "--limit", "1")
    assert [run["id"] for run in first["items"]] == [theirs["id"]]
    assert ids("--limit", "1", "--cursor", first["next_cursor"]) == [own["id"]]

    plain = amoxi(shop, "runs", "list", "--limit", "1")
    head, line = plain.stdout.splitlines()
    assert head.split() == ["RUN", "STATUS", "AGENT", "ASKED", "BY", "CREATED", "NOTE"]
    assert line.split()[:4] == [theirs["id"], "waiting", "shop", "api:acme"]
    assert line.index("waiting") == head.index("STATUS")
    assert plain.stderr == f"there are more: --cursor {first['next_cursor']}\n"


def test_a_run_is_shown_with_its_messages_calls_and_events(shop: Path, amoxi: Any, read: Any, say: Any) -> None:
    run = say(shop, "Look up order A-1001")
    shown = read(shop, "runs", "show", run["id"], "--events")
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant", "assistant"]
    [asked] = shown["messages"][1]["calls"]
    assert (asked["tool"], asked["status"], asked["result"]["status"]) == ("lookup_order", "done", "shipped")
    labels = [event["event"] for event in shown["events"]]
    assert (labels[0], labels[-1]) == ("run.queued", "run.completed")
    assert [event["id"] for event in shown["events"]] == sorted({event["id"] for event in shown["events"]})
    text = amoxi(shop, "runs", "show", run["id"], "--follow").stdout
    for part in (run["id"], run["conversation_id"], "completed", asked["call_id"], '"order_id":"A-1001"', "run.queued"):
        assert part in text
    assert text.splitlines()[-1].split()[1] == "run.completed"


def test_a_run_is_shown_with_the_runs_that_it_asked_for_which_the_lists_leave_out(
    shop: Path, amoxi: Any, read: Any
) -> None:
    asking = "@agent(agents=[Shop])\nclass Front:\n    'You greet.'\n"
    (shop / "app" / "front.py").write_text(f"from amoxi_py import agent\nfrom .shop import Shop\n{asking}", "utf-8")
    run = read(shop, "chat", "front", "--message", "Ask the shop: look up order A-1001")
    assert (run["status"], "shipped" in run["output"]) == ("completed", True)
    assert [one["id"] for one in read(shop, "runs", "list")["items"]] == [run["id"]]
    shown = amoxi(shop, "runs", "show", run["id"]).stdout
    [child] = re.findall(r"^ +is the run (run_[0-9a-f]{26})$", shown, re.MULTILINE)
    below = amoxi(shop, "runs", "show", child).stdout
    assert re.search(rf"^part of +{run['id']}$", below, re.MULTILINE)
    assert "lookup_order" in below
    refused = amoxi(shop, "runs", "retry", child)
    assert (refused.returncode, "retry that one" in refused.stderr) == (1, True)


def test_a_run_of_a_tool_is_listed_shown_and_retried_like_any_run(
    shop: Path, amoxi: Any, read: Any, make_store: Any
) -> None:
    make_store(shop / "data" / "ai")
    called = asyncio.run(call_directly(shop / "data" / "ai", "lookup_order", '{"order_id":"A-1001"}'))
    [run] = read(shop, "runs", "list", "--agent", "tool:lookup_order")["items"]
    assert (run["id"], run["status"], run["requested_by"]["id"]) == (called, "queued", "mcp:desktop")
    shown = amoxi(shop, "runs", "show", called).stdout
    assert "tool:lookup_order" in shown
    assert '{"order_id":"A-1001"}' in shown
    assert amoxi(shop, "runs", "cancel", called).returncode == 0
    assert amoxi(shop, "runs", "retry", called).returncode == 0
    runs = read(shop, "runs", "list")["items"]
    assert [one["status"] for one in runs] == ["queued", "cancelled"]
    assert {(one["agent"], one["conversation_id"]) for one in runs} == {(run["agent"], run["conversation_id"])}
    code = shop / "app" / "shop.py"
    code.write_text(code.read_text("utf-8").replace("def lookup_order(order_id:", "def lookup_order(order:"), "utf-8")
    refused = amoxi(shop, "runs", "retry", called)
    assert (refused.returncode, refused.stdout, "order_id: " in refused.stderr) == (1, "", True), refused.stderr


async def call_directly(folder: Path, tool: str, arguments: str) -> str:
    """Store a call of a tool, as a server that only serves the web does, and return its run's id."""
    store = SqliteStore(folder)
    await store.open(lambda events: None)
    submission = Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent=f"tool:{tool}",
        principal=Principal(id="mcp:desktop", channel="mcp"),
        text=arguments,
    )
    submitted = await store.submit(submission)
    await store.close()
    return submitted.run.id


def test_a_run_that_a_server_executes_is_cancelled_and_retried(shop: Path, serve: Any, amoxi: Any, read: Any) -> None:
    server = serve(shop, env=CALLER)
    run = call(server, "/agents/shop/runs", {"message": "Boil water for 60 seconds"})
    refused = amoxi(shop, "runs", "retry", run["id"])
    assert refused.returncode == 1
    assert "cancel it, to retry it" in refused.stderr
    assert refused.stdout == ""
    answer = amoxi(shop, "runs", "cancel", run["id"], "run_that_never_was")
    assert answer.returncode == 1
    assert answer.stdout == f"{run['id']}  cancelled\n"
    assert answer.stderr.splitlines()[0] == "amoxi: no run 'run_that_never_was'"
    assert call(server, f"/runs/{run['id']}")["status"] == "cancelled"
    again = amoxi(shop, "runs", "cancel", run["id"])
    assert (again.returncode, again.stdout) == (0, f"{run['id']}  had ended: cancelled\n")

    [new] = read(shop, "runs", "retry", run["id"])["items"]
    assert new["retry_of"] == run["id"] != new["id"]
    assert new["conversation_id"] == run["conversation_id"]
    assert new["requested_by"]["id"] == "api:acme"
    wait_for(lambda: call(server, f"/runs/{new['id']}")["status"] == "running")
    behind = read(shop, "runs", "retry", run["id"])["items"][0]["id"]
    assert call(server, f"/runs/{new['id']}")["status"] == "running", "a retry does not end the turn that goes on"
    assert call(server, f"/runs/{behind}")["status"] == "queued"
    done = read(shop, "runs", "cancel", new["id"], behind)
    assert [one["status"] for one in done["items"]] == ["cancelled", "cancelled"]
    assert done["errors"] == []
    shown = [read(shop, "runs", "show", one)["messages"] for one in (run["id"], new["id"])]
    assert shown[0][0]["text"] == shown[1][0]["text"]
    calls = {one["call_id"] for messages in shown for message in messages for one in message["calls"]}
    assert len(calls) == sum(len(message["calls"]) for messages in shown for message in messages)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["runs", "show", "x"], 1, "amoxi: no run 'x'"),
        (["runs", "show", "run_\x1b[31m"], 1, "amoxi: no run"),
        (["runs", "list", "--cursor", "x"], 1, "is not a cursor of this list"),
        (["runs", "list", "--status", "fine"], 2, "'fine' is not one of"),
        (["runs", "list", "--limit", "0"], 2, "0 is not in the range"),
        (["runs", "cancel"], 2, "Missing argument 'RUN_ID...'"),
        (["runs", "show", "x", "--json", "--follow"], 2, "--follow goes on and on"),
        (["approvals", "decide", "x", "approve"], 1, "amoxi: no approval 'x'"),
        (["approvals", "decide", "call_" + "0" * 26 + "_1_0", "approve"], 1, "amoxi: no approval"),
        (["approvals", "decide", "x", "perhaps"], 2, "'perhaps' is not one of"),
        (["approvals", "decide", "x", "approve", "--arguments", "{"], 2, "this is no JSON"),
        (["approvals", "decide", "x", "approve", "--arguments", "[1]"], 2, "must be a JSON object"),
        (["approvals", "decide", "x", "decline", "--arguments", "{}"], 2, "go with approve only"),
        (["chat", "nobody"], 2, "no agent 'nobody'; there are:\n  amoxi chat shop"),
        (["chat", "--conversation", "x", "--message", "hi"], 1, "amoxi: no conversation 'x'"),
        (["chat", "--json"], 2, "it goes with --message"),
        (["chat", "--message", " "], 2, "--message is empty"),
    ],
)
def test_what_cannot_be_done_is_said_on_stderr_and_is_no_success(
    shop: Path, amoxi: Any, make_store: Any, arguments: list[str], code: int, message: str
) -> None:
    make_store(shop / "data" / "ai")
    answer = amoxi(shop, *arguments)
    assert (answer.returncode, answer.stdout) == (code, "")
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "\x1b" not in answer.stderr


COMMANDS = [
    ["runs", "list"],
    ["runs", "show", "x"],
    ["runs", "cancel", "x"],
    ["runs", "retry", "x"],
    ["approvals", "list"],
    ["approvals", "decide", "x", "approve"],
    ["chat", "--message", "hi"],
]


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_folder_without_an_app_is_named_and_nothing_is_made_in_it(
    tmp_path: Path, amoxi: Any, arguments: list[str]
) -> None:
    answer = amoxi(tmp_path, *arguments)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"amoxi: {str(tmp_path)!r} is no app's folder: " in answer.stderr
    assert "amoxi new NAME" in answer.stderr
    assert "Traceback" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", COMMANDS[:-1])
def test_a_store_that_is_not_there_is_told_and_not_made(shop: Path, amoxi: Any, arguments: list[str]) -> None:
    answer = amoxi(shop, *arguments)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert f"there is no store yet: {str(shop / 'data' / 'ai')!r} is the store of the profile" in answer.stderr
    assert not (shop / "data").exists()


def test_the_store_that_only_dev_uses_is_named_and_opened_by_its_profile(
    shop: Path, amoxi: Any, make_store: Any
) -> None:
    make_store(shop / "data" / "ai")
    (shop / ".env").write_text("AI_STORE_PATH=elsewhere\n", "utf-8")
    said = amoxi(shop, "chat", "--message", "Cancel order A-1001")
    [(call_id, option)] = re.findall(r"amoxi approvals decide (\S+) approve\|decline(.*)", said.stderr)
    assert option == " --profile dev", "what is offered to be typed finds the call"
    run_id = call_id.removeprefix("call_").rsplit("_", 2)[0]
    for arguments in (
        ["runs", "list"],
        ["approvals", "list"],
        ["runs", "show", f"run_{run_id}"],
        ["runs", "cancel", "x"],
    ):
        missed = amoxi(shop, *arguments).stderr
        assert "data/ai' is the store of the profile 'production', in which .env is not read" in missed
    listed = amoxi(shop, "runs", "list", "--profile", "dev")
    assert (listed.returncode, run_id in listed.stdout, listed.stderr) == (0, True, "")
    assert call_id in amoxi(shop, "approvals", "list", "--profile", "dev").stdout
    assert amoxi(shop, "approvals", "decide", call_id, "decline", "--profile", "dev").returncode == 0
    assert amoxi(shop, "runs", "cancel", f"run_{run_id}", "--profile", "dev").returncode == 0


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_damaged_store_is_named_with_the_way_out(shop: Path, amoxi: Any, arguments: list[str]) -> None:
    (shop / "data" / "ai").mkdir(parents=True)
    (shop / "data" / "ai" / "amoxi.db").write_bytes(b"this is no database" * 1000)
    answer = amoxi(shop, *arguments)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "is damaged" in answer.stderr
    assert "move amoxi.db" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_app_that_cannot_start_can_be_looked_into(shop: Path, amoxi: Any, read: Any, say: Any) -> None:
    run = say(shop, "Cancel order A-1002")
    (shop / "app" / "shop.py").write_text("this is no Python", "utf-8")
    assert [one["id"] for one in read(shop, "runs", "list")["items"]] == [run["id"]]
    assert read(shop, "runs", "cancel", run["id"])["items"][0]["status"] == "cancelled"
    answer = amoxi(shop, "runs", "retry", run["id"])
    assert answer.returncode == 1
    assert "mistake in the app's declarations" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_what_people_and_tools_said_moves_no_cursor(shop: Path, amoxi: Any, say: Any) -> None:
    run = say(shop, "hello \x1b]0;owned\x07\x1b[2J\u202e there")
    shown = amoxi(shop, "runs", "show", run["id"], "--events").stdout
    assert "\\x1b[2J" in shown
    assert "\\u202e" in shown
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
