"""The chat page and its log: killed servers, broken lines, joins at any moment, and conversations that are long."""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from amoxi_py.testing import pause, reply

pytestmark = pytest.mark.xdist_group("browser")  # one browser at a time on a small machine

AGENT = "/agents/support-agent"
WORDS = [f"word-{number} " for number in range(300)]
STORY = "🎒 " + "".join(WORDS)


def slowly(words: list[str], seconds: float) -> list[Any]:
    return [part for word in words for part in (word, pause(seconds))]


def watch_answer(chat: Any, samples: list[str], until: Any) -> None:
    """Keep what of the answer is shown, again and again."""

    def look() -> Any:
        samples.extend(chat.answers.all_text_contents()[-1:])
        return until()

    chat.until(look, 40)


def test_a_server_that_is_killed_in_mid_answer_and_started_again_is_followed_without_help(
    shop_model: Any, open_page: Any
) -> None:
    script = {"hello": ["Hello."], "tell": [reply("🎒 ", *slowly(WORDS, 0.02))]}
    server = shop_model(script)
    chat = open_page(f"{server.url}/support-agent")
    chat.say("hello")
    expect(chat.answers).to_have_text("Hello.")
    chat.say("tell")
    samples: list[str] = []
    watch_answer(chat, samples, lambda: chat.answers.count() == 2 and "word-40 " in samples[-1])
    chat.page.reload()
    watch_answer(chat, samples, lambda: chat.answers.count() == 2 and "word-80 " in samples[-1])
    server.kill9()
    expect(chat.status).to_have_text("Connection lost, trying again…")
    chat.shot("lost")
    shop_model(port=server.port)
    watch_answer(chat, samples, lambda: chat.status.inner_text() == "" and "word-299" in samples[-1])
    chat.shot("story")
    assert [text.strip() for text in chat.answers.all_text_contents()] == ["Hello.", STORY.strip()]
    told = [sample.strip() for sample in samples if not sample.startswith("Hello.")]
    assert len({*told}) > 10
    assert [sample for sample in told if not STORY.startswith(sample)] == [], "always a beginning of the answer"
    assert chat.unexpected() == []


def test_a_proxy_without_a_server_behind_it_loses_no_conversation(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder).url}/support-agent")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_have_count(1)
    conversation = chat.kept()
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        status = 404 if len(refused) % 2 else 502  # a proxy's own 404 tells nothing of the conversation
        route.fulfill(status=status, body="<html>no server</html>", content_type="text/html")

    chat.page.route(f"**{AGENT}/conversations/**", refuse)
    chat.page.reload()
    expect(chat.status).to_have_text("Connection lost, trying again…")
    chat.until(lambda: len(refused) >= 3)
    chat.page.unroute_all()
    expect(chat.answers).to_have_count(1)
    expect(chat.status).to_have_text("")
    assert chat.kept() == conversation


def test_a_line_that_breaks_again_and_again_shows_each_word_once_and_asks_for_no_word_twice(
    shop_model: Any, open_page: Any, line_to: Any
) -> None:
    line = line_to(shop_model({"tell": [reply("🎒 ", *slowly(WORDS[:200], 0.02))]}).port)
    chat = open_page(f"{line.url}/support-agent")
    asked: list[int] = []
    chat.page.on(
        "request", lambda it: asked.append(int(it.url.partition("after=")[2])) if "/events?" in it.url else None
    )
    chat.say("tell")
    samples: list[str] = []
    for number in (10, 40, 80, 120):
        watch_answer(chat, samples, lambda number=number: f"word-{number} " in samples[-1] if samples else False)
        before = len(asked)
        line.cut()
        watch_answer(chat, samples, lambda before=before: len(asked) > before)
    watch_answer(chat, samples, lambda: "word-199" in samples[-1])
    expect(chat.status).to_have_text("")
    whole = "🎒 " + "".join(WORDS[:200])
    assert [text.strip() for text in chat.answers.all_text_contents()] == [whole.strip()]
    assert [sample for sample in samples if not whole.startswith(sample.strip())] == []
    assert len(asked) >= 5
    assert asked == sorted(asked)
    assert len(set(asked)) >= 4, "each connection goes on after the last event of the one before"
    assert chat.unexpected() == []


