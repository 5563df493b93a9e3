"""The chat page for people on phones, with a keyboard only, with a screen reader, in the dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from amoxi_py.testing import call, pause, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FAULTS = """
async () => {
    const { violations } = await axe.run();
    return violations.filter((it) => it.impact === "serious" || it.impact === "critical").map(
        (it) => `${it.id}: ${it.nodes.map((node) => node.html).join(" | ")}`);
}
"""
LONG = "https://example.org/" + "a-very-long-address-without-a-break/" * 8
WIDE = f"{LONG}\n\n```\n{'x' * 300}\n```\n\n| {' | '.join(f'column {n}' for n in range(12))} |\n{'|---' * 12}|\n"


def faults_of(chat: Any) -> list[str]:
    if not chat.page.evaluate("'axe' in window"):
        chat.page.evaluate(AXE.read_text("utf-8"))
    found: list[str] = chat.page.evaluate(FAULTS)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(shop_model: Any, open_page: Any, scheme: str) -> None:
    script = {
        "busy": [reply("Some **words** and `code`. ", pause(600))],
        "cancel": [reply("I will cancel it.", call("cancel_order", order_id="A-1002"))],
        "wide": [WIDE],
    }
    server = shop_model(script)
    chat = open_page(f"{server.url}/support-agent", color_scheme=scheme)
    expect(chat.page.locator(".welcome")).to_be_visible()
    assert faults_of(chat) == []
    chat.say("busy")
    expect(chat.answers).to_contain_text("words")
    assert faults_of(chat) == []
    chat.shot(f"busy-{scheme}")
    chat.button("Stop").click()
    expect(chat.page.locator(".run-end")).to_be_visible()
    chat.say("cancel")
    expect(chat.button("Approve")).to_be_visible()
    assert faults_of(chat) == []
    chat.shot(f"approval-{scheme}")
    chat.button("Edit").click()
    chat.page.get_by_label("order_id").fill("wrong")
    chat.button("Approve with these").click()
    expect(chat.calls.get_by_role("alert")).to_be_visible()
    assert faults_of(chat) == []
    chat.button("Back").click()
    chat.button("Decline").click()
    chat.button("Decline it").click()
    chat.say("wide")
    expect(chat.answers.locator("table")).to_be_visible()
    assert faults_of(chat) == []
    chat.page.get_by_role("button", name="Delete: busy").click()
    expect(chat.page.get_by_role("dialog")).to_be_visible()
    assert faults_of(chat) == []


@pytest.mark.parametrize("path", ["/support-agent", "/chat/support-agent", "/chat/nobody"])
def test_a_phone_shows_all_of_it_without_sideways_scrolling(shop_model: Any, open_page: Any, path: str) -> None:
    script = {
        "wide": [WIDE + LONG, "x"],
        "cancel": [reply("Word. " * 40, call("cancel_order", order_id="A-1002"))],
    }
    chat = open_page(shop_model(script).url + path, viewport={"width": 375, "height": 667}, has_touch=True)

    def fits() -> bool:
        sizes = "[document.scrollingElement.scrollWidth, innerWidth, document.querySelector('.log')?.scrollWidth ?? 0]"
        document, window, log = chat.page.evaluate(sizes)
        return bool(document <= window == 375 and log <= 375)

    assert fits()
    if path.endswith("nobody"):
        return
    chat.shot("phone-empty")
    chat.say("wide")
    expect(chat.answers.locator("table")).to_be_visible()
    expect(chat.status).to_have_text("")
    assert fits()
    chat.shot("phone-wide")
    chat.say("cancel")
    expect(chat.button("Approve")).to_be_in_viewport()
    assert fits()
    chat.shot("phone-approval")
    chat.button("Edit").click()
    assert fits()
    side = chat.page.get_by_role("navigation", name="Conversations")
    expect(side).to_be_hidden()
    chat.button("Conversations").click()
    expect(side.locator("li")).to_have_count(1)
    assert fits()
    chat.shot("phone-conversations")
    chat.page.keyboard.press("Escape")
    expect(side).to_be_hidden()
    expect(chat.button("Conversations")).to_be_focused()
    assert chat.complaints == []


def test_a_call_is_approved_with_the_keyboard_alone(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    keys = chat.page.keyboard
    expect(chat.page.get_by_label("Message")).to_be_focused()
    keys.type("Cancel order A-1002")
    keys.press("Shift+Enter")
    keys.type("please")
    expect(chat.page.get_by_label("Message")).to_have_value("Cancel order A-1002\nplease")
    keys.press("Enter")
    expect(chat.button("Approve")).to_be_visible()
    for _ in range(12):
        if chat.page.evaluate("document.activeElement.textContent") == "Approve":
            break
        keys.press("Shift+Tab")
    expect(chat.button("Approve")).to_be_focused()
    keys.press("Enter")
    expect(chat.calls).to_contain_text("Approved.")
    expect(chat.calls).to_be_focused()
    expect(chat.answers).to_contain_text("Status: cancelled")
    assert chat.complaints == []


def test_a_screen_reader_hears_answers_and_questions_and_no_single_words(shop_model: Any, open_page: Any) -> None:
    words = [f"word-{number} " for number in range(40)]
    slow = [part for word in words for part in (word, pause(0.02))]
    script = {"tell": [reply(*slow)], "cancel": [reply(call("cancel_order", order_id="A-1002"))]}
    server = shop_model(script)
    chat = open_page(f"{server.url}/support-agent")
    chat.page.evaluate("""() => {
        window.HEARD = [];
        const region = document.querySelector("[data-announcer]");
        const changes = { childList: true, characterData: true, subtree: true };
        new MutationObserver(() => HEARD.push(region.textContent)).observe(region, changes);
    }""")
    expect(chat.page.locator("[data-announcer]")).to_have_attribute("aria-live", "polite")
    expect(chat.page.get_by_role("log")).to_have_attribute("aria-live", "off")
    chat.say("tell")
    expect(chat.answers).to_contain_text("word-39")
    expect(chat.status).to_have_text("")
    chat.say("cancel")
    expect(chat.button("Approve")).to_be_visible()
    chat.until(lambda: len(chat.page.evaluate("HEARD")) == 2)
    first, second = chat.page.evaluate("HEARD")
    assert first.strip() == "".join(words).strip()
    assert second == "Your decision is needed: cancel order."
    chat.page.reload()
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.page.locator("[data-announcer]")).to_have_text("Your decision is needed: cancel order.")


def test_every_state_of_a_call_is_a_word_and_a_sign_not_a_colour(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Where is order A-1001?")
    expect(chat.calls.locator(".state")).to_have_text(re.compile("✓ Done"))
    chat.say("Cancel order A-1002")
    expect(chat.calls.last.locator(".state")).to_have_text(re.compile(r"\? Needs your decision"))
    assert chat.calls.last.get_attribute("aria-label") == "cancel order: Needs your decision"
