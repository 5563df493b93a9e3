"""What a person decides about is what the page shows, and what is done is what they decided: numbers, signs, rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from amoxi_py.cli.visible_text import visible
from amoxi_py.testing import raw_call, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

HUGE = "9007199254740993"
TOOLS = '''
from typing import Any

from amoxi_py import tool


@tool(needs_approval=True)
def pay(account: str, amount: int, more: dict[str, Any]) -> dict[str, Any]:
    """Pay."""
    return {"account": account, "amount": amount, "more": more}


@tool(needs_approval=True, approver="role:finance")
def book(amount: int) -> int:
    """Book."""
    return amount
'''
OLD_BROWSER = """
const parse = JSON.parse;
JSON.parse = (text, reviver) => parse(text, reviver && ((key, value) => reviver(key, value)));
delete JSON.rawJSON;
"""


@pytest.fixture
def bank(shop_model: Any, folder: Path) -> Any:
    """The template with tools for money; `pay` is called with a number and a name that are not what they seem."""
    (folder / "app" / "bank.py").write_text(TOOLS, "utf-8")
    agents = folder / "app" / "agents.py"
    text = agents.read_text("utf-8").replace("[OrderTools, RefundTools]", "[OrderTools, RefundTools, pay, book]")
    agents.write_text("from .bank import book, pay\n" + text, "utf-8")
    arguments = f'{{"account": "\\u202eDE12\\u0007", "amount": {HUGE}, "more": {{"share": 1.0, "{HUGE}": -{HUGE}}}}}'
    pay = reply(raw_call("pay", arguments))
    return shop_model(
        {"pay": [pay, "paid"], "pay\u202e too": [pay, "paid"], "book": [raw_call("book", '{"amount": 1}')]}
    )


def test_the_fields_that_nobody_touched_run_as_they_came_and_numbers_are_those_of_json(
    bank: Any, open_page: Any
) -> None:
    chat = open_page(f"{bank.url}/support-agent")
    chat.say("pay")
    shown = chat.calls.locator("dd")
    expect(shown.nth(1)).to_have_text(HUGE)
    expect(shown.nth(2)).to_contain_text('"share": 1.0')
    expect(shown.nth(2)).to_contain_text(f'"{HUGE}": -{HUGE}')
    chat.button("Edit").click()
    amount = chat.page.get_by_label("amount")
    expect(amount).to_have_value(HUGE)
    for text in ("0x10", "1_000", "+1", "01", ".5", "", "Infinity", "1e999"):
        amount.fill(text)
        chat.button("Approve with these").click()
        expect(chat.calls.get_by_role("alert")).to_contain_text("number")
    amount.fill(HUGE)
    chat.button("Edit as JSON").click()
    chat.button("Edit as fields").click()
    chat.page.get_by_label("account").fill("DE999")
    chat.button("Approve with these").click()
    expect(chat.calls.locator(".state")).to_contain_text("Done")
    text = chat.calls.locator("pre").last.text_content()
    told = json.loads(text)
    assert told == {"account": "DE999", "amount": int(HUGE), "more": {"share": 1.0, HUGE: -int(HUGE)}}
    assert '"share": 1.0' in text


def test_a_browser_that_would_change_a_number_shows_that_and_offers_no_edit(bank: Any, open_page: Any) -> None:
    chat = open_page("about:blank")
    chat.page.add_init_script(OLD_BROWSER)
    chat.page.goto(f"{bank.url}/support-agent")
    chat.say("pay")
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.calls).to_contain_text("Large numbers are rounded here")
    expect(chat.calls).to_contain_text("The arguments cannot be edited here")
    expect(chat.button("Edit")).to_have_count(0)
    chat.button("Approve").click()
    expect(chat.calls.locator(".state")).to_contain_text("Done")
    path = f"{bank.url}/agents/support-agent/conversations/{chat.kept()}"
    assert f'"amount":{HUGE}' in chat.page.request.get(path).text().replace(" ", "")


def test_hidden_signs_are_shown_as_in_the_terminal_and_sent_as_they_are(bank: Any, open_page: Any) -> None:
    chat = open_page(f"{bank.url}/support-agent")
    chat.say("pay\u202e too")
    expect(chat.calls.locator("dd").first).to_have_text("\\u202eDE12\\x07")
    expect(chat.page.locator(".side .title")).to_have_text("pay\\u202e too")
    chat.button("Edit").click()
    expect(chat.page.locator("form.edit")).to_contain_text("With hidden signs: \\u202eDE12\\x07")
    chat.shot("hidden-signs")
    chat.page.get_by_label("amount").fill("5")
    chat.button("Approve with these").click()
    expect(chat.calls.locator(".state")).to_contain_text("Done")
    expect(chat.calls.locator("pre").last).to_contain_text('"account": "\\u202eDE12\\u0007"')
    every = [chr(number) for number in (*range(0xD800), *range(0xE000, 0x10000), 0x1F392)] + ["a\r\nb"]
    script = 'async (all) => { const { visible } = await import("/chat/visible.js"); return all.map(visible); }'
    assert chat.page.evaluate(script, every) == [visible(each) for each in every]
    lone = 'async () => (await import("/chat/visible.js")).visible("a\\ud800b")'
    assert chat.page.evaluate(lone) == "a\\ud800b" == visible("a\ud800b")


def test_who_may_not_decide_is_told_so_and_not_asked_again(bank: Any, open_page: Any) -> None:
    chat = open_page(f"{bank.url}/support-agent")
    chat.page.route("**/approvals?*", lambda route: route.abort())  # who decides is not found out beforehand
    chat.say("book")
    chat.button("Approve").click()
    expect(chat.calls).to_contain_text("Waits for somebody else's decision.")
    expect(chat.calls.locator("button")).to_have_count(0)
    expect(chat.calls).to_be_focused()
    expect(chat.problem).to_have_count(0)
    chat.button("New conversation").click()
    chat.page.go_back()
    expect(chat.calls).to_contain_text("Waits for somebody else's decision.")
    expect(chat.calls.locator("button")).to_have_count(0)
    chat.page.unroute("**/approvals?*")
    chat.page.reload()
    expect(chat.calls).to_contain_text("Waits for somebody else's decision.")
    expect(chat.calls.locator("button")).to_have_count(0)