def test_a_conversation_that_was_erased_is_left_for_a_new_one(serve: Any, folder: Path, open_page: Any) -> None:
    server = serve(folder)
    chat = open_page(f"{server.url}/support-agent")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_have_count(1)
    assert chat.page.request.delete(f"{server.url}{AGENT}/conversations/{chat.kept()}").ok
    chat.page.reload()
    expect(chat.problem).to_contain_text("not there any more")
    chat.say("Where is order A-1002?")
    expect(chat.answers).to_contain_text("not shipped yet")
    expect(chat.problem).to_have_count(0)


def test_a_message_that_could_not_be_sent_stays_in_the_box_and_is_taken_once(
    serve: Any, folder: Path, open_page: Any
) -> None:
    server = serve(folder)
    chat = open_page(f"{server.url}/support-agent")

    def lose_the_answer(route: Route) -> None:
        route.fetch()
        route.abort()

    chat.page.route(f"**{AGENT}/runs", lose_the_answer)
    chat.say("Where is order A-1001?")
    expect(chat.problem).to_contain_text("The message was not sent: the server cannot be reached")
    expect(chat.page.get_by_label("Message")).to_have_value("Where is order A-1001?")
    chat.shot("not-sent")
    chat.page.unroute_all()
    chat.button("Send").click()
    expect(chat.answers).to_contain_text("Trail backpack")
    expect(chat.problem).to_have_count(0)
    expect(chat.page.get_by_label("Message")).to_have_value("")
    assert len(chat.page.request.get(f"{server.url}/runs").json()["items"]) == 1


