"""The chat page of an agent that asks another one: the other's approvals are cards of this conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

CONCIERGE = '''
from amoxi_py import agent
from app.agents import SupportAgent


@agent(agents=[SupportAgent])
class Concierge:
    """You receive people."""
'''


def test_an_approval_of_an_asked_agent_is_a_card_that_outlasts_a_reload_and_is_decided_there(
    serve: Any, folder: Path, open_page: Any
) -> None:
    (folder / "app" / "concierge.py").write_text(CONCIERGE, "utf-8")
    chat = open_page(f"{serve(folder).url}/chat/concierge")
    chat.say("Cancel order A-1002")
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.status).to_have_text("Waiting for a decision.")
    chat.page.reload()
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.calls.locator("h3")).to_have_text(["ask support agent", "cancel order"])
    expect(chat.calls.nth(0).locator("button")).to_have_count(0)
    chat.shot("approval-of-an-asked-agent")
    chat.button("Approve").click()
    expect(chat.calls.nth(1)).to_contain_text("Approved.")
    expect(chat.calls.locator(".state")).to_have_text(["✓ Done", "✓ Done"])
    expect(chat.answers.filter(has_text="Status: cancelled")).to_have_count(1)
    expect(chat.status).to_have_text("")
    assert chat.complaints == []
