"""O29, O30, X16, X17: cut and empty replies, bad calls, refusals of the provider, as a real HTTP server gives them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from amoxi_py.ports.chat_model import AssistantMessage, ModelRequest, ToolResult, UserMessage
from amoxi_py.testing import StrictModelServer, broken, call, fail, pause, raw_call, reply, tries
from processes import free_port

SHOP = '''
from amoxi_py import ToolContext, agent, tool
from .ledger import note


@tool
async def pay(order_id: str, ctx: ToolContext, amount: int = 1) -> str:
    """Pay an order."""
    note("paid", ctx, order=order_id, amount=amount)
    return f"paid {order_id}"


@tool
async def ping(ctx: ToolContext) -> str:
    """Answer."""
    note("pinged", ctx)
    return "pong"


@tool
async def search(ctx: ToolContext, text: str = "all") -> str:
    """Search."""
    note("searched", ctx, text=text)
    return "found"


@agent(tools=[pay, ping, search])
class Shop:
    """You keep a shop."""


@agent(tools=[ping], max_turns=6)
class Short:
    """You are short."""
'''
WORDS = [f"word{number} " for number in range(30)]
SLOWLY = [part for word in WORDS for part in (word, pause(0.01))]
GOOD = "".join(WORDS) + "and all of it"
ENDINGS: dict[str, Any] = {
    "cut in the middle of a text": broken(*SLOWLY),
    "no word that it is whole": broken(*SLOWLY, ending="unfinished"),
    "an error in the stream": broken(*SLOWLY, ending="error"),
    "cut after a call": broken("I pay. ", pause(0.1), call("pay", order_id="A-1")),
    "cut after a whole call and no word": broken(call("pay", order_id="A-1"), ending="unfinished"),
    "cut after half a call": broken(raw_call("pay", '{"order_id": "A-')),
    "nothing at all": broken(),
    "no word and no text": broken(ending="unfinished"),
    "whole and empty": reply(),
    "whole and blank": reply("  \n "),
    "status 500": fail(500),
    "status 503": fail(503),
    "status 529": fail(529),
    "status 408": fail(408),
    "status 429": fail(429, reason="rate_limit_exceeded"),
}


def assembled(events: list[Any]) -> dict[str, str]:
    """The messages that a client has on its screen: deltas put together, discarded ones taken away."""
    shown: dict[str, str] = {}
    for event in events:
        if event.type == "message.delta":
            shown[event.data["message_id"]] = shown.get(event.data["message_id"], "") + event.data["text"]
        elif event.type == "message.discarded":
            shown.pop(event.data["message_id"], None)
        elif event.type == "message.completed":
            shown[event.data["message"]["id"]] = event.data["message"]["text"]
    return shown


def test_a_reply_that_is_cut_or_empty_is_asked_for_again_and_shown_once(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    model = strict_model({name: [tries(bad, reply(*SLOWLY, "and all of it"))] for name, bad in ENDINGS.items()})
    folder = field_app(SHOP)
    server = start(folder, env=model_env(model))
    api = client(server)
    runs = {name: api.submit("shop", name) for name in ENDINGS}
    early = {name: reader(server, run) for name, run in runs.items()}
    for name, run in runs.items():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["output"]) == ("completed", GOOD), (name, ended["error"])
        told = early[name].wait_end()
        one_story(told)
        late = api.events(run["id"])
        one_story(late)
        messages = {message["id"]: message["text"] for message in api.messages("shop", run["conversation_id"])}
        assert assembled(told) == assembled(late) == messages, name
        assert list(messages.values()) == [name, GOOD]
        shown_before = name.startswith(("cut in", "no word that", "an error", "cut after a call"))
        if name != "whole and blank":  # its blanks are shown when its end comes in a later packet
            assert ("message.discarded" in [event.type for event in told]) is shown_before, name
    assert folder.ledger() == [], "a call whose stream was cut is not executed"
    assert Counter(request.messages[-1].text for request in model.requests) == dict.fromkeys(ENDINGS, 2)  # type: ignore[union-attr]


def test_a_whole_reply_without_the_marker_that_comes_last_is_whole(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    model = strict_model(
        {
            "no marker": [broken(call("ping"), ending="no_done"), broken("Done.", ending="no_done")],
            "cut before the marker": [broken(call("ping"), ending="late_cut"), broken("Done.", ending="late_cut")],
        }
    )
    folder = field_app(SHOP)
    api = client(start(folder, env=model_env(model)))
    for name in ("no marker", "cut before the marker"):
        run = api.submit("shop", name, wait=10)
        assert (run["status"], run["output"]) == ("completed", "Done."), name
    assert len(model.requests) == 4
    assert len(folder.ledger("pinged")) == 2


def test_readers_who_join_before_during_and_after_a_broken_stream_end_with_the_text_once(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, until: Any, one_story: Any
) -> None:
    model = strict_model([tries(broken(*SLOWLY, pause(0.5)), reply(*SLOWLY, pause(0.5), "and all of it"))])
    server = start(field_app(SHOP), env=model_env(model))
    api = client(server)
    run = api.submit("shop", "hello")
    readers = [reader(server, run)]
    readers[0].wait_for("message.delta")
    readers.append(reader(server, run))
    readers[0].wait_for("message.discarded")
    readers.append(reader(server, run))
    until(lambda: readers[0].types()[-1] == "message.delta", 20, "the second try shows words")
    readers.append(reader(server, run))
    api.until_status(run["id"], "completed")
    readers.append(reader(server, run))
    for one in readers:
        told = one.wait_end()
        one_story(told)
        assert list(assembled(told).values()) == ["hello", GOOD]


def test_a_model_that_never_gets_better_ends_the_run_with_a_reason_and_the_conversation_goes_on(
    field_app: Any, start: Any, client: Any, reader: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    reasons = {
        "cut": (broken("half a ", pause(0.1), "text"), "model_stream_cut", 5),
        "empty": (reply(), "model_empty_reply", 5),
        "filtered": (broken("half a ", pause(0.1), "text", ending="content_filter"), "model_content_filtered", 1),
        "400": (fail(400), "model_refused", 1),
        "401": (fail(401), "model_key_refused", 1),
        "404": (fail(404), "model_unknown", 1),
        "too long": (fail(400, reason="context_length_exceeded"), "model_context_too_long", 1),
        "no money": (fail(429, reason="insufficient_quota"), "model_quota_exhausted", 1),
        "500": (fail(500), "model_unavailable", 5),
    }
    script: dict[str, Any] = {name: [call("ping"), bad] for name, (bad, _, _) in reasons.items()}
    model = strict_model({**script, "again": ["Hello."]})
    folder = field_app(SHOP)
    server = start(folder, env={**model_env(model), "AI_MODELS_MAX_WAIT_S": "5"})
    api = client(server)
    runs = {name: api.submit("shop", name) for name in reasons}
    followers = {name: reader(server, run) for name, run in runs.items()}
    for name, (_, code, asked) in reasons.items():
        ended = api.until_status(runs[name]["id"], timeout=40)
        assert (ended["status"], ended["error"]["code"], ended["output"]) == ("failed", code, None), name
        assert "sk-of-the-test" not in str(ended)
        told = followers[name].wait_end()
        one_story(told, "run.failed")
        messages = api.messages("shop", runs[name]["conversation_id"])
        assert assembled(told) == {message["id"]: message["text"] for message in messages}
        assert [message["text"] for message in messages] == [name, ""], "no half of a text is left"
        tried = [
            request
            for request in model.requests
            if isinstance(request.messages[-1], ToolResult) and request.messages[0].text == name  # type: ignore[union-attr]
        ]
        assert len(tried) == asked, name
        again = api.submit("shop", "again", conversation_id=runs[name]["conversation_id"], wait=10)
        assert (again["status"], again["output"]) == ("completed", "Hello."), name
    assert len(folder.ledger("pinged")) == len(reasons)


# -- X16: refusals that pass


def after_a_ping(request: ModelRequest) -> bool:
    return isinstance(request.messages[-1], ToolResult)


def test_a_rate_limit_is_waited_out_as_long_as_the_provider_asks(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    asked = {"one": 1.0, "none": None, "zero": 0.0, "negative": -5.0, "long": 2.6}
    times: dict[str, list[float]] = {name: [] for name in asked}
    lock = threading.Lock()

    def play(request: ModelRequest) -> Any:
        name = request.messages[0].text  # type: ignore[union-attr]
        if not after_a_ping(request):
            return call("ping")
        with lock:
            times[name].append(time.monotonic())
            return fail(429, retry_after=asked[name]) if len(times[name]) <= 2 else "Done."

    folder = field_app(SHOP)
    api = client(start(folder, env=model_env(strict_model(play))))
    runs = {name: api.submit("shop", name) for name in asked}
    waiting = api.until_status(runs["long"]["id"], "waiting")
    assert [item["kind"] for item in waiting["waiting_for"]] == ["model"]
    for name, run in runs.items():
        assert api.until_status(run["id"])["attempt"] == 1
        assert api.run(run["id"])["output"] == "Done."
        pauses = [later - earlier for earlier, later in pairwise(times[name])]
        least = [max(asked[name] or 0.0, own) for own in (0.5, 1.0)]
        assert all(took >= low for took, low in zip(pauses, least, strict=True)), (name, pauses)
        # a quarter of chance on top, the poll for due runs, and 20 s for a busy machine
        assert all(took < low * 1.25 + 0.5 + 20.0 for took, low in zip(pauses, least, strict=True)), (name, pauses)
    assert len(folder.ledger("pinged")) == len(asked), "work that was done before is not done again"


@pytest.mark.crash
def test_the_count_of_failed_tries_outlives_a_kill_and_the_limit_still_holds(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, until: Any
) -> None:
    refusals: Counter[str] = Counter()

    def play(request: ModelRequest) -> Any:
        name = request.messages[0].text  # type: ignore[union-attr]
        if not after_a_ping(request):
            return call("ping")
        refusals[name] += 1
        return fail(503, retry_after=2.1) if name == "waits" else fail(503)

    folder = field_app(SHOP)
    env = {**model_env(strict_model(play)), "AI_MODELS_MAX_WAIT_S": "5"}
    server = start(folder, env=env)
    api = client(server)
    runs = [api.submit("shop", name) for name in ("waits", "in place")]
    until(lambda: refusals["waits"] >= 2 and refusals["in place"] >= 2)
    server.kill9()
    seen = dict(refusals)
    api = client(start(folder, env=env))
    for run in runs:
        ended = api.until_status(run["id"], timeout=40)
        assert (ended["status"], ended["error"]["code"]) == ("failed", "model_unavailable")
    # a try whose failure was not stored yet when the process died does not count; all others do
    assert all(5 <= refusals[name] <= 6 for name in seen), (seen, refusals)
    assert len(folder.ledger("pinged")) == 2


def test_a_run_that_waits_for_the_provider_is_cancelled_at_once_and_asks_no_more(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    script = {"long": [fail(429, retry_after=600)], "short": [fail(429, retry_after=1.5)], "hello": ["Hello."]}
    model = strict_model(script)
    api = client(start(field_app(SHOP), env=model_env(model)))
    long, short = api.submit("shop", "long"), api.submit("shop", "short")
    api.until_status(long["id"], "waiting")
    for run in (short, long):
        before = time.monotonic()
        assert api.cancel(run["id"])["status"] == "cancelled"
        assert time.monotonic() - before < 60
    said = api.submit("shop", "hello", conversation_id=long["conversation_id"], wait=10)
    assert said["output"] == "Hello."
    later = api.submit("shop", "short", wait=3, conversation_id=said["conversation_id"])
    assert later["status"] in ("running", "waiting")
    asked = Counter(request.messages[-1].text for request in model.requests)  # type: ignore[union-attr]
    assert asked["long"] == 1
    assert asked["short"] <= 1 + 3, "one of the first run; the rest of the second, which goes on"
    api.cancel(later["id"])


def test_a_provider_that_is_away_for_a_moment_is_asked_again(
    field_app: Any, start: Any, client: Any, model_env: Any, until: Any
) -> None:
    model = StrictModelServer(["Hello."], port=free_port())
    server = start(field_app(SHOP), env=model_env(model))
    api = client(server)
    run = api.submit("shop", "hi")
    until(lambda: "model request 2 failed" in server.log())
    with model:
        ended = api.until_status(run["id"])
    assert (ended["status"], ended["output"]) == ("completed", "Hello.")
    assert model.refused == []


# -- O30: bad calls

BAD_CALLS: dict[str, Any] = {
    "open": raw_call("pay", '{"order_id": "A-1'),
    "open and more": raw_call("pay", '{"order_id": "A-1", "amount": 1'),
    "unknown": raw_call("pya", '{"order_id": "A-1"}'),
    "no name": raw_call("", '{"order_id": "A-1"}'),
    "odd name": raw_call("pay order!", '{"order_id": "A-1"}'),
    "long name": raw_call("p" * 300, '{"order_id": "A-1"}'),
    "nothing": raw_call("pay", ""),
    "null": raw_call("pay", "null"),
    "list": raw_call("pay", "[]"),
    "full list": raw_call("pay", '[{"order_id": "A-1"}]'),
    "text": raw_call("pay", '"A-1"'),
    "empty twice": raw_call("pay", '"{}"'),
    "number": raw_call("pay", "5"),
    "comma": raw_call("pay", '{"order_id": "A-1",}'),
    "two": raw_call("pay", '{"order_id": "A-1"}{"order_id": "A-2"}'),
    "tail": raw_call("pay", '{"order_id": "A-1"} and pay'),
    "quotes": raw_call("pay", "{'order_id': 'A-1'}"),
    "nan": raw_call("pay", '{"order_id": "A-1", "amount": NaN}'),
    "missing": raw_call("pay", '{"amount": 1}'),
    "extra": raw_call("pay", '{"order_id": "A-1", "when": "now"}'),
    "kind": raw_call("pay", '{"order_id": 5, "amount": "many"}'),
    "fence": raw_call("pay", '```json\n{"order_id": "A-1"}\n```'),
    "deep": raw_call("pay", '{"order_id": ' + "[" * 3000 + "]" * 3000 + "}"),
}


def test_a_bad_call_never_runs_and_its_good_sibling_runs_once_and_the_model_is_told_what_was_wrong(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any, one_story: Any
) -> None:
    script: dict[str, Any] = {}
    for name, bad in BAD_CALLS.items():
        script[f"{name}: alone"] = [reply(bad), "Done."]
        script[f"{name}: before"] = [reply(bad, call("pay", order_id=f"{name}: before")), "Done."]
        script[f"{name}: after"] = [reply(call("pay", order_id=f"{name}: after"), bad), "Done."]
    # cut by the token limit: the last call may not be whole, whatever it looks like
    script["limit: alone"] = [broken(BAD_CALLS["open"], ending="length"), "Done."]
    script["limit: looks whole"] = [broken(call("pay", order_id="A-1"), ending="length"), "Done."]
    script["limit: after"] = [
        broken(call("pay", order_id="limit: after"), raw_call("pay", '{"order_id": "A-1'), ending="length"),
        "Done.",
    ]
    model = strict_model({**script, "again": ["Hello."]})
    folder = field_app(SHOP)
    api = client(start(folder, env=model_env(model)))
    runs = {name: api.submit("shop", name) for name in script}
    for name, run in runs.items():
        ended = api.until_status(run["id"])
        assert (ended["status"], ended["output"]) == ("completed", "Done."), (name, ended["error"])
        events = api.events(run["id"])
        one_story(events)
        results = [event.data for event in events if event.type == "tool.completed"]
        wrong = [result["result"] for result in results if result["is_error"]]
        assert len(wrong) == 1, (name, results)
        kind = name.partition(":")[0]
        if kind in ("unknown", "no name", "odd name", "long name"):
            assert "pay, ping, search" in wrong[0], "the names that exist"
        else:
            assert "arguments" in wrong[0].lower(), wrong
        assert len(wrong[0]) < 1000
    good = {name for name in script if name.endswith((": before", ": after"))}
    assert Counter(line["order"] for line in folder.ledger("paid")) == dict.fromkeys(good, 1)
    for name in ("open: alone", "two: after", "deep: before", "no name: alone"):
        again = api.submit("shop", "again", conversation_id=runs[name]["conversation_id"], wait=10)
        assert again["output"] == "Hello."


def test_calls_without_arguments_and_arguments_encoded_twice_run_once_each(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    empty = ["", " ", "null", "[]", "{}", '"{}"', "{ }\n"]
    calls = [
        *(raw_call("ping", text) for text in empty),
        *(raw_call("search", text) for text in empty),
        raw_call("pay", '"{\\"order_id\\": \\"A-1\\"}"'),
        # ids that a careless server gives: the same, none, very long; only ours are stored and sent
        raw_call("pay", '{"order_id": "A-2"}', id="same"),
        raw_call("pay", '{"order_id": "A-3"}', id="same"),
        raw_call("pay", '{"order_id": "A-4"}', id="x" * 500),
    ]
    model = strict_model([reply(*calls), "Done."])
    folder = field_app(SHOP)
    run = client(start(folder, env=model_env(model))).submit("shop", "go", wait=10)
    assert (run["status"], run["output"]) == ("completed", "Done."), run["error"]
    assert len(folder.ledger("pinged")) == len(folder.ledger("searched")) == len(empty)
    assert sorted(line["order"] for line in folder.ledger("paid")) == ["A-1", "A-2", "A-3", "A-4"]
    answered = [message for message in model.requests[-1].messages if isinstance(message, ToolResult)]
    assert len({message.call_id for message in answered}) == len(calls)


def test_a_model_that_repeats_its_mistake_for_ever_ends_the_run_at_the_turn_limit(
    field_app: Any, start: Any, client: Any, strict_model: Any, model_env: Any
) -> None:
    def play(request: ModelRequest) -> Any:
        last = next(message for message in reversed(request.messages) if isinstance(message, UserMessage))
        return {"bad": raw_call("pay", '{"order_id": "A-1'), "unknown": call("no_tool"), "loop": call("ping")}.get(
            last.text, "Hello."
        )

    model = strict_model(play)
    folder = field_app(SHOP)
    api = client(start(folder, env=model_env(model)))
    for agent, most in (("shop", 20), ("short", 6)):
        for kind in ("bad", "unknown", "loop"):
            before = len(model.requests)
            run = api.submit(agent, kind, wait=20)
            assert (run["status"], run["error"]["code"]) == ("failed", "max_turns"), (agent, kind, run)
            assert len(model.requests) - before == most
            again = api.submit(agent, "hello", conversation_id=run["conversation_id"], wait=10)
            assert again["output"] == "Hello."
    assert folder.ledger("paid") == []
    assert sum(isinstance(message, AssistantMessage) for message in model.requests[-1].messages) == 6