def test_a_message_that_is_refused_says_why_and_stays_in_the_box(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(f"{serve(folder, env={'AI_RUNS_ON_BUSY': 'reject'}).url}/support-agent")
    chat.say("Refund order A-1001")
    expect(chat.calls).to_contain_text("sending the receipt...")
    chat.say("Where is order A-1001?")
    expect(chat.problem).to_contain_text("The message was not sent: the conversation")
    expect(chat.page.get_by_label("Message")).to_have_value("Where is order A-1001?")
    expect(chat.calls).to_contain_text("Done")


def test_a_message_over_a_limit_says_why_and_goes_when_there_is_room(serve: Any, folder: Path, open_page: Any) -> None:
    chat = open_page(
        f"{serve(folder, env={'AI_LIMITS_RUNS_AT_ONCE': '1', 'AI_RUNS_ON_BUSY': 'queue'}).url}/support-agent"
    )
    chat.say("Refund order A-1001")
    expect(chat.calls).to_contain_text("sending the receipt...")
    chat.say("Where is order A-1001?")
    expect(chat.problem).to_contain_text("The message was not sent: you have as many runs queued or running as you may")
    expect(chat.page.get_by_label("Message")).to_have_value("Where is order A-1001?")
    expect(chat.calls).to_contain_text("Done")
    chat.button("Send").click()
    expect(chat.answers.last).to_contain_text("Trail backpack")
    expect(chat.page.get_by_label("Message")).to_have_value("")


JOIN = """
async ({ conversation, delays }) => {
    const { AmoxiClient, reduce } = await import("/chat/client.js");
    const client = new AmoxiClient({ agent: "support-agent" });
    const tell = (state) => state.runs.map((run) => [run.id, run.status, run.messages.map(
        ({ id, role, text, status }) => [id, role, text, status])]);
    async function join(delay) {
        await new Promise((resolve) => setTimeout(resolve, delay));
        let { state } = await client.open(conversation);
        let gap = false;
        await new Promise((resolve) => {
            const last = state.runs.at(-1);
            const told = last.status === "completed" && last.messages.length === 2; // else the stream tells its end
            if (told && state.runs.length === delays.runs) return resolve();
            const stream = client.follow(conversation, (event) => {
                state = reduce(state, event);
                gap ||= state.gap || reduce(state, event) !== state;
                if (event.type === "run.completed") { stream.close(); resolve(); }
            }, { after: state.lastEventId });
        });
        return { gap, told: tell(state) };
    }
    const screens = await Promise.all(delays.each.map(join));
    return { screens, final: tell((await client.open(conversation)).state) };
}
"""


def test_history_and_stream_join_without_gap_or_double_at_fifty_random_moments(shop_model: Any, open_page: Any) -> None:
    server = shop_model(lambda request: reply(*slowly(WORDS[:60], 0.015)))
    chat = open_page(f"{server.url}/assistant")  # a page that follows nothing leaves its lines to the readers
    chance = random.Random(50)

    def post(body: dict[str, Any]) -> Any:
        answer = chat.page.request.post(f"{server.url}{AGENT}/runs", data=body)
        assert answer.ok, answer.text()
        return answer.json()

    conversation = post({"message": "tell"})["conversation_id"]
    path = f"{server.url}{AGENT}/conversations/{conversation}"
    chat.until(lambda: len(chat.page.request.get(path).json()["items"]) == 2)
    joined = 0
    for turn in range(2, 15):
        post({"message": "tell", "conversation_id": conversation})
        delays = {"runs": turn, "each": [chance.uniform(0, 1000) for _ in range(4)]}
        result = chat.page.evaluate(JOIN, {"conversation": conversation, "delays": delays})
        assert len(result["final"]) == turn
        for screen in result["screens"]:
            assert not screen["gap"]
            assert screen["told"] == result["final"]
            joined += 1
    assert joined >= 50
    assert chat.complaints == []


def make_old(folder: Path) -> None:
    """Put 5,000 messages and 200,000 pieces before those that are there, straight into the store."""
    with sqlite3.connect(folder / "data" / "ai" / "amoxi.db") as store:
        ((conversation, last),) = store.execute("SELECT key, last_seq FROM conversation").fetchall()
        columns = [row[1] for row in store.execute("PRAGMA table_info(run)") if row[1] not in ("key", "id")]
        names = ", ".join(columns)
        (model,) = store.execute(f"SELECT key FROM run WHERE conversation = {conversation}").fetchone()
        now = int(time.time() * 1000)
        for number in range(2500):
            key = store.execute(
                f"INSERT INTO run (id, {names}) SELECT 'run_old{number:05}', {names} FROM run WHERE key = ?", (model,)
            ).lastrowid
            first = last + 1
            events = [
                (conversation, last := last + 1, key, kind, turn, None) for kind, turn in ((1, None), (5, 0), (2, None))
            ]
            for piece in range(80):
                data = f'{{"message_id":"msg_old{number:05}b","offset":{piece * 5},"text":"piece"}}'
                events.append((conversation, last := last + 1, key, 4, None, data))
            events += [(conversation, last := last + 1, key, kind, turn, None) for kind, turn in ((5, 1), (13, None))]
            store.executemany(
                "INSERT INTO event (conversation, seq, run, type, turn, data) VALUES (?, ?, ?, ?, ?, ?)", events
            )
            store.executemany(
                "INSERT INTO message (run, turn, id, created_at, text) VALUES (?, ?, ?, ?, ?)",
                [(key, turn, f"msg_old{number:05}{'ab'[turn]}", now, f"old {'ab'[turn]} {number}") for turn in (0, 1)],
            )
            store.execute("UPDATE run SET first_seq = ?, ended_seq = ? WHERE key = ?", (first, last, key))
        store.execute("UPDATE conversation SET last_seq = ?", (last,))


def test_a_conversation_of_5000_messages_opens_fast_and_replays_nothing(
    serve: Any, folder: Path, open_page: Any
) -> None:
    server = serve(folder)
    chat = open_page(f"{server.url}/support-agent")
    chat.say("Where is order A-1001?")
    expect(chat.answers).to_have_count(1)
    conversation = chat.kept()
    server.stop()
    make_old(folder)
    serve(folder, port=server.port)
    asked: list[str] = []
    chat.page.on("request", lambda request: asked.append(request.url))
    chat.page.reload()
    expect(chat.page.locator(".message")).to_have_count(50)
    expect(chat.answers.last).to_have_text("old b 2499")
    first = chat.page.evaluate(
        f"performance.getEntriesByType('resource').find((it) => it.name.includes('{conversation}?')).duration"
    )
    assert first < 500
    last = chat.page.request.get(f"{server.url}{AGENT}/conversations/{conversation}").json()["last_event_id"]
    assert last > 200_000
    chat.until(lambda: [url for url in asked if "/events" in url])
    assert [url.partition("after=")[2] for url in asked if "/events" in url] == [str(last)]
    log = chat.page.get_by_role("log")
    log.evaluate("(it) => { it.scrollTop = 0; }")
    before = chat.page.locator('[data-message="msg_old02475a"]')
    expect(before).to_be_in_viewport()
    chat.button("Show older messages").click()
    expect(chat.page.locator(".message")).to_have_count(100)
    expect(chat.page.locator(".message").first).to_have_text("old a 2450")
    expect(before).to_be_in_viewport()
    chat.shot("older")
    chat.say("Where is order A-1002?")
    expect(chat.answers.last).to_contain_text("Camping stove")
    assert chat.unexpected() == []
