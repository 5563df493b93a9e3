"""Old turns of a long conversation give way to a summary when the model is asked, and nothing is lost in the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoxi_py import Compaction, agent, tool
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.compacting import SUMMARISE, SUMMARY_HEAD, give_way, letters_of, request_letters
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import DeclarationError, ModelFailed
from amoxi_py.models.fallback import FallbackModel
from amoxi_py.models.history import check_request
from amoxi_py.models.script import call, fail, reply
from amoxi_py.ports.chat_model import ModelRequest, Reply, TextDelta, ToolResult, ToolSpec, UserMessage
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sqlite.store import SqliteStore
from amoxi_py.testing import run_agent

ANN = Principal(id="user:ann")
WINDOW = 4000


@tool(read_only=True)
def look(number: int) -> str:
    """Look something up.

    Args:
        number: Which
    """
    return f"number {number}: " + "fact " * 400


@agent(tools=[look], max_turns=100, compaction=Compaction(window=WINDOW))
class Clerk:
    """You look things up."""


class Provider:
    """A model that answers by turns, makes summaries, and refuses what is longer than its window."""

    def __init__(self, looks: int = 0, window: int = 10**9) -> None:
        self.looks = looks
        self.window = window
        self.requests: list[ModelRequest] = []
        self.summaries: list[str] = []

    def __call__(self, request: ModelRequest) -> Any:
        assert check_request(request) == []
        letters = sum(map(letters_of, request.messages))
        if letters > self.window:
            return fail(400, text="too long", reason="context_length_exceeded")
        if request.instructions == SUMMARISE:
            (asked,) = request.messages
            assert isinstance(asked, UserMessage)
            self.summaries.append(asked.text)
            return f"Record {len(self.summaries)}."
        self.requests.append(request)
        done = sum(isinstance(message, ToolResult) for message in request.messages)
        summarised = sum(text.count("Result of look") for text in self.summaries)
        if done + summarised < self.looks:
            return reply(f"Looking up {done + summarised}.", call("look", number=done + summarised))
        return f"Answer to {len(self.requests)}."


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes a store, of both kinds one after the other, on what the one before has left."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path)
    url: str = request.getfixturevalue("postgres_url")
    return lambda: PostgresStore(url)


class Stop:
    """A place in a reply that is reached, and never left."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


def talk(place: Any, with_engine: Any, model: Any, messages: list[str], agents: Any = None) -> Any:
    """Return the runs of these messages in one conversation, its messages, and its events' types."""

    async def story(engine: Engine) -> Any:
        runs: list[Any] = []
        conversation_id = None
        for text in messages:
            run = (await engine.submit("clerk", text, principal=ANN, conversation_id=conversation_id)).run
            conversation_id = run.conversation_id
            runs.append(await engine.wait(run.id, ANN, timeout=20))
        page = await engine.read_conversation(conversation_id, ANN, limit=1000)
        stream = await engine.follow(ANN, conversation_id=conversation_id)
        types: list[str] = []
        async for batch in stream:
            types += [event.type.label for event in batch]
            if types.count("run.completed") + types.count("run.failed") == len(messages):
                break
        return runs, page.messages.items, types

    store = SqliteStore(place) if isinstance(place, Path) else place()
    return with_engine(store, agents or [Clerk], model, story)


def test_old_runs_give_way_near_the_end_of_the_window(place: Any, with_engine: Any) -> None:
    model = Provider()
    texts = [f"Message {n}: " + "word " * 300 for n in range(30)]
    runs, messages, types = talk(place, with_engine, model, texts)
    assert all(run.status == "completed" for run in runs)
    assert model.summaries
    assert "history.compacted" in types
    assert [message.text for message in messages if message.role == "user"] == texts, "the log keeps everything"
    letters = [sum(map(letters_of, request.messages)) for request in model.requests]
    assert max(letters) < 0.85 * WINDOW * 3.5
    last = model.requests[-1].messages
    assert isinstance(last[0], UserMessage)
    assert last[0].text.startswith(f"{SUMMARY_HEAD}\nRecord")
    assert [message.text for message in last if isinstance(message, UserMessage)][-1] == texts[-1]
    assert "The record so far:\nRecord 1." in model.summaries[1], "each record goes on from the one before"
    told = "".join(model.summaries)
    assert all(told.count(f"Person: Message {n}: ") == 1 for n in range(15)), "each old message is in one record"


