"""The chat page in a real browser, in the template's frame: what a person sees and does when all goes well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine


def test_a_refund_shows_its_call_its_progress_and_its_answer(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    chat = open_page(server.url)
    expect(chat.page).to_have_url(f"{server.url}/support-agent")
    expect(chat.page).to_have_title("support-agent")
    expect(chat.page.locator(".welcome")).to_contain_text("Looks up, refunds and cancels orders.")
    chat.shot("empty")
    chat.say("Refund order A-1001")
    expect(chat.page.locator(".message.user")).to_have_text("Refund order A-1001")
    expect(chat.calls).to_contain_text("refund order")
    expect(chat.calls.locator("dl")).to_have_text("order_idA-1001")
    expect(chat.calls).to_contain_text("Refund done, sending the receipt...")
    expect(chat.calls).to_contain_text("Working")
    expect(chat.status).to_have_text("Working…")
    expect(chat.page.get_by_label("Message")).to_have_value("")
    chat.shot("busy")
    expect(chat.calls).to_contain_text("Done")
    refund_id = (folder / "data" / "refunds.log").read_text("utf-8").split(" ")[0]
    expect(chat.answers).to_contain_text(refund_id)
    expect(chat.status).to_have_text("")
    expect(chat.button("Stop")).to_be_hidden()
    chat.shot("done")
    assert chat.complaints == []


def test_a_reload_or_another_page_in_mid_run_loses_nothing_and_doubles_nothing(
    serve: Any, folder: Path, open_page: Any
) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Refund order A-1001")
    expect(chat.calls).to_contain_text("sending the receipt...")
    chat.page.reload()
    expect(chat.calls).to_contain_text("sending the receipt...")
    expect(chat.status).to_have_text("Working…")
    expect(chat.button("Stop")).to_be_visible()
    chat.page.get_by_role("link", name="Assistant").click()
    expect(chat.page).to_have_title("assistant")
    expect(chat.page.locator(".welcome")).to_be_visible()
    chat.page.get_by_role("link", name="Support").click()
    expect(chat.calls).to_contain_text("Done")
    expect(chat.answers).to_have_count(1)
    counts = [chat.page.locator(kind).count() for kind in (".message.user", ".call")]
    assert counts == [1, 1]
    assert chat.page.locator(".progress li").count() <= 1, "who comes after the end sees no progress"
    chat.page.reload()
    expect(chat.answers).to_have_count(1)
    assert chat.complaints == []


def test_an_approval_is_asked_for_also_after_a_reload_and_approving_does_it(
    serve: Any, folder: Path, open_page: Any
) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Cancel order A-1002")
    expect(chat.button("Approve")).to_be_visible()
    expect(chat.status).to_have_text("Waiting for a decision.")
    chat.shot("approval")
    chat.page.reload()
    expect(chat.status).to_have_text("Waiting for a decision.")
    expect(chat.calls.locator("dl")).to_have_text("order_idA-1002")
    chat.button("Approve").click()
    expect(chat.calls).to_contain_text("Approved.")
    expect(chat.calls.locator(".state")).to_contain_text("Done")
    expect(chat.calls.locator("button")).to_have_count(0)
    expect(chat.answers).to_contain_text("Status: cancelled")
    assert chat.complaints == []


def test_a_call_is_declined_with_a_reason_that_the_page_shows(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    chat = open_page(f"{server.url}/support-agent")
    chat.say("Cancel order A-1002")
    chat.button("Decline").click()
    expect(chat.page.get_by_label("Reason")).to_be_focused()
    chat.button("Back").click()
    expect(chat.button("Approve")).to_be_focused()
    chat.button("Decline").click()
    chat.page.get_by_label("Reason").fill("the customer called again")
    chat.shot("decline")
    chat.button("Decline it").click()
    expect(chat.calls).to_contain_text("Declined: the customer called again")
    expect(chat.answers).to_contain_text("declined this action")
    chat.page.reload()
    expect(chat.calls).to_contain_text("Declined: the customer called again")
    expect(chat.calls.locator(".state")).to_contain_text("Declined")
    expect(chat.answers).to_contain_text("declined this action")
    assert not (folder / "data" / "cancelled.log").exists()
    assert chat.complaints == []


def test_arguments_are_edited_as_fields_or_as_json_and_mistakes_are_told_beside_them(
    serve: Any, folder: Path, open_page: Any
) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Cancel order A-1002")
    chat.button("Edit").click()
    field = chat.page.get_by_label("order_id")
    expect(field).to_be_focused()
    expect(field).to_have_value("A-1002")
    field.fill("1001")
    chat.button("Approve with these").click()
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(chat.calls.get_by_role("alert")).to_contain_text("pattern")
    chat.shot("edit-refused")
    chat.button("Edit as JSON").click()
    area = chat.page.get_by_label("Arguments")
    expect(area).to_have_value('{\n  "order_id": "1001"\n}')
    for text, told in [("{", "This is no JSON"), ("[1]", "must be a JSON object"), ('{"id": 1}', "id: ")]:
        area.fill(text)
        chat.button("Approve with these").click()
        expect(chat.calls.get_by_role("alert")).to_contain_text(told)
    area.fill('{"order_id": "A-1001"}')
    chat.button("Approve with these").click()
    expect(chat.calls.locator(".edited")).to_contain_text("Approved with other arguments:order_idA-1001")
    expect(chat.calls.locator(".state")).to_contain_text("Failed")
    expect(chat.calls).to_contain_text("shipped already")
    chat.page.reload()
    expect(chat.calls.locator(".edited")).to_contain_text("A-1001")
    assert chat.unexpected() == []


def test_stop_ends_a_run_in_the_middle_of_its_tool(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Refund order A-1001")
    expect(chat.calls).to_contain_text("sending the receipt...")
    chat.button("Stop").click()
    expect(chat.page.locator(".run-end")).to_contain_text("Stopped.")
    expect(chat.calls.locator(".state")).to_contain_text("Stopped")
    expect(chat.button("Stop")).to_be_hidden()
    expect(chat.page.get_by_label("Message")).to_be_focused()
    chat.page.reload()
    expect(chat.page.locator(".run-end")).to_contain_text("Stopped.")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_contain_text("Status: shipped")
    assert chat.complaints == []


def test_two_tabs_show_the_same(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    one = open_page(f"{server.url}/support-agent")
    one.say("Where is order A-1001?")
    expect(one.answers).to_contain_text("Trail backpack")
    two = open_page(f"{server.url}/chat/support-agent", beside=one)
    expect(two.answers).to_contain_text("Trail backpack")
    one.say("Cancel order A-1002")
    expect(two.button("Approve")).to_be_visible()
    two.button("Approve").click()
    expect(one.calls.last).to_contain_text("Approved.")
    for tab in (one, two):
        expect(tab.answers).to_have_count(2)
        expect(tab.status).to_have_text("")
    messages = ".messages"
    assert one.page.locator(messages).inner_text() == two.page.locator(messages).inner_text()
    assert one.complaints == two.complaints == []


def test_earlier_conversations_are_listed_opened_and_deleted(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    chat = open_page(f"{server.url}/support-agent")
    side = chat.page.get_by_role("navigation", name="Conversations")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_contain_text("Trail backpack")
    first = chat.kept()
    chat.button("New conversation").click()
    expect(chat.answers).to_have_count(0)
    chat.say("Where is order A-1002?")
    expect(chat.answers).to_contain_text("Camping stove")
    assert chat.kept() != first
    expect(side.locator("li")).to_have_count(2)
    expect(side.locator('[aria-current="true"]')).to_contain_text("A-1002")
    side.get_by_role("button", name="Where is order A-1001?").first.click()
    expect(chat.answers).to_have_count(1)
    expect(chat.answers).to_contain_text("Trail backpack")
    assert chat.kept() == first
    chat.shot("conversations")
    side.get_by_role("button", name="Delete: Where is order A-1001?").click()
    expect(chat.page.get_by_role("dialog")).to_contain_text("Delete this conversation?")
    chat.button("Keep").click()
    expect(side.locator("li")).to_have_count(2)
    side.get_by_role("button", name="Delete: Where is order A-1001?").click()
    chat.shot("delete")
    chat.button("Delete").click()
    expect(side.locator("li")).to_have_count(1)
    expect(chat.page.locator(".welcome")).to_be_visible()
    gone = chat.page.request.get(f"{server.url}/agents/support-agent/conversations/{first}")
    assert gone.status == 404
    assert chat.complaints == []


@pytest.mark.parametrize("path", ["/support-agent", "/ai/chat/support-agent"])
def test_the_page_works_under_a_prefix(serve: Any, folder: Path, open_page: Any, path: str) -> None:
    server = serve(folder, env={"AI_HTTP_PREFIX": "/ai"}, wait_ready=False)
    server.wait_log("is ready")
    chat = open_page(server.url + path)
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_contain_text("Trail backpack")
    assert chat.complaints == []


def test_the_docs_page_works_without_the_internet(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder, command="dev", env={"AI_HTTP_PREFIX": "/ai"}, args=["--no-reload"], wait_ready=False)
    server.wait_log("is ready")
    chat = open_page("about:blank")
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    chat.page.goto(f"{server.url}/ai/docs")
    expect(chat.page.locator("#swagger-ui")).to_contain_text("/ai/agents/{agent}/runs")
    assert {url.startswith((server.url, "data:")) for url in asked} == {True}, asked
    assert chat.complaints == []
