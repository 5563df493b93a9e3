"""`amoxi approvals` from outside: what waits for anybody is listed, and decided by who runs the app."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any


def test_an_approval_is_listed_decided_and_told_as_the_operators(
    shop: Path, serve: Any, amoxi: Any, read: Any, say: Any, make_store: Any
) -> None:
    make_store(shop / "data" / "ai")
    assert amoxi(shop, "approvals", "list").stderr.startswith("nothing waits for a decision: ")
    runs = [say(shop, text) for text in ("Cancel order A-1001", "Erase order A-1002", "Cancel order A-1003")]
    listed = read(shop, "approvals", "list")
    assert [one["run_id"] for one in listed["items"]] == [run["id"] for run in runs]
    cancel, erase, other = listed["items"]
    assert (cancel["tool"], cancel["arguments"], cancel["decision"]) == ("cancel_order", {"order_id": "A-1001"}, None)
    me = f"system:{getpass.getuser()}"
    assert cancel["requested_by"] == {"id": me, "name": getpass.getuser()}
    table = amoxi(shop, "approvals", "list").stdout.splitlines()
    assert [line.split()[0] for line in table] == ["CALL", *(one["call_id"] for one in listed["items"])]
    assert "role:finance" in table[2]

    edited = '{"order_id": "A-1009"}'
    decided = read(shop, "approvals", "decide", cancel["call_id"], "approve", "--arguments", edited)
    assert (decided["decision"], decided["by"], decided["arguments"]) == ("approve", me, {"order_id": "A-1009"})
    answer = amoxi(shop, "approvals", "decide", erase["call_id"], "decline", "--reason", "not today")
    assert answer.stdout == f'{erase["call_id"]}  declined by {me}: erase_order {{"order_id":"A-1002"}}\n'
    assert amoxi(shop, "approvals", "decide", erase["call_id"], "decline").returncode == 0, "the same again"
    refused = amoxi(shop, "approvals", "decide", erase["call_id"], "approve")
    assert (refused.returncode, "was decided already: decline" in refused.stderr) == (1, True)
    assert [one["call_id"] for one in read(shop, "approvals", "list")["items"]] == [other["call_id"]]

    serve(shop)  # a process that executes runs: it takes up what was decided
    for run in runs[:2]:
        assert amoxi(shop, "runs", "show", run["id"], "--follow").returncode == 0
    cancelled, erased = (read(shop, "runs", "show", run["id"], "--events") for run in runs[:2])
    assert [one["status"] for one in (cancelled, erased)] == ["completed", "completed"]
    assert (shop / "cancelled.log").read_text() == f"A-1009 {cancel['call_id']}\n"
    [told] = [event["data"] for event in erased["events"] if event["event"] == "approval.decided"]
    assert (told["decision"], told["by"], told["reason"]) == ("decline", me, "not today")


def test_edited_arguments_that_do_not_fit_are_refused_field_by_field(
    shop: Path, amoxi: Any, read: Any, say: Any
) -> None:
    say(shop, "Cancel order A-1001")
    [call] = read(shop, "approvals", "list")["items"]
    answer = amoxi(shop, "approvals", "decide", call["call_id"], "approve", "--arguments", '{"order_id": "x", "y": 1}')
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "amoxi: arguments.order_id: " in answer.stderr
    assert "amoxi: arguments.y: " in answer.stderr
    assert read(shop, "approvals", "list")["items"] == [call]
