"""The template's page in a real browser: what a person sees when all goes well, and when servers and lines break."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AGENT = "/agents/support-agent"
FAST = {"AI_RUNS_LEASE_MS": "2000"}


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def conversation_of(page: Page, agent: str = "support-agent") -> str:
    return str(page.evaluate(f"localStorage.getItem('conversation:{agent}')"))


def messages_of(page: Page, url: str, agent: str = "support-agent") -> list[Any]:
    answer = page.request.get(f"{url}/agents/{agent}/conversations/{conversation_of(page, agent)}")
    items: list[Any] = answer.json()["items"]
    return items


def wait_until(condition: Callable[[], bool], page: Page, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, page.locator("body").inner_text()
        page.wait_for_timeout(20)  # lets the browser's events in


def watch_answer(page: Page, samples: list[str], until: Callable[[], bool]) -> None:
    """Keep what of the answer is shown, again and again."""

    def look() -> bool:
        samples.extend(page.locator(".assistant").all_text_contents()[-1:])
        return until()

    wait_until(look, page)


def test_a_refund_shows_its_call_its_progress_and_its_answer(
    serve: Any, folder: Path, open_page: Any, tmp_path: Path
) -> None:
    server = serve(folder)
    page = open_page(server.url)
    expect(page).to_have_url(f"{server.url}/support-agent")
    expect(page).to_have_title("support-agent")
    say(page, "Refund order A-1001")
    expect(page.locator(".user")).to_have_text("Refund order A-1001")
    expect(page.locator(".call")).to_contain_text('refund_order {"order_id":"A-1001"}')
    expect(page.locator(".call")).to_contain_text("Refund done, sending the receipt...")
    expect(page.get_by_role("status")).to_have_text("Working...")
    expect(page.get_by_label("Message")).to_have_value("")
    expect(page.locator(".call")).to_contain_text("Done: ")
    refund_id = (folder / "data" / "refunds.log").read_text("utf-8").split(" ")[0]
    expect(page.locator(".assistant")).to_contain_text(refund_id)
    expect(page.get_by_role("status")).to_have_text("")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    page.screenshot(path=tmp_path / "refund.png")
    assert page.complaints == []


def test_a_reload_or_another_page_in_mid_run_loses_nothing_and_doubles_nothing(
    serve: Any, folder: Path, open_page: Any
) -> None:
    server = serve(folder)
    page = open_page(f"{server.url}/support-agent")
    say(page, "Refund order A-1001")
    expect(page.locator(".call")).to_contain_text("sending the receipt...")
    page.reload()
    expect(page.locator(".call")).to_contain_text("sending the receipt...")
    expect(page.get_by_role("status")).to_have_text("Working...")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("link", name="assistant").click()
    expect(page).to_have_title("assistant")
    expect(page.locator("#log > *")).to_have_count(0)
    page.get_by_role("link", name="support-agent").click()
    expect(page.locator(".call")).to_contain_text("Done: ")
    expect(page.locator(".assistant")).to_have_count(1)
    assert [page.locator(kind).count() for kind in (".user", ".call", ".call p")] == [1, 1, 3]
    page.reload()
    expect(page.locator(".assistant")).to_have_count(1)
    assert page.complaints == []


@pytest.mark.parametrize(("button", "decided", "result"), [
    ("Approve", "Approved.", 'Done: {"id":"A-1002"'),
    ("Decline", "Declined.", "Not done: The person declined this action."),
])  # fmt: skip
def test_an_approval_is_asked_for_also_after_a_reload_and_the_result_is_shown(
    serve: Any, folder: Path, open_page: Any, button: str, decided: str, result: str
) -> None:
    page = open_page(f"{serve(folder).url}/support-agent")
    say(page, "Cancel order A-1002")
    expect(page.get_by_role("button", name=button)).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Waiting for a decision.")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("Waiting for a decision.")
    page.get_by_role("button", name=button).click()
    expect(page.locator(".call")).to_contain_text(decided)
    expect(page.locator(".call")).to_contain_text(result)
    expect(page.locator(".call button")).to_have_count(0)
    expect(page.locator(".assistant")).to_be_visible()
    assert page.complaints == []


def test_an_approval_with_other_arguments_shows_what_was_approved(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    page = open_page(f"{server.url}/support-agent")
    say(page, "Cancel order A-1002")
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    [call] = messages_of(page, server.url)[-1]["calls"]
    [run] = page.request.get(f"{server.url}/runs").json()["items"]
    path = f"{server.url}/runs/{run['id']}/approvals/{call['call_id']}"
    answer = page.request.post(path, data={"decision": "approve", "arguments": {"order_id": "A-1001"}})
    assert answer.ok, answer.text()
    expect(page.locator(".call")).to_contain_text('Approved with other arguments: {"order_id":"A-1001"}.')
    expect(page.locator(".call")).to_contain_text("Not done: ")


def test_stop_ends_a_run_in_the_middle_of_its_tool(serve: Any, folder: Path, open_page: Any) -> None:
    page = open_page(f"{serve(folder).url}/support-agent")
    say(page, "Refund order A-1001")
    expect(page.locator(".call")).to_contain_text("sending the receipt...")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status")).to_have_text("Stopped.")
    expect(page.locator(".call")).to_contain_text("Not done: ")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    say(page, "Where is order A-1001?")
    expect(page.locator(".assistant")).to_contain_text("Status: shipped")
    assert page.complaints == []


def test_a_server_that_is_killed_in_mid_answer_and_started_again_is_followed_without_help(
    serve: Any, folder: Path, open_page: Any, tmp_path: Path
) -> None:
    server = serve(folder, env=FAST)
    page = open_page(f"{server.url}/assistant")
    note = "🎒 " + " ".join(f"peg-{n}" for n in range(450))
    say(page, f"Add a note: {note}")
    expect(page.get_by_role("status")).to_have_text("")
    expect(page.locator(".assistant")).to_have_count(1)
    say(page, "List my notes")
    samples: list[str] = []
    answers = page.locator(".assistant")
    watch_answer(page, samples, lambda: answers.count() == 2 and "peg-40 " in samples[-1])
    page.reload()
    watch_answer(page, samples, lambda: answers.count() == 2 and "peg-80 " in samples[-1])
    server.kill9()
    expect(page.get_by_role("status")).to_have_text("Connection lost, trying again...")
    page.screenshot(path=tmp_path / "lost.png")
    serve(folder, env=FAST, port=server.port)
    expect(page.get_by_role("status")).to_have_text(re.compile("Working|Going on"))
    watch_answer(page, samples, lambda: page.get_by_role("status").inner_text() == "")
    whole = [m["text"] for m in messages_of(page, server.url, "assistant") if m["role"] == "assistant" and m["text"]]
    assert answers.all_text_contents() == whole
    assert "peg-449" in whole[1]
    last = [sample for sample in samples if not sample.startswith(whole[0])]
    assert len({*last}) > 2
    wrong = [sample for sample in last if not whole[1].startswith(sample)]
    assert wrong == [], f"{len(wrong)} of {len(last)} are no beginning of the answer: {wrong[0]}"
    assert [line for line in page.complaints if "ERR_" not in line and "Failed to load resource" not in line] == []


def test_a_proxy_without_a_server_behind_it_loses_no_conversation(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    page = open_page(f"{server.url}/support-agent")
    say(page, "Where is order A-1001?")
    expect(page.locator(".assistant")).to_have_count(1)
    conversation = conversation_of(page)
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.resource_type)
        status = 404 if len(refused) % 2 else 502  # a proxy's own 404 tells nothing of the conversation
        route.fulfill(status=status, body="<html>no server</html>", content_type="text/html")

    page.route(f"**{AGENT}/conversations/**", refuse)
    page.reload()
    expect(page.get_by_role("status")).to_have_text("Connection lost, trying again...")
    wait_until(lambda: refused.count("eventsource") >= 3 and refused.count("fetch") >= 2, page)
    page.unroute_all()
    expect(page.locator(".assistant")).to_have_count(1)
    expect(page.get_by_role("status")).to_have_text("")
    assert conversation_of(page) == conversation


def test_a_conversation_that_was_erased_is_left_for_a_new_one(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    page = open_page(f"{server.url}/support-agent")
    say(page, "Where is order A-1001?")
    expect(page.locator(".assistant")).to_have_count(1)
    assert page.request.delete(f"{server.url}{AGENT}/conversations/{conversation_of(page)}").ok
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("not there any more")
    say(page, "Where is order A-1002?")
    expect(page.locator(".assistant")).to_contain_text("not shipped yet")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_message_that_could_not_be_sent_stays_in_the_box_and_is_taken_once(
    serve: Any, folder: Path, open_page: Any
) -> None:
    server = serve(folder)
    page = open_page(f"{server.url}/support-agent")

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    page.route(f"**{AGENT}/runs", lose_the_answer)
    say(page, "Where is order A-1001?")
    expect(page.get_by_role("alert")).to_have_text("The message was not sent: the server cannot be reached")
    expect(page.get_by_label("Message")).to_have_value("Where is order A-1001?")
    page.unroute_all()
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".assistant")).to_contain_text("Trail backpack")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.get_by_label("Message")).to_have_value("")
    assert len(page.request.get(f"{server.url}/runs").json()["items"]) == 1


def test_a_message_that_is_refused_says_why_and_stays_in_the_box(serve: Any, folder: Path, open_page: Any) -> None:
    page = open_page(f"{serve(folder, env={'AI_RUNS_ON_BUSY': 'reject'}).url}/support-agent")
    say(page, "Refund order A-1001")
    expect(page.locator(".call")).to_contain_text("sending the receipt...")
    say(page, "Where is order A-1001?")
    expect(page.get_by_role("alert")).to_contain_text("The message was not sent: the conversation")
    expect(page.get_by_label("Message")).to_have_value("Where is order A-1001?")
    expect(page.locator(".call")).to_contain_text("Done: ")


def test_the_page_finds_the_agents_under_a_prefix(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder, env={"AI_HTTP_PREFIX": "/ai"}, wait_ready=False)
    server.wait_log("is ready")
    page = open_page(f"{server.url}/support-agent")
    say(page, "Where is order A-1001?")
    expect(page.locator(".assistant")).to_contain_text("Trail backpack")
    assert page.complaints == []


def test_the_docs_page_works_without_the_internet(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder, command="dev", env={"AI_HTTP_PREFIX": "/ai"}, args=["--no-reload"], wait_ready=False)
    server.wait_log("is ready")
    page = open_page("about:blank")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{server.url}/ai/docs")
    expect(page.locator("#swagger-ui")).to_contain_text("/ai/agents/{agent}/runs")
    assert {url.startswith((server.url, "data:")) for url in asked} == {True}, asked
    assert page.complaints == []
