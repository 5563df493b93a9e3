"""`@redact` in the middle of things: streamed text, values of steps, and functions that fail."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoxi_py import ToolContext, agent, redact, singleton, tool
from amoxi_py.declare.declarations import build_declarations
from amoxi_py.declare.injection import OpenInstances
from amoxi_py.engine.redaction import HIDDEN, HeldText, Redaction
from amoxi_py.errors import DeclarationError
from amoxi_py.testing import ScriptedModel, call, pause, run_agent
from whole import some_of


@redact(longest=20)
def hide_cards(text: str) -> str:
    return re.sub(r"\d(?: ?\d){5,9}", "***", text)


@redact
def hide_names(text: str) -> str:
    return text.replace("Ann", "[name]")


def redaction_of(*things: Any) -> Redaction:
    return Redaction(build_declarations(things).catalog.hooks, OpenInstances({}))


@settings(max_examples=some_of(100), deadline=None)
@given(st.lists(st.text(alphabet="a 123456", max_size=9), max_size=15))
def test_streamed_pieces_are_the_beginning_of_the_text_without_what_is_hidden(pieces: list[str]) -> None:
    redaction = redaction_of(hide_cards)
    held = HeldText(redaction)
    told = "".join(held.more(piece) for piece in pieces)
    assert redaction.text("".join(pieces)).startswith(told)


@settings(max_examples=some_of(60), deadline=None)
@given(st.lists(st.text(alphabet="a 123456\n", max_size=9), min_size=20, max_size=60))
def test_of_a_long_streamed_text_the_same_holds_when_only_its_end_is_looked_at(pieces: list[str]) -> None:
    redaction = redaction_of(hide_cards)
    held = HeldText(redaction)
    start = "some words before it " * 40
    told = "".join(held.more(piece) for piece in [start, *pieces])
    assert redaction.text(start + "".join(pieces)).startswith(told)
    assert len(told) >= len(start) - 20


def test_what_a_long_streamed_text_costs_grows_no_faster_than_the_text() -> None:
    letters: list[int] = []

    @redact(longest=20)
    def count(text: str) -> str:
        letters.append(len(text))
        return text

    def cost(pieces: int) -> int:
        letters.clear()
        held = HeldText(redaction_of(count))
        told = "".join(held.more("some words more ") for _ in range(pieces))
        assert len(told) >= 16 * pieces - 40
        return sum(letters)

    assert cost(800) < 3 * cost(400)


def test_text_streams_so_far_behind_that_no_piece_of_what_is_hidden_is_told() -> None:
    text = "Your card 4111 1111 11 is charged, and that is all of it for today."
    slow = [[part for letter in text for part in (letter, pause(0.003))]]

    @agent
    class Teller:
        """You tell."""

    found = run_agent(Teller, "Tell", model=ScriptedModel(slow), hooks=[hide_cards])
    deltas = [event.data["text"] for event in found.events if event.type == "message.delta"]
    assert found.output == "Your card *** is charged, and that is all of it for today."
    assert all("4" not in delta and "1" not in delta for delta in deltas)
    whole = run_agent(Teller, "Tell", model=ScriptedModel(slow), hooks=[hide_cards, hide_names])
    assert "message.delta" not in [event.type for event in whole.events]  # nobody knows how long a name is


def test_a_step_gives_what_is_stored_of_its_value_and_what_is_no_text_stays() -> None:
    given: list[Any] = []

    @tool(idempotent=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        given.append(await ctx.step("pay", lambda: ("Ann", {"Ann": [b"Ann", date(2026, 1, 2)]}, 123456)))
        return f"paid by {given[0][0]} with 123456"

    @agent(tools=[pay])
    class Shop:
        """You sell to Ann."""

    found = run_agent(Shop, "I am Ann", model=ScriptedModel([call("pay"), "Bye Ann"]), hooks=[hide_names])
    assert given == [("[name]", {"[name]": [b"Ann", date(2026, 1, 2)]}, 123456)]
    assert [message.text for message in found.messages] == ["I am [name]", "", "Bye [name]"]
    assert found.call("pay").result == "paid by [name] with 123456"
    assert found.requests[0].instructions == "You sell to Ann."  # what the app itself says of its agent is no secret


def test_a_function_that_fails_hides_the_whole_text_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    @redact
    def picky(text: str) -> Any:
        if "Ann" in text:
            raise ValueError(f"cannot read {text}")
        return None if "Bob" in text else "" if "Carl" in text else text

    redaction = redaction_of(picky)
    assert [redaction.text(text) for text in ("Ann", "Bob", "Carl", "Dora", "", " ")] == [HIDDEN] * 3 + [
        "Dora",
        "",
        " ",
    ]
    assert redaction.json('{"a": ["Ann", 1], "b": "Dora"}') == f'{{"a":["{HIDDEN}",1],"b":"Dora"}}'
    assert "raised ValueError" in caplog.text
    assert "cannot read" not in caplog.text


def test_a_method_of_a_singleton_hides_with_what_it_was_given() -> None:
    @singleton
    class Names:
        def __init__(self) -> None:
            self.names = ["Ann", "Bob"]

        @redact
        def hide(self, text: str) -> str:
            return re.sub("|".join(self.names), "[name]", text)

    @agent
    class Greeter:
        """You greet."""

    found = run_agent(Greeter, "I am Bob", model=ScriptedModel(["Hello Bob and Ann"]), hooks=[Names])
    assert (found.messages[0].text, found.output) == ("I am [name]", "Hello [name] and [name]")


def test_mistakes_stop_the_start() -> None:
    @redact
    async def later(text: str) -> str:  # type: ignore[type-var]
        return text

    @redact
    def too_much(text: str, names: list[str]) -> str:
        return text

    @redact(longest=0)
    def short(text: str) -> str:
        return text

    with pytest.raises(DeclarationError) as raised:
        redaction_of(later, too_much, short)
    for part in ("it is async", "besides `(text) -> str`", "`longest=0` must be a whole number"):
        assert part in str(raised.value)