def test_old_turns_of_one_long_run_give_way_and_what_was_asked_stays(place: Any, with_engine: Any) -> None:
    model = Provider(looks=30)
    (run,), _, types = talk(place, with_engine, model, ["Look up thirty numbers."])
    assert run.status == "completed", run.error
    assert types.count("tool.completed") == 30, "none was looked up twice"
    assert types.count("history.compacted") == len(model.summaries)
    assert model.summaries
    first = model.requests[-1].messages[0]
    assert isinstance(first, UserMessage)
    assert "Look up thirty numbers." in first.text
    assert run.usage.requests == 31 + len(model.summaries), "what a summary costs counts"


def test_a_summary_is_made_when_only_the_provider_knows_its_window(tmp_path: Path, with_engine: Any) -> None:
    @agent(tools=[look])
    class Clerk:
        """You look things up."""

    model = Provider(window=8000)
    texts = [f"Message {n}: " + "word " * 300 for n in range(12)]
    runs, _, _ = talk(tmp_path, with_engine, model, texts, [Clerk])
    assert [run.status for run in runs] == ["completed"] * 12
    assert model.summaries


def test_a_message_that_fits_no_window_fails_its_run_alone(tmp_path: Path, with_engine: Any) -> None:
    model = Provider(window=8000)
    texts = ["Hello.", "word " * 5000, "Hello again."]
    runs, _, _ = talk(tmp_path, with_engine, model, texts)
    assert [run.status for run in runs] == ["completed", "failed", "completed"]
    assert runs[1].error.code == "model_context_too_long"


def test_an_agent_can_say_never(tmp_path: Path, with_engine: Any) -> None:
    @agent(tools=[look], compaction=False)
    class Clerk:
        """You look things up."""

    model = Provider(window=8000)
    runs, _, types = talk(tmp_path, with_engine, model, ["word " * 1000, "word " * 1000], [Clerk])
    assert [run.status for run in runs] == ["completed", "failed"]
    assert "history.compacted" not in types
    assert model.summaries == []


@pytest.mark.parametrize("where", ["in a summary", "after a summary"])
def test_a_run_that_is_taken_up_again_makes_no_summary_twice_and_loses_nothing(
    where: str, place: Any, with_engine: Any
) -> None:
    model = Provider(looks=14)
    stop = Stop()

    def play(request: ModelRequest) -> Any:
        in_summary = request.instructions == SUMMARISE
        stops = in_summary if where == "in a summary" else model.summaries and not in_summary
        return reply(stop, "Never.") if stops else model(request)

    async def first(engine: Engine) -> Any:
        run = (await engine.submit("clerk", "Look up fourteen numbers.", principal=ANN)).run
        await asyncio.wait_for(stop.reached.wait(), 20)
        return run

    async def second(engine: Engine) -> Any:
        ended = await engine.wait(run.id, ANN, timeout=20)
        page = await engine.read_conversation(run.conversation_id, ANN, limit=1000)
        return ended, page.messages.items

    run = with_engine(place(), [Clerk], play, first)
    before = list(model.summaries)
    assert bool(before) == (where == "after a summary")
    ended, messages = with_engine(place(), [Clerk], model, second)
    assert ended.status == "completed", ended.error
    asked = [call for message in messages for call in message.calls]
    assert [json.loads(call.arguments)["number"] for call in asked] == list(range(14)), "each once, in order"
    assert ended.usage.requests == 15 + len(model.summaries), "of what was recorded nothing was asked for again"
    assert len(set(model.summaries)) == len(model.summaries)
    first_message = model.requests[-1].messages[0]
    assert isinstance(first_message, UserMessage)
    assert "Look up fourteen numbers." in first_message.text


def test_a_summary_that_cannot_be_made_ends_no_run_whose_request_still_fits(tmp_path: Path, with_engine: Any) -> None:
    asked: list[str] = []

    def play(request: ModelRequest) -> Any:
        asked.append("summary" if request.instructions == SUMMARISE else "turn")
        return fail(503) if asked[-1] == "summary" else "Fine."

    runs, _, types = talk(tmp_path, with_engine, play, [f"{n} " + "word " * 700 for n in range(5)])
    assert [run.status for run in runs] == ["completed"] * 5
    assert asked.count("turn") == 5
    assert 1 <= asked.count("summary") <= 4, "once for a run"
    assert "history.compacted" not in types


