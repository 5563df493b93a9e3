"""The guide of the chat page: its pages and modules work as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "chat-page.md"
FRAME = """<!doctype html><html lang="en"><head><title>own</title><script type="module" src="own.js"></script></head>
<body><div id="support"></div><pre id="log"></pre></body></html>"""


def block(name: str) -> str:
    [text] = re.findall(rf'```\w+ title="app/static/{name}"\n(.*?)```', GUIDE.read_text("utf-8"), re.DOTALL)
    return str(text)


def test_the_page_of_the_guide_is_a_whole_chat(serve: Any, folder: Path, open_page: Any) -> None:
    (folder / "app" / "static" / "own.html").write_text(block("support.html"), "utf-8")
    chat = open_page(f"{serve(folder).url}/static/own.html")
    expect(chat.page.get_by_role("heading", level=1)).to_have_text("Ask the shop")
    expect(chat.page.get_by_label("Message")).to_have_attribute("placeholder", "Where is order A-1001?")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_contain_text("Trail backpack")
    chat.shot("own-page")
    assert chat.unexpected() == []


def test_the_mounted_chat_of_the_guide_comes_with_its_style_and_goes_without_a_trace(
    serve: Any, folder: Path, open_page: Any
) -> None:
    static = folder / "app" / "static"
    (static / "own.html").write_text(FRAME, "utf-8")
    (static / "own.js").write_text(block("mounted.js"), "utf-8")
    chat = open_page(f"{serve(folder).url}/static/own.html")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_contain_text("Trail backpack")
    assert chat.page.locator("link[href$='/chat/page.css']").count() == 1
    chat.page.evaluate("dispatchEvent(new Event('pagehide'))")
    expect(chat.page.locator("#support > *")).to_have_count(0)


def test_the_client_of_the_guide_sends_opens_and_follows(serve: Any, folder: Path, open_page: Any) -> None:
    static = folder / "app" / "static"
    (static / "own.html").write_text(FRAME, "utf-8")
    (static / "own.js").write_text(block("own.js"), "utf-8")
    chat = open_page(f"{serve(folder).url}/static/own.html")
    log = chat.page.locator("#log")
    expect(log).to_contain_text("user: Where is order A-1001?")
    expect(log).to_contain_text("assistant: Here's what I found:")
    expect(log).to_contain_text("Status: shipped")
    expect(chat.page).to_have_title("here")
