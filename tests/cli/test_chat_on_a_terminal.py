"""`amoxi chat` as a person meets it: on a terminal, with keys, decisions in place, and a kill in the middle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

PROMPT = r"\n> "
ASKS = r"\[a\]pprove, \[d\]ecline or \[e\]dit\? "


def test_a_person_talks_and_decides_in_place(shop: Path, on_terminal: Any, read: Any) -> None:
    chat = on_terminal(shop, "chat")
    chat.see("shop: Ctrl-C cancels a turn, Ctrl-D leaves" + PROMPT)
    chat.type("Look up order A-1001\n")
    chat.see(r'lookup_order \{"order_id":"A-1001"\}\n.*✓ lookup_order: .*Here\'s what I found:\n.*shipped' + PROMPT)

    chat.type("Cancel order A-1001\n")
    chat.see('cancel_order wants to run and needs your approval, with\n    order_id: "A-1001"\n' + ASKS)
    chat.type("perhaps\n")
    chat.see(ASKS)
    chat.type("approve\n")
    chat.see("✓ cancel_order: A-1001 is cancelled.*" + PROMPT)

    chat.type("Cancel order A-1002\n")
    chat.see(ASKS)
    chat.type("d\n")
    chat.see("why .*? ")
    chat.type("it is on its way\n")
    chat.see("✗ cancel_order: .*it is on its way.*" + PROMPT)

    chat.type("Cancel order A-1003\n")
    chat.see(ASKS)
    chat.type("e\n")
    chat.see(r'arguments: \{"order_id":"A-1003"\}')
    chat.type("\x15{\n")
    chat.see("this is no JSON.*" + ASKS)
    chat.type("e\n")
    chat.see("arguments: ")
    chat.type('\x15{"order_id": "nine"}\n')
    chat.see("do not fit 'cancel_order'.*arguments.order_id: .*" + ASKS)
    chat.type("e\n")
    chat.see("arguments: .*A-1003")
    chat.type('\x7f\x7f\x7f9"}\n')
    chat.see("✓ cancel_order: A-1009 is cancelled.*" + PROMPT)

    chat.type("Erase order A-1001\n")
    chat.see(ASKS)
    chat.type("a\n")
    chat.see("somebody else decides about this; it waits for a decision: amoxi approvals decide (call_[0-9a-f_]+) ")
    [waiting] = read(shop, "approvals", "list")["items"]
    read(shop, "approvals", "decide", waiting["call_id"], "approve")
    chat.see("✓ erase_order: erased.*" + PROMPT)

    chat.type("\x04")
    chat.see("go on with: amoxi chat shop --conversation conv_[0-9a-f]{26}")
    assert chat.end() == 0
    assert [line.split()[0] for line in (shop / "cancelled.log").read_text().splitlines()] == ["A-1001", "A-1009"]
    assert "Traceback" not in chat.text


def test_ctrl_c_cancels_the_turn_and_a_second_one_leaves(shop: Path, on_terminal: Any, read: Any) -> None:
    chat = on_terminal(shop, "chat")
    chat.see(PROMPT)
    chat.type("Boil water for 60 seconds\n")
    chat.see("… the water gets warm")
    chat.type("\x03")
    chat.see("cancelling; Ctrl-C again leaves.*cancelled" + PROMPT)
    chat.type("Cancel order A-1001\n")
    chat.see(ASKS)
    chat.type("\x03")
    chat.see("cancelled" + PROMPT)
    chat.type("half a mess\x03")
    chat.see("Ctrl-C again, or Ctrl-D, leaves\n> ")
    chat.type("Look up order A-1001\n")
    chat.see("Here's what I found:.*" + PROMPT)
    chat.type("\x03")
    chat.see("leaves\n> ")
    chat.type("\x03")
    assert chat.end() == 0
    runs = read(shop, "runs", "list")["items"]
    assert [run["status"] for run in runs] == ["completed", "cancelled", "cancelled"]
    assert read(shop, "runs", "show", runs[0]["id"])["messages"][0]["text"] == "Look up order A-1001"


def test_a_question_that_is_answered_elsewhere_is_not_asked_any_further(
    shop: Path, on_terminal: Any, read: Any
) -> None:
    chat = on_terminal(shop, "chat")
    chat.see(PROMPT)
    for number, act in enumerate((("approvals", "decide", "call", "approve"), ("runs", "cancel", "run"))):
        chat.type(f"Cancel order A-100{number}\n")
        chat.see(ASKS)
        chat.type("half an ans")
        chat.see("half an ans")
        [waiting] = read(shop, "approvals", "list")["items"]
        read(shop, *({"call": waiting["call_id"], "run": waiting["run_id"]}.get(word, word) for word in act))
        chat.see("this was decided elsewhere, or is over\n.*" + PROMPT)
    chat.type("Look up order A-1001\n")
    chat.see("Here's what I found:.*" + PROMPT)
    chat.type("\x04")
    assert chat.end() == 0
    assert (shop / "cancelled.log").read_text().startswith("A-1000 ")


def test_what_a_killed_chat_left_goes_on_in_the_next_one(shop: Path, on_terminal: Any, read: Any) -> None:
    chat = on_terminal(shop, "chat")
    chat.see(PROMPT)
    chat.type("Cancel order A-1001\n")
    chat.see(ASKS)
    deadline = time.monotonic() + 60
    while (run := read(shop, "runs", "list")["items"][0])["status"] != "waiting":  # it asks a moment before
        assert time.monotonic() < deadline, run
    chat.kill()

    chat = on_terminal(shop, "chat", "--conversation", run["conversation_id"])
    chat.see("> Cancel order A-1001\n.*this goes on: waiting.*wants to run and needs your approval.*" + ASKS)
    chat.type("a\n")
    chat.see("✓ cancel_order: A-1001 is cancelled.*" + PROMPT)
    chat.type("Boil water for 1 second\n")
    chat.see("… the water gets warm")
    chat.kill()

    chat = on_terminal(shop, "chat", "--conversation", run["conversation_id"])
    chat.see("A-1001 is cancelled.*> Boil water for 1 second.*this goes on.*✓ boil_water: it boils.*" + PROMPT)
    chat.type("\x04")
    assert chat.end() == 0
    assert [one["status"] for one in read(shop, "runs", "list")["items"]] == ["completed", "completed"]


def test_a_chat_killed_in_the_middle_is_taken_up_by_a_running_server(
    shop: Path, on_terminal: Any, serve: Any, read: Any, amoxi: Any
) -> None:
    serve(shop)
    chat = on_terminal(shop, "chat")
    chat.see(PROMPT)
    chat.type("Boil water for 1 second\n")
    chat.see("… the water gets warm")
    chat.kill()
    [run] = read(shop, "runs", "list")["items"]
    followed = amoxi(shop, "runs", "show", run["id"], "--follow")
    assert "run.resumed" in followed.stdout
    assert read(shop, "runs", "show", run["id"])["status"] == "completed"


def test_one_turn_on_a_terminal_asks_and_an_end_of_input_leaves_it_waiting(
    shop: Path, on_terminal: Any, read: Any
) -> None:
    chat = on_terminal(shop, "chat", "--message", "Cancel order A-1001")
    chat.see(ASKS)
    chat.type("a\n")
    chat.see("A-1001 is cancelled")
    assert chat.end() == 0
    chat = on_terminal(shop, "chat", "--message", "Cancel order A-1002")
    chat.see(ASKS)
    chat.type("\x04")
    chat.see("it waits for a decision: amoxi approvals decide")
    assert chat.end() == 1
    assert [one["arguments"] for one in read(shop, "approvals", "list")["items"]] == [{"order_id": "A-1002"}]
