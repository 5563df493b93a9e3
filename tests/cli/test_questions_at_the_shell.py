"""What a tool asks is answered in `amoxi chat` in place, and by the operator's commands from elsewhere."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Any

import pytest

MOVER = '''
from typing import Literal

from pydantic import BaseModel

from amoxi_py import ToolContext, agent, tool


class Address(BaseModel):
    street: str
    number: int
    floor: int | None = None


@tool(idempotent=True)
async def move_house(ctx: ToolContext) -> str:
    """Move house."""
    address = await ctx.ask("Where to?", Address)
    sure = await ctx.ask("Sure?", bool)
    when = await ctx.ask("When?", Literal["now", "later"])
    paid = await ctx.wait_for("paid")
    return f"{address.street} {address.number} {address.floor} {sure} {when} {paid}"


@agent(tools=[move_house])
class Mover:
    """You move things."""
'''


@pytest.fixture
def mover(app_folder: Any) -> Path:
    folder: Path = app_folder({"app/__init__.py": "", "app/mover.py": MOVER})
    return folder


def test_a_person_is_asked_in_place_and_what_is_answered_elsewhere_is_not_asked_further(
    mover: Path, on_terminal: Any, read: Any, amoxi: Any
) -> None:
    chat = on_terminal(mover, "chat")
    chat.see(r"\n> ")
    chat.type("Move house\n")
    chat.see(r"move_house asks: Where to\?\n.*street: ")
    chat.type("Elm St\n")
    chat.see(r"number \(integer\): ")
    chat.type("twelve\n")
    chat.see(r"floor.* \(Enter to leave it out\): ")
    chat.type("\n")
    chat.see("the answer does not fit the question.*answer.number: .*street: ")
    for line, prompt in (("Elm St", "number"), ("12", "floor"), ("", r"Sure\?\n.*\[y\]es or \[n\]o\): ")):
        chat.type(f"{line}\n")
        chat.see(prompt)
    chat.type("y\n")
    chat.see(r"When\?\n.*answer \(now \| later\): ")
    chat.type("half an ans")
    chat.see("half an ans")
    [run] = read(mover, "runs", "list")["items"]
    [waiting] = run["waiting_for"]
    assert (waiting["kind"], waiting["question"]) == ("question", "When?")
    told = read(mover, "runs", "answer", waiting["call_id"], "later")
    assert (told["answer"], told["by"]) == ("later", f"system:{getpass.getuser()}")
    chat.see("this was answered elsewhere, or is over")
    refused = amoxi(mover, "runs", "answer", waiting["call_id"], "now")
    assert refused.returncode == 1
    sent = amoxi(mover, "runs", "signal", run["id"], "paid", '{"cents": 250}')
    assert (sent.returncode, sent.stdout.endswith(f"paid sent to {run['id']}\n")) == (0, True)
    chat.see(r"✓ move_house: Elm St 12 None True later \{'cents': 250\}.*\n> ")
    chat.type("\x04")
    assert chat.end() == 0
    shown = amoxi(mover, "runs", "show", run["id"])
    assert "Elm St 12" in shown.stdout
    assert amoxi(mover, "runs", "signal", run["id"], "paid").returncode == 1, "it has ended"


def test_without_a_terminal_the_run_waits_and_says_how_it_is_answered(mover: Path, amoxi: Any, read: Any) -> None:
    done = amoxi(mover, "chat", "--message", "Move house")
    assert done.returncode == 1
    [run] = read(mover, "runs", "list")["items"]
    call_id = run["waiting_for"][0]["call_id"]
    assert f"it waits for an answer: amoxi runs answer {call_id} ANSWER" in done.stderr
    wrong = amoxi(mover, "runs", "answer", call_id, '{"street": 3}')
    assert (wrong.returncode, "amoxi: answer.street: " in wrong.stderr) == (1, True)
    assert read(mover, "runs", "answer", call_id, '{"street": "Elm St", "number": 1}')["answer"]["number"] == 1
    shown = amoxi(mover, "runs", "show", run["id"]).stdout
    assert "asked: Where to?" in shown
    assert 'answer: {"street":"Elm St","number":1}' in shown
