"""The chat page's view of what is remembered: a person sees it, searches it, and has it forgotten."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from amoxi_py.models.script import call, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FACTS = ("She hikes with a small dog.", "Her shoe size is <b>39</b>.", "She lives in Basel.")
SCRIPT = {fact: [reply(call("remember", text=fact)), "I keep that in mind."] for fact in FACTS} | {"*": ["Hello."]}


@pytest.fixture
def remembering(folder: Path) -> Path:
    """The template app, whose support agent remembers."""
    for source in (folder / "app").rglob("*.py"):
        text = source.read_text("utf-8")
        source.write_text(text.replace("RefundTools], desc", "RefundTools], memory=True, desc"), "utf-8")
    return folder


@pytest.mark.usefixtures("remembering")
def test_a_person_sees_what_is_remembered_and_has_it_forgotten(shop_model: Any, open_page: Any) -> None:
    server = shop_model(SCRIPT)
    other = open_page(f"{server.url}/chat/support-agent")
    other.say(FACTS[2])
    expect(other.answers).to_contain_text("I keep that in mind.")
    chat = open_page(f"{server.url}/chat/support-agent")
    for number, fact in enumerate(FACTS[:2], 1):
        chat.say(fact)
        expect(chat.answers.filter(has_text="I keep that in mind.")).to_have_count(number)

    chat.button("What is remembered").press("Enter")
    dialog = chat.page.get_by_role("dialog", name="What is remembered of you")
    items = dialog.get_by_role("listitem")
    expect(items).to_have_count(2)
    expect(items.nth(0)).to_contain_text("Her shoe size is <b>39</b>.")
    expect(items.nth(1)).to_contain_text("She hikes with a small dog.")
    chat.page.evaluate(AXE.read_text("utf-8"))
    assert chat.page.evaluate("axe.run().then(({violations}) => violations.filter((it) => "
                              "['serious', 'critical'].includes(it.impact)).map((it) => it.id))") == []  # fmt: skip
    chat.shot("memories")

    dialog.get_by_label("Search").fill("hikes dog")
    expect(items.nth(0)).to_contain_text("She hikes with a small dog.")
    dialog.get_by_label("Search").fill("")
    expect(items.nth(0)).to_contain_text("Her shoe size")
    dialog.get_by_role("button", name="Forget: Her shoe size is <b>39</b>.").press("Enter")
    expect(items).to_have_count(1)
    expect(dialog.get_by_role("heading", name="What is remembered of you")).to_be_focused()
    assert [one["text"] for one in memories(chat)] == [FACTS[0]]

    dialog.get_by_role("button", name="Forget all…").click()
    expect(dialog).to_contain_text("It cannot be brought back.")
    dialog.get_by_role("button", name="Keep", exact=True).click()
    expect(items).to_have_count(1)
    dialog.get_by_role("button", name="Forget all…").click()
    dialog.get_by_role("button", name="Forget all", exact=True).click()
    expect(dialog).to_contain_text("Nothing yet.")
    assert memories(chat) == []
    chat.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert [one["text"] for one in memories(other)] == [FACTS[2]], "of another visitor nothing is gone"
    assert (chat.unexpected(), other.unexpected()) == ([], [])


@pytest.mark.usefixtures("remembering")
def test_what_is_left_is_shown_when_all_that_was_shown_is_forgotten(shop_model: Any, open_page: Any) -> None:
    chat = open_page(f"{shop_model(SCRIPT).url}/chat/support-agent")
    for number, fact in enumerate(FACTS, 1):
        chat.say(fact)
        expect(chat.answers.filter(has_text="I keep that in mind.")).to_have_count(number)
    chat.page.route(  # one on a page
        re.compile(r"/memories\?"), lambda route: route.continue_(url=route.request.url.replace("limit=30", "limit=1"))
    )
    chat.page.set_viewport_size({"width": 1000, "height": 130})  # as beside a long list of conversations
    expect(chat.button("What is remembered")).to_be_in_viewport(ratio=1)
    chat.page.set_viewport_size({"width": 1000, "height": 720})
    chat.button("What is remembered").click()
    dialog = chat.page.get_by_role("dialog", name="What is remembered of you")
    items = dialog.get_by_role("listitem")
    expect(items).to_have_text([re.compile("Basel")])
    dialog.get_by_role("button", name="Forget: She lives").click()
    expect(items).to_have_text([re.compile("shoe size")])

    held: list[Any] = []
    chat.page.unroute_all()
    chat.page.route(re.compile(r"/memories\?"), lambda route: held.append((route, route.fetch())))
    dialog.get_by_label("Search").fill("shoe dog")
    chat.until(lambda: held)
    dialog.get_by_role("button", name="Forget: Her shoe").click()
    expect(dialog.get_by_role("status")).to_have_text("Forgotten.")
    chat.until(lambda: len(memories(chat)) == 1)
    route, late = held[0]
    assert "shoe size" in late.text()
    route.fulfill(response=late)
    expect(items).to_have_text([re.compile("She hikes")])
    assert chat.unexpected() == []


@pytest.mark.usefixtures("remembering")
def test_on_a_narrow_screen_it_is_in_the_drawer_and_an_error_is_told(shop_model: Any, open_page: Any) -> None:
    server = shop_model(SCRIPT)
    chat = open_page(f"{server.url}/chat/support-agent", viewport={"width": 390, "height": 700})
    chat.say(FACTS[0])
    expect(chat.answers).to_contain_text("I keep that in mind.")
    chat.button("Conversations").click()
    chat.button("What is remembered").click()
    dialog = chat.page.get_by_role("dialog", name="What is remembered of you")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    chat.shot("memories-narrow")
    chat.page.route(re.compile("/memories/"), lambda route: route.abort())
    dialog.get_by_role("button", name="Forget: She hikes").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the server cannot be reached")
    expect(dialog.get_by_role("listitem")).to_have_count(1)
    dialog.get_by_role("button", name="Close", exact=True).click()
    expect(dialog).to_have_count(0)
    assert chat.unexpected() == []


def test_an_agent_that_remembers_nothing_shows_nothing_of_it(shop_model: Any, open_page: Any) -> None:
    chat = open_page(f"{shop_model(SCRIPT).url}/chat/support-agent")
    chat.say("Hi")
    expect(chat.answers).to_contain_text("Hello.")
    expect(chat.button("What is remembered")).to_have_count(0)


def memories(chat: Any) -> list[dict[str, Any]]:
    """Return what the server remembers of the person at a page."""
    found: list[dict[str, Any]] = chat.page.evaluate(
        "fetch('/memories').then((it) => it.json()).then((it) => it.items)"
    )
    return found
