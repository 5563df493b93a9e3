"""Which conversation the page is at: its address, other tabs, deleted ones, sign-ins that ended, lines that sleep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from amoxi_py.testing import pause, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AGENT = "/agents/support-agent"


def at(chat: Any) -> str:
    return str(chat.page.evaluate("location.hash.slice(1)"))


def test_each_tab_keeps_its_own_conversation_and_back_goes_to_the_one_before(shop_model: Any, open_page: Any) -> None:
    server = shop_model({"one": ["first"], "two": ["second"]})
    tab = open_page(f"{server.url}/support-agent?a=1")
    tab.say("one")
    expect(tab.answers).to_have_text("first")
    other = open_page(f"{server.url}/support-agent", beside=tab)
    expect(other.answers).to_have_text("first")
    assert at(other) == at(tab) == tab.kept()
    other.button("New conversation").click()
    other.say("two")
    expect(other.answers).to_have_text("second")
    tab.page.reload()
    expect(tab.answers).to_have_text("first")
    assert tab.page.url == f"{server.url}/support-agent?a=1#{at(tab)}"
    other.page.go_back()
    expect(other.answers).to_have_text("first")
    other.page.go_forward()
    expect(other.answers).to_have_text("second")
    other.button("New conversation").click()
    expect(other.page.locator(".welcome")).to_be_visible()
    tab.page.reload()
    other.page.reload()
    expect(tab.answers).to_have_text("first")
    expect(other.page.locator(".welcome")).to_be_visible()
    assert tab.unexpected() == other.unexpected() == []


def test_words_for_a_conversation_that_is_gone_stay_in_the_box_of_a_new_one(shop_model: Any, open_page: Any) -> None:
    server = shop_model({"one": ["first"], "more": ["a new one"]})
    chat = open_page(f"{server.url}/support-agent")
    chat.say("one")
    expect(chat.answers).to_have_text("first")
    chat.page.context.clear_cookies()
    chat.say("more")
    expect(chat.problem).to_contain_text("not there any more")
    expect(chat.page.get_by_label("Message")).to_have_value("more")
    assert (at(chat), chat.kept()) == ("", None)
    chat.button("Send").click()
    expect(chat.answers).to_have_text("a new one")


def test_an_alert_goes_when_the_line_is_back_or_the_person_goes_on(
    shop_model: Any, open_page: Any, line_to: Any
) -> None:
    line = line_to(shop_model({"one": ["first"]}).port)
    chat = open_page(f"{line.url}/support-agent")
    chat.say("one")
    expect(chat.answers).to_have_text("first")
    chat.page.route(f"**{AGENT}/**", lambda route: route.abort())
    chat.say("more")
    expect(chat.problem).to_contain_text("cannot be reached")
    chat.page.get_by_label("Message").fill("more?")
    expect(chat.problem).to_have_count(0)
    chat.button("Send").click()
    expect(chat.problem).to_contain_text("cannot be reached")
    line.cut()
    expect(chat.status).to_have_text("Connection lost, trying again…")
    chat.page.unroute_all()
    expect(chat.status).to_have_text("")
    expect(chat.problem).to_have_count(0)


def test_a_sign_in_that_ended_forgets_no_conversation(shop_model: Any, open_page: Any, line_to: Any) -> None:
    line = line_to(shop_model({"one": ["first"], "more": ["and on"]}).port)
    chat = open_page(f"{line.url}/support-agent")
    chat.say("one")
    expect(chat.answers).to_have_text("first")
    conversation = chat.kept()

    def refuse(route: Route) -> None:
        body = json.dumps({"code": "not_authenticated", "detail": "please sign in", "status": 401})
        route.fulfill(status=401, body=body, content_type="application/problem+json")

    chat.page.route("**/agents**", refuse)
    line.cut()
    expect(chat.problem).to_contain_text("please sign in")
    expect(chat.answers).to_have_text("first")
    chat.page.reload()
    expect(chat.problem).to_contain_text("please sign in")
    expect(chat.status).to_have_text("")
    chat.page.unroute_all()
    chat.page.route(f"**{AGENT}/conversations/**", refuse)
    chat.page.reload()
    expect(chat.problem).to_contain_text("please sign in")
    assert at(chat) == chat.kept() == conversation
    chat.page.unroute_all()
    chat.say("more")
    expect(chat.answers).to_have_text(["first", "and on"])
    assert chat.kept() == conversation


def test_a_long_answer_is_not_drawn_anew_for_each_piece(shop_model: Any, open_page: Any) -> None:
    pieces = [part for number in range(150) for part in (f"word-{number} ", pause(0.01))]
    chat = open_page(f"{shop_model({'tell': [reply(*pieces)]}).url}/support-agent")
    chat.page.evaluate("""() => {
        const parse = DOMParser.prototype.parseFromString;
        DOMParser.prototype.parseFromString = function (...args) {  // a long answer costs this much
            for (const end = performance.now() + 50; performance.now() < end;);
            return parse.apply(this, args);
        };
        window.DRAWN = [];
        new MutationObserver((all) => {
            if (all.some(({ target }) => target.matches(".assistant .text"))) DRAWN.push(performance.now());
        }).observe(document.querySelector(".messages"), { childList: true, subtree: true });
    }""")
    chat.say("tell")
    expect(chat.answers).to_contain_text("word-149")
    expect(chat.status).to_have_text("")
    drawn = chat.page.evaluate("DRAWN")
    assert chat.complaints == []
    assert len(drawn) >= 2
    assert len(drawn) <= (drawn[-1] - drawn[0]) / 200 + 3, "only the first and the whole answer do not wait"


HIDDEN = """
async () => {
    const { AmoxiClient, Unreachable } = await import("/chat/client.js");
    const client = new AmoxiClient({ agent: "support-agent" });
    const later = window.setTimeout, turn = () => new Promise((resolve) => later(resolve, 0));
    let timers = [], asked = 0, hidden = false;
    window.setTimeout = (call, ms) => -timers.push({ call, ms });  // no number of a real one
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    const look = (now) => { hidden = now; document.dispatchEvent(new Event("visibilitychange")); };
    const fire = async (wanted) => {
        const due = timers.filter(wanted);
        timers = timers.filter((each) => !due.includes(each));
        due.forEach(({ call }) => call());
        await turn();
    };
    client.fetch = async () => { asked += 1; throw new Unreachable(); };
    const told = [];
    const stream = client.follow("conv_x", () => {});
    await turn();
    told.push(asked);
    look(true);
    await fire(({ ms }) => ms === 30000);
    await fire(({ ms }) => ms < 30000);
    told.push(asked);
    dispatchEvent(new Event("online"));
    await turn();
    told.push(asked);
    look(false);
    await turn();
    told.push(asked);
    stream.close();
    return told;
}
"""


def test_a_hidden_tab_that_rests_between_two_tries_goes_to_sleep(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder).url}/chat/nobody")
    assert chat.page.evaluate(HIDDEN) == [1, 1, 1, 2]