def test_a_conversation_that_moves_to_a_model_with_a_small_window_goes_on(tmp_path: Path, with_engine: Any) -> None:
    model = Provider()
    large, small = agent(compaction=Compaction(window=10**9))(type("Clerk", (), {"__doc__": "You look."})), 12_000
    texts = [f"Message {n}: " + "word " * 1500 for n in range(20)]
    asked: list[int] = []

    def play(request: ModelRequest) -> Any:
        if len(model.requests) == len(texts) and model.window > small:
            model.window = small
            asked.clear()
        asked.append(sum(map(letters_of, request.messages)))
        return model(request)

    runs, _, _ = talk(tmp_path, with_engine, play, [*texts, "And now?"], [large])
    assert [run.status for run in runs] == ["completed"] * 21
    assert asked[-1] < small
    refused = [letters for letters in asked if letters > small]
    assert refused == sorted(refused, reverse=True)
    assert len(refused) <= 6, "no request is made that is known to be too long"
    told = [*model.summaries, *(message.text for message in model.requests[-1].messages if hasattr(message, "text"))]
    assert [sum(text.count(f"Message {n}: ") for text in told) for n in range(20)] == [1] * 20


def test_pieces_of_a_long_summary_are_recorded_one_by_one(tmp_path: Path, with_engine: Any) -> None:
    asked: list[str] = []

    def play(request: ModelRequest) -> Any:
        letters = sum(map(letters_of, request.messages))
        asked.append("summary" if request.instructions == SUMMARISE else "turn")
        if letters > 12_000 and "And now?" in str(request.messages[-1]):
            return fail(400, text="too long", reason="context_length_exceeded")
        if asked[-1] == "turn":
            return "Fine."
        if letters > 9000:
            return fail(400, text="too long", reason="context_length_exceeded")
        return fail(400, text="broken") if asked.count("summary") == 5 else f"Record {asked.count('summary')}."

    @agent
    class Clerk:
        """You look."""

    texts = [f"Message {n}: " + "word " * 700 for n in range(12)]
    runs, _, types = talk(tmp_path, with_engine, play, [*texts, "And now?"], [Clerk])
    assert [run.status for run in runs] == ["completed"] * 12 + ["failed"]
    compacted = types.count("history.compacted")
    assert compacted >= 2, "what was done before the failure stays"
    assert runs[-1].usage.requests == compacted


def test_a_chain_whose_first_model_is_away_lets_old_turns_give_way_for_the_second(tmp_path: Path) -> None:
    class Away:
        name = "a:away"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
            raise ModelFailed("503", code="model_unavailable")
            yield

    class Small:
        name = "b:small"

        async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
            if sum(map(letters_of, request.messages)) > 20_000:
                raise ModelFailed("too long", code="model_context_too_long", retryable=False)
            yield Reply(text="Record." if request.instructions == SUMMARISE else "Fine.")

    @agent
    class Clerk:
        """You look."""

    found = None
    model = FallbackModel([Away(), Small()])
    for _ in range(5):
        found = run_agent(Clerk, "word " * 1000, model=model, conversation=found)
        assert found.output == "Fine.", found.run.error


def test_tools_weigh_as_much_as_their_schemas() -> None:
    properties = {f"field_{n}": {"type": "string", "description": "word " * 20} for n in range(20)}
    schema = {"type": "object", "properties": properties}
    spec = ToolSpec(name="look", description="Look.", parameters=schema)
    request = ModelRequest(instructions="You look.", messages=(UserMessage(text="Hi"),), tools=(spec, spec))
    assert request_letters(request, 0) >= 2 * len(json.dumps(schema, separators=(",", ":")))


@pytest.mark.parametrize(
    ("compaction", "wrong"),
    [
        (3, "must be a Compaction"),
        (Compaction(window=10), "from 1000 up"),
        (Compaction(at=1.5), "at most 1"),
        (Compaction(keep=0.9), "smaller than `at=0.8`"),
        (Compaction(instructions=" "), "must be a text"),
    ],
)
def test_what_makes_no_sense_stops_the_start(compaction: Any, wrong: str, tmp_path: Path, with_engine: Any) -> None:
    @agent(compaction=compaction)
    class Clerk:
        """You look things up."""

    with pytest.raises(DeclarationError, match=wrong):
        talk(tmp_path, with_engine, Provider(), ["Hello."], [Clerk])


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(-50, 1000))
def test_what_gives_way_is_the_least_that_makes_room(letters: list[int], room: int) -> None:
    count = give_way(letters, room)
    assert 0 <= count < len(letters)
    kept = letters[count:]
    assert sum(kept) <= room or len(kept) == 1
    assert count == 0 or sum(letters[count - 1 :]) > room
