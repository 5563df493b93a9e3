"""O28 to O30, X16 and X17: what a provider does wrong, whatever the wire format, with a kill between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from amoxi_py.ports.chat_model import ModelRequest, ToolResult
from amoxi_py.testing import Gate, broken, call, fail, raw_call, reply, tries
from wire_world import Case, World, assembled, results_in

KEY = "sk-canary-of-the-model"

# -- O28


def secrets_in_errors(w: World) -> Iterator[None]:
    failing = w.ask("shop", "connect", [call("connect"), "No."])
    refused = w.ask("shop", "wrong key", [fail(401, text=f"Incorrect API key provided: {KEY}. Sent: Bearer {KEY}")])
    w.ended(failing, "No.")
    yield
    yield
    found = w.ended(refused, status="failed")
    assert found["error"]["code"] == "model_key_refused"
    assert [one.content for one in results_in(w.go_on(failing))] == ["The tool failed."]


# -- O29

WORDS = [f"word{number} " for number in range(30)]
GOOD = "".join(WORDS) + "and all of it"
ENDINGS: dict[str, Any] = {
    "cut in the middle of a text": broken(*WORDS),
    "no word that it is whole": broken(*WORDS, ending="unfinished"),
    "an error in the stream": broken(*WORDS, ending="error"),
    "a piece that is no JSON": broken(*WORDS, ending="bad_json"),
    "cut after a call": broken("I pay. ", call("pay", order_id="A-1")),
    "a whole call and no word": broken(call("pay", order_id="A-1"), ending="unfinished"),
    "cut after half a call": broken(raw_call("pay", '{"order_id": "A-')),
    "nothing at all": broken(),
    "whole and empty": reply(),
    "whole and blank": reply("  \n "),
    "a page": broken(ending="html"),
    "an empty body": broken(ending="empty_body"),
}


def broken_reply(ending: str) -> Case:
    """A reply that is not whole is asked for again, and what was shown of it is taken back."""

    def case(w: World) -> Iterator[None]:
        held = Gate()
        good = reply(*WORDS, held, "and all of it")
        run = w.ask("shop", "tell me", [call("ping"), tries(ENDINGS[ending], good)])
        person = w.reader(run)
        assert held.wait_reached(20)
        yield
        held.open()
        yield
        w.ended(run, GOOD)
        told = person.wait_end()
        assert list(assembled(told).values()) == [f"{w.name}: tell me", "", GOOD]
        assert assembled(told) == {one["id"]: one["text"] for one in w.api.messages("shop", run["conversation_id"])}
        assert len(w.ledger("pinged", run)) == 1, "work that was done before is not done again"
        assert w.ledger("paid", run) == []
        w.go_on(run)

    return case


def never_whole(w: World) -> Iterator[None]:
    bad = broken("half a ", "text", ending="content_filter")
    run = w.ask("shop", "tell me", [call("ping"), bad])
    person = w.reader(run)
    found = w.ended(run, status="failed")
    yield
    yield
    assert (found["error"]["code"], found["output"]) == ("model_content_filtered", None)
    told = assembled(person.wait_end())
    assert list(told.values()) == [f"{w.name}: tell me", ""], "no half of a text is left"
    assert told == {one["id"]: one["text"] for one in w.api.messages("shop", run["conversation_id"])}
    w.go_on(run)


# -- O30

BAD_CALLS: dict[str, Any] = {
    "open": raw_call("pay", '{"order_id": "A-1'),
    "open and more": raw_call("pay", '{"order_id": "A-1", "amount": 1'),
    "unknown": raw_call("pya", '{"order_id": "A-1"}'),
    "odd name": raw_call("pay order!", '{"order_id": "A-1"}'),
    "nothing": raw_call("pay", ""),
    "null": raw_call("pay", "null"),
    "list": raw_call("pay", '[{"order_id": "A-1"}]'),
    "empty twice": raw_call("pay", '"{}"'),
    "comma": raw_call("pay", '{"order_id": "A-1",}'),
    "two": raw_call("pay", '{"order_id": "A-1"}{"order_id": "A-2"}'),
    "nan": raw_call("pay", '{"order_id": "A-1", "amount": NaN}'),
    "missing": raw_call("pay", '{"amount": 1}'),
    "extra": raw_call("pay", '{"order_id": "A-1", "when": "now"}'),
    "kind": raw_call("pay", '{"order_id": 5, "amount": "many"}'),
}


def bad_calls(w: World) -> Iterator[None]:
    """Every bad call beside a good one that a kill interrupts; then each alone."""
    good, empty = call("pay", order_id="good"), [raw_call("ping", text) for text in ("", "null", "[]", '"{}"')]
    beside = reply(*BAD_CALLS.values(), good, *empty, call("second"))
    run = w.ask("shop", "beside", [beside, "Done."])
    w.until(lambda: w.ledger("second", run))
    alone = w.ask("shop", "alone", [*BAD_CALLS.values(), "Done."])
    limit = w.ask(
        "shop", "limit", [broken(call("pay", order_id="at the limit"), BAD_CALLS["open"], ending="length"), "Done."]
    )
    w.ended(limit, "Done.")
    yield
    w.folder.open_gate(run["conversation_id"])
    yield
    w.ended(run, "Done.")
    w.ended(alone, "Done.")
    assert [line["order"] for line in w.ledger("paid", run)] == ["good"]
    assert len(w.ledger("pinged", run)) == len(empty)
    assert len({line["call"] for line in w.ledger("second", run)}) == len(w.ledger("once", run)) == 1
    assert w.ledger("paid", alone) == []
    assert [line["order"] for line in w.ledger("paid", limit)] == ["at the limit"]
    for results in (results_in(w.go_on(run)), results_in(w.go_on(alone, "on"))):
        told = dict(zip(BAD_CALLS, results, strict=False))
        assert w.errors(results) in (None, [True] * len(told) + [False] * (len(results) - len(told)))
        for name, result in told.items():
            known = "cancel_order" in result.content if name in ("unknown", "odd name") else None
            assert known or "arguments" in result.content.lower(), (name, result)


def for_ever(w: World) -> Iterator[None]:
    run = w.ask("short", "again and again", [BAD_CALLS["open"]] * 10)
    found = w.ended(run, status="failed")
    yield
    yield
    assert found["error"]["code"] == "max_turns"
    assert len(w.requests("again and again")) == 6
    assert w.ledger("paid", run) == []
    w.go_on(run)


# -- X16


def refused_for_a_while(asked: float) -> Case:
    """A rate limit is waited out as long as the provider asks, across a kill where that is long."""

    def case(w: World) -> Iterator[None]:
        times: list[float] = []

        def play(request: ModelRequest) -> Any:
            if not isinstance(request.messages[-1], ToolResult):
                return call("ping")
            times.append(time.monotonic())
            return "Done." if len(times) > 1 else fail(429, retry_after=asked)

        run = w.ask("shop", "wait", play)
        w.until(lambda: times)
        if asked > 2:
            assert [one["kind"] for one in w.waiting(run)] == ["model"]
        else:
            w.ended(run)  # a wait that is so short is not stored
        yield
        yield
        w.ended(run, "Done.")
        assert times[1] - times[0] >= asked
        assert len(times) <= 3, "once more where the kill cut the answer"
        assert len(w.ledger("pinged", run)) == 1, "work that was done before is not done again"

    return case


def refused_for_minutes(w: World) -> Iterator[None]:
    run = w.ask("shop", "wait", [call("ping"), fail(429, retry_after=180)])
    assert [one["kind"] for one in w.waiting(run)] == ["model"]
    short = w.ask("shop", "wait a little", [fail(429, retry_after=1.9)])
    w.until(lambda: w.requests("wait a little"))
    assert w.api.cancel(short["id"])["status"] == "cancelled"
    asked = len(w.requests("wait a little"))
    w.go_on(short)
    yield
    yield
    w.go_on(short, "on")
    assert [one["kind"] for one in w.waiting(run)] == ["model"], "it is not given up"
    begun = time.monotonic()
    assert w.api.cancel(run["id"])["status"] == "cancelled"
    assert time.monotonic() - begun < 1 + 29, "a second, and the rest for a busy machine"
    assert len(w.requests("wait")) == 2
    assert len(w.requests("wait a little")) == asked
    w.go_on(run, "and on")


# -- X17


def joined_at_any_time(w: World) -> Iterator[None]:
    shown, held = Gate(), Gate()
    run = w.ask("shop", "tell me", [tries(broken(*WORDS, shown), reply(*WORDS, held, "and all of it"))])
    readers = [w.reader(run)]
    readers[0].wait_for("message.delta")
    readers.append(w.reader(run))
    shown.open()
    readers[0].wait_for("message.discarded")
    readers.append(w.reader(run))
    assert held.wait_reached(20)
    w.until(lambda: readers[0].types()[-1] == "message.delta", 20, "the second try shows words")
    readers.append(w.reader(run))
    yield
    readers.append(w.reader(run))
    held.open()
    yield
    readers.append(w.reader(run))
    w.ended(run, GOOD)
    readers.append(w.reader(run))
    for reader in readers:
        assert list(assembled(reader.wait_end()).values()) == [f"{w.name}: tell me", GOOD]


CASES: dict[str, Case] = {
    "O28": secrets_in_errors,
    **{f"O29 {ending}": broken_reply(ending) for ending in ENDINGS},
    "O29 never": never_whole,
    "O30": bad_calls,
    "O30 for ever": for_ever,
    "X16 1 s": refused_for_a_while(1.0),
    "X16 3 s": refused_for_a_while(3.0),
    "X16 minutes": refused_for_minutes,
    "X17": joined_at_any_time,
}
