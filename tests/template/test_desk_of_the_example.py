"""The staff's page of the example `support-desk` in a browser: what it says of a decision that came too late."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import APIRequestContext, Browser, expect

DESK = Path(__file__).parents[2] / "docs" / "examples" / "support-desk"


@pytest.fixture
def desk(serve: Any, tmp_path: Path) -> Any:
    folder = shutil.copytree(DESK, tmp_path / "desk", ignore=shutil.ignore_patterns("data", "__pycache__"))
    return serve(folder, command="dev", env={"DESK_SESSION_SECRET": "a-secret-of-the-test-that-is-long-enough"})


def sign_in(requests: APIRequestContext, url: str, login: str) -> APIRequestContext:
    assert requests.post(f"{url}/login", data={"login": login, "password": f"{login}-of-the-demo"}).ok
    return requests


def test_who_decides_too_late_reads_that_also_when_the_card_is_gone(desk: Any, browser: Browser) -> None:
    ann = sign_in(browser.new_context().request, desk.url, "ann")
    ask = ann.post(f"{desk.url}/agents/support-agent/runs?wait=10", data={"message": "Refund order A-1001"})
    (waiting,) = ask.json()["waiting_for"]
    context = browser.new_context()
    sue = sign_in(context.request, desk.url, "sue")
    page = context.new_page()
    page.clock.install()  # the page does not look again by itself
    page.goto(f"{desk.url}/desk")
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    assert sue.post(f"{desk.url}/approvals/{waiting['call_id']}", data={"decision": "decline"}).ok

    approve.click()
    expect(page.get_by_role("heading", name="refund_order A-1001")).to_have_count(0)
    expect(page.get_by_text("Nothing waits.")).to_be_visible()
    expect(page.get_by_role("status").filter(has_text="refund_order A-1001:")).to_be_visible()
    for one in browser.contexts:
        one.close()
