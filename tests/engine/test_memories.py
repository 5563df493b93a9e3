"""Memories of a principal: kept, found, forgotten, and embedded when the embedder is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from remembering import ANN, ANN_ELSEWHERE, BOB, Friend, Named, Play, player, texts, until

from amoxi_py import redact
from amoxi_py.domain.memory import space_of_documents
from amoxi_py.engine.call_memories import MemoriesOfCall
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import ConfigError, Conflict, InvalidRequest, LeaseLost, ModelFailed, NotFound
from amoxi_py.ports.passages import NewPassage
from amoxi_py.stores.sqlite.store import SqliteStore


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return player(tmp_path / "ai")


def test_a_key_holds_one_memory_and_without_one_each_is_its_own(play: Play) -> None:
    async def story(engine: Engine) -> None:
        memories = engine.memories
        lima = await memories.remember(ANN, "lives in Lima", key="address", metadata={"from": "chat"})
        quito = await memories.remember(ANN, "lives in Quito", key="address")
        tea = await memories.remember(ANN, "  likes tea ")
        assert (quito.id, quito.key, quito.metadata) == (lima.id, "address", {})
        assert (tea.key, tea.text, lima.metadata) == (None, "likes tea", {"from": "chat"})
        assert await texts(engine) == ["likes tea", "lives in Quito"]
        assert [one.id for one in await memories.recall(ANN, "Where do they live?", 1)] == [lima.id]
        [best] = await memories.recall(ANN, "tea", 1)
        assert best.score is not None
        assert 0 < best.score <= 1
        assert await memories.forget(ANN, "address")
        assert not await memories.forget(ANN, "address")
        assert await memories.forget(ANN, tea.id)
        assert await texts(engine) == []

    play(story)


def test_a_call_that_runs_again_remembers_the_same_things_once_whatever_it_leaves_out(play: Play) -> None:
    async def story(engine: Engine) -> None:
        async def at_once(verb: Callable[[], Awaitable[Any]]) -> Any:
            return await verb()

        async def current() -> None:
            return None

        calls = ("call_1", "call_1", "call_2")
        first, again, other = (MemoriesOfCall(engine.memories, ANN, call_id, current, at_once) for call_id in calls)
        for text in ("in a step", "after it"):
            await first.remember(text, None, None)
        await again.remember("after it", None, None)
        assert await texts(engine) == ["after it", "in a step"]
        await other.remember("after it", None, None)
        assert await texts(engine) == ["after it", "after it", "in a step"]

    play(story)


def test_a_call_whose_lease_is_lost_while_the_embedder_is_asked_writes_nothing(play: Play) -> None:
    embedder = Named()

    async def story(engine: Engine) -> None:
        async def at_once(verb: Callable[[], Awaitable[Any]]) -> Any:
            return await verb()

        async def lost_since_it_was_asked() -> None:
            if embedder.asked:
                raise LeaseLost("run_1")

        call = MemoriesOfCall(engine.memories, ANN, "call_1", lost_since_it_was_asked, at_once)
        with pytest.raises(LeaseLost):
            await call.remember("lives in Lima", "address", None)
        assert await texts(engine) == []

    play(story, embedder=embedder)


def test_nobody_reaches_the_memories_of_another_principal_or_tenant(play: Play) -> None:
    async def story(engine: Engine) -> None:
        memories = engine.memories
        tea = await memories.remember(ANN, "likes tea", key="drink")
        for who in (BOB, ANN_ELSEWHERE):
            assert await texts(engine, who) == []
            assert await memories.recall(who, "user:ann likes tea drink", 50) == ()
            assert not await memories.forget(who, "drink")
            assert not await memories.forget(who, tea.id)
            with pytest.raises(NotFound):
                await memories.delete(who, tea.id)
            assert await memories.clear(who) == 0
            await memories.remember(who, "likes mate", key="drink")
        assert await texts(engine) == ["likes tea"]

    play(story)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda m: m.remember(ANN, " "), "what is to be remembered must be a text that is not empty, not ' '"),
        (lambda m: m.remember(ANN, 7), "must be a text that is not empty, not 7"),
        (lambda m: m.remember(ANN, "x" * 8001), "has 8001 characters; 8000 fit"),
        (lambda m: m.remember(ANN, "x", key=" "), "must be a text such as 'address', not ' '"),
        (lambda m: m.remember(ANN, "x", key="k" * 201), "the key of a memory has 201 characters; 200 fit"),
        (lambda m: m.remember(ANN, "x", metadata=[1]), "must be a dict of plain JSON values, not \\[1\\]"),
        (lambda m: m.remember(ANN, "x", metadata={"at": object()}), "must be plain JSON: a value of type object"),
        (lambda m: m.remember(ANN, "x", metadata={"a": "x" * 4000}), "4008 characters of JSON; 4000 fit"),
        (lambda m: m.recall(ANN, ""), "what is searched for must be a text that is not empty"),
        (lambda m: m.recall(ANN, "x", 0), "the limit 0 must be a whole number from 1 to 50"),
        (lambda m: m.recall(ANN, "x", 51), "the limit 51 must"),
        (lambda m: m.recall(ANN, "x", True), "the limit True must"),
        (lambda m: m.forget(ANN, ""), "the key of a memory must be a text"),
        (lambda m: m.search_docs("x", base=""), "the name of a knowledge base must be a short text such as 'docs'"),
        (lambda m: m.search_docs("x", limit=99), "the limit 99 must"),
    ],
)
def test_what_cannot_be_kept_or_asked_is_refused_with_the_reason(play: Play, asked: Any, told: str) -> None:
    async def story(engine: Engine) -> None:
        with pytest.raises(InvalidRequest, match=told) as caught:
            await asked(engine.memories)
        assert caught.value.code == "memory_invalid"

    play(story)


def test_a_principal_has_as_many_memories_as_the_setting_says(play: Play) -> None:
    async def story(engine: Engine) -> None:
        await engine.memories.remember(ANN, "one", key="a")
        await engine.memories.remember(ANN, "two")
        with pytest.raises(Conflict, match="2 memories are kept already, which is the most") as caught:
            await engine.memories.remember(ANN, "three")
        assert caught.value.code == "memory_full"
        await engine.memories.remember(ANN, "another one", key="a")
        await engine.memories.remember(BOB, "three")
        assert await texts(engine) == ["another one", "two"]

    play(story, memory_most=2)


@redact
def hide_cards(text: str) -> str:
    """Hide the numbers of cards."""
    return text.replace("4111", "[card]")


def test_what_is_redacted_is_neither_kept_nor_sent_to_the_embedder(play: Play) -> None:
    embedder = Named()

    async def story(engine: Engine) -> None:
        kept = await engine.memories.remember(ANN, "pays with 4111", key="card 4111", metadata={"n": "4111"})
        assert (kept.text, kept.key, kept.metadata) == ("pays with [card]", "card [card]", {"n": "[card]"})
        await engine.memories.recall(ANN, "who has 4111?")
        assert await engine.memories.forget(ANN, "card 4111")

    play(story, None, [Friend, hide_cards], embedder)
    assert embedder.asked == ["pays with [card]", "who has [card]?"]


# -- the embedder


def test_an_embedder_that_is_away_loses_nothing_and_later_everything_is_embedded(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = Named()
    embedder.away = ModelFailed("no route", code="model_unavailable")

    async def away(engine: Engine) -> None:
        await engine.memories.remember(ANN, "the cat is called Mog")
        await engine.memories.remember(ANN, "the dog is called Rex")
        assert [one.text for one in await engine.memories.recall(ANN, "cat", 1)] == ["the cat is called Mog"]

    async def back(engine: Engine) -> None:
        await until(lambda: sorted(embedder.asked) == ["the cat is called Mog", "the dog is called Rex"])

    with caplog.at_level(logging.INFO, "amoxi_py.memory"):
        play(away, embedder=embedder)
        assert [one.message for one in caplog.records if "no route" in one.message] == [
            "the embedder other fails, so memories are searched by words until it answers; nothing is lost: no route"
        ]
    embedder.away = None
    play(back, embedder=embedder)


def test_a_server_whose_embedder_comes_back_embeds_what_waits_by_itself(play: Play) -> None:
    embedder = Named()
    embedder.away = ModelFailed("no route", code="model_unavailable", retry_after=0.01)

    async def story(engine: Engine) -> None:
        await engine.memories.remember(ANN, "the cat is called Mog")
        embedder.away = None
        await until(lambda: embedder.asked == ["the cat is called Mog"])

    play(story, embedder=embedder)


def test_another_embedder_makes_all_vectors_anew_once_and_drops_the_old_ones(play: Play) -> None:
    first, second, again = Named("first"), Named("second"), Named("second")

    async def fill(engine: Engine) -> None:
        for n in range(100):
            await engine.memories.remember(ANN, f"fact {n}")

    async def change(engine: Engine) -> None:
        await until(lambda: len(second.asked) >= 100)
        store: Any = engine._store
        async with asyncio.timeout(60):
            while len(await store.unembedded("first", 200)) < 100:
                await asyncio.sleep(0.01)

    async def look(engine: Engine) -> None:
        await engine.memories.remember(ANN, "fact 100")
        assert [one.text for one in await engine.memories.recall(ANN, "fact 17", 1)] == ["fact 17"]

    play(fill, embedder=first)
    play(change, embedder=second)
    assert sorted(second.asked) == sorted(f"fact {n}" for n in range(100))
    play(look, embedder=again)
    assert again.asked == ["fact 100", "fact 17"]


def test_a_database_that_holds_no_vectors_stops_the_start_unless_nothing_much_is_lost(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    class NoVectors(SqliteStore):
        async def prepare_embedder(self, embedder: str, dimensions: int) -> None:
            raise ConfigError("the extension 'vector' is missing")

    async def story(engine: Engine) -> None:
        await engine.memories.remember(ANN, "the cat is called Mog")
        assert [one.text for one in await engine.memories.recall(ANN, "cat")] == ["the cat is called Mog"]
        assert await engine.memories.recall(ANN, "dog") == ()

    play(story, store=NoVectors)
    told = "memories are searched by words alone: the extension 'vector' is missing"
    assert [one.message for one in caplog.records if "vector" in one.message] == [told]
    with pytest.raises(ConfigError, match="the extension 'vector' is missing"):
        play(story, embedder=Named(), store=NoVectors)


def test_a_text_that_the_embedder_refuses_keeps_no_other_from_its_vector(play: Play) -> None:
    words, picky = Named("first"), Named("picky")
    picky.refuses = "odd"

    async def fill(engine: Engine) -> None:
        for n in range(10):
            await engine.memories.remember(ANN, f"fact {n}" + " odd" * (n == 3))

    async def story(engine: Engine) -> None:
        await until(lambda: len(picky.asked) == 9)
        assert [one.text for one in await engine.memories.recall(ANN, "odd")] == ["fact 3 odd"], "words find it"
        await engine.memories.remember(ANN, "one that is odd as well")
        await engine.memories.remember(ANN, "and a plain one")
        await until(lambda: "and a plain one" in picky.asked)

    play(fill, embedder=words)
    play(story, embedder=picky)


def test_memories_that_were_not_written_again_for_some_days_are_deleted_and_documents_stay(play: Play) -> None:
    async def fill(engine: Engine) -> None:
        await engine.memories.remember(ANN, "old")
        store: Any = engine._store
        passage = NewPassage(id="doc_1", name="n", text="a document", source="a.md")
        await store.replace_source(space_of_documents("docs"), "a.md", "d", [passage], "offline")

    async def later(engine: Engine) -> None:
        async with asyncio.timeout(60):
            while await texts(engine):
                await asyncio.sleep(0.01)
        assert [one.text for one in await engine.memories.search_docs("document")] == ["a document"]

    play(fill)
    play(later, ahead=8 * 86_400.0, memory_days=7)


def test_nobody_waits_long_for_a_search_that_is_made_ready(play: Play) -> None:
    waiting: list[bool] = []

    class Slow(SqliteStore):
        async def prepare_embedder(self, embedder: str, dimensions: int) -> None:
            waiting.append(True)
            try:
                await asyncio.Event().wait()
            finally:
                waiting.append(False)

    async def story(engine: Engine) -> None:
        await engine.memories.remember(ANN, "the cat is called Mog")
        assert [one.text for one in await engine.memories.recall(ANN, "cat")] == ["the cat is called Mog"]
        assert waiting == [True], "once, and still"

    play(story, store=Slow)
    assert waiting == [True, False]
