"""The chat page when a tool asks the person something: a form that outlasts a reload, and the answers after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

MOVER = '''
from typing import Literal

from pydantic import BaseModel

from amoxi_py import ToolContext, agent, tool


class Address(BaseModel):
    street: str
    number: int
    country: Literal["NL", "BE", "DE"] = "NL"
    lift: bool | None = None


@tool(idempotent=True)
async def move_house(order_id: str, ctx: ToolContext) -> str:
    """Move the delivery of an order to another address.

    Args:
        order_id: The order number, e.g. A-1001
    """
    when = await ctx.ask("When?")
    address = await ctx.ask("Which address?", Address)
    sure = await ctx.ask("Is that right?", bool)
    try:
        await ctx.ask("Any last words?", timeout=0.2)
    except TimeoutError:
        pass
    await ctx.wait_for("the-van")
    return f"{when}, {address.street} {address.number} {address.country} {address.lift} {sure}"


@agent(tools=[move_house])
class Mover:
    """You move things."""
'''


def test_questions_are_forms_that_outlast_a_reload_and_show_their_answers(
    serve: Any, folder: Path, open_page: Any
) -> None:
    (folder / "app" / "mover.py").write_text(MOVER, "utf-8")
    url = serve(folder).url
    chat = open_page(f"{url}/chat/mover")
    chat.say("Move house of order A-1001")
    answer = chat.page.get_by_label("Answer", exact=True)
    expect(chat.status).to_have_text("Waiting for your answer.")
    expect(chat.calls).to_contain_text("When?")
    chat.button("Answer").click()
    expect(chat.calls).to_contain_text("This is needed.")
    chat.page.reload()
    answer.get_by_role("textbox").fill("On <b>Monday</b>")
    gone = {"code": "not_found", "title": "Not found", "status": 404, "detail": "nothing like that"}
    chat.page.route(
        "**/answers/*",
        lambda route: route.fulfill(status=404, json=gone, content_type="application/problem+json"),
        times=1,
    )
    chat.button("Answer").click()
    expect(chat.problem).to_contain_text("That was not answered: nothing like that")
    expect(chat.calls).to_contain_text("When?")
    answer.get_by_role("textbox").fill("On <b>Monday</b>")
    chat.button("Answer").click()
    expect(chat.calls).to_contain_text("Which address?")
    expect(chat.calls).to_contain_text("On <b>Monday</b>")
    chat.page.get_by_label("street").fill("Main St")
    chat.page.get_by_label("number").fill("a dozen")
    chat.button("Answer").click()
    expect(chat.calls).to_contain_text("This must be a number")
    chat.page.get_by_label("number").fill("1.5")
    chat.button("Answer").click()
    expect(chat.calls).to_contain_text("is not of type 'integer'")
    chat.shot("question")
    chat.page.get_by_label("number").fill("12")
    chat.page.get_by_label("country").select_option("BE")
    chat.button("Answer").click()
    chat.button("Yes").click()
    conversation = f"{url}/agents/mover/conversations/{chat.kept()}"
    run_id = chat.page.request.get(conversation).json()["items"][-1]["run_id"]
    run = f"{url}/runs/{run_id}"
    chat.until(lambda: [each["kind"] for each in chat.page.request.get(run).json()["waiting_for"]] == ["signal"])
    expect(chat.page.get_by_role("form", name="Answer")).to_have_count(0)  # nobody had last words in time
    assert chat.page.request.post(f"{run}/signals/the-van", data={}).ok
    expect(chat.answers.filter(has_text="On <b>Monday</b>, Main St 12 BE None True")).to_have_count(1)
    expect(chat.status).to_have_text("")
    expect(chat.calls.locator(".answered")).to_contain_text("Is that right?")
    assert [each for each in chat.complaints if "422" not in each and "404" not in each] == []
