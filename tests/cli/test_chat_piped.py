"""`amoxi chat` without a terminal: each line a message, answers alone on stdout, an honest exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TWO_AGENTS = '''
from amoxi_py import agent


@agent(description="One.")
class First:
    """You are the first."""


@agent(description="Two.")
class Second:
    """You are the second."""
'''


def test_each_line_is_a_message_of_one_conversation_and_answers_alone_are_on_stdout(
    shop: Path, amoxi: Any, read: Any
) -> None:
    answer = amoxi(shop, "chat", stdin="Look up order A-1001\n\nLook up order A-1002")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("Here's what I found:") == 2
    assert "lookup_order" not in answer.stdout
    assert 'lookup_order {"order_id":"A-1002"}' in answer.stderr
    runs = read(shop, "runs", "list")["items"]
    assert len(runs) == 2
    assert len({run["conversation_id"] for run in runs}) == 1


def test_one_turn_ends_with_its_runs_status_and_an_earlier_conversation_goes_on(shop: Path, amoxi: Any) -> None:
    first = json.loads(amoxi(shop, "chat", "shop", "--message", "Look up order A-1001", "--json").stdout)
    assert first["status"] == "completed"
    second = amoxi(
        shop, "chat", "--conversation", first["conversation_id"], "--message", "Look up order A-1002", "--json"
    )
    assert second.returncode == 0
    assert json.loads(second.stdout)["conversation_id"] == first["conversation_id"]
    other = amoxi(shop, "chat", "other", "--conversation", first["conversation_id"], "--message", "x")
    assert other.returncode == 2


def test_where_nobody_can_be_asked_the_run_goes_on_waiting_and_the_command_fails(
    shop: Path, amoxi: Any, read: Any
) -> None:
    answer = amoxi(shop, "chat", stdin="Cancel order A-1001\napprove\n")
    assert answer.returncode == 1
    [call] = read(shop, "approvals", "list")["items"]
    assert f"amoxi approvals decide {call['call_id']} approve|decline" in answer.stderr
    [run] = read(shop, "runs", "list")["items"]
    assert run["status"] == "waiting", "what is typed is no decision, and it does not replace the turn"
    assert not (shop / "cancelled.log").exists()


def test_a_message_over_a_limit_is_refused_with_the_reason(shop: Path, amoxi: Any, read: Any) -> None:
    env = {"AI_LIMITS_RUNS_PER_DAY": "1"}
    answer = amoxi(shop, "chat", stdin="Look up order A-1001\nLook up order A-1002\n", env=env)
    assert answer.returncode == 1
    assert answer.stdout.count("Here's what I found:") == 1
    assert "you have used today's budget of 1 run; the next day begins at 00:00 UTC" in answer.stderr
    assert "Traceback" not in answer.stderr
    [run] = read(shop, "runs", "list")["items"]
    again = amoxi(shop, "runs", "retry", run["id"], env=env)
    assert again.returncode == 1
    assert "you have used today's budget of 1 run" in again.stderr


def test_without_a_name_an_app_with_several_agents_lists_them(amoxi: Any, app_folder: Any) -> None:
    folder = app_folder({"app/__init__.py": TWO_AGENTS})
    answer = amoxi(folder, "chat", "--message", "hi")
    assert answer.returncode == 2
    assert (
        "say which agent:\n  amoxi chat first                One.\n  amoxi chat second               Two."
        in answer.stderr
    )


def test_bytes_that_are_no_text_end_nothing(shop: Path, amoxi: Any) -> None:
    answer = amoxi(shop, "chat", stdin="Look up order A-1001 \x00\x1b[2J\n", env={"PYTHONIOENCODING": "ascii"})
    assert answer.returncode == 0, answer.stderr
    assert "Here's what I found:" in answer.stdout
    assert "\x1b" not in answer.stdout + answer.stderr
