"""Passages in spaces: kept under one name, found by words and by vectors, forgotten at once, never across spaces."""

from __future__ import annotations

import asyncio
import math
import struct
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from amoxi_py.domain.memory import space_of, space_of_documents
from amoxi_py.errors import ConfigError, Conflict, InvalidRequest
from amoxi_py.ports.kept_data import Forgotten
from amoxi_py.ports.passages import NewPassage, NewVector, Passage
from amoxi_py.stores.sql import passages as held

pytestmark = pytest.mark.anyio
MINE = space_of_documents("mine")
OTHER = space_of_documents("other")
E = "test-3"


def vector(*numbers: float) -> bytes:
    length = math.sqrt(sum(number * number for number in numbers))
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


NORTH, EAST, UP = vector(1, 0, 0), vector(0, 1, 0), vector(0, 0, 1)


def new(name: str, text: str = "", **more: Any) -> NewPassage:
    return NewPassage(**({"id": f"mem_{name}", "name": name, "text": text or name} | more))


async def keep(world: Any, *passages: NewPassage, space: str = MINE, **more: Any) -> tuple[Passage, ...]:
    kept: tuple[Passage, ...] = await world.store.keep_passages(space, passages, E, **more)
    return kept


async def names(
    world: Any, words: str = "", near: bytes | None = None, space: str = MINE, limit: int = 10
) -> list[str]:
    found = await world.store.search_passages(space, words, near, E, limit)
    return [one.name for one in found]


async def listed(world: Any, space: str = MINE) -> list[str]:
    return [one.name for one in (await world.store.list_passages(space)).items]


async def waiting(world: Any, embedder: str = E) -> list[str]:
    return [one.text for one in await world.store.unembedded(embedder, 100)]


async def test_what_is_kept_is_returned_listed_and_found_as_it_was_given(world: Any) -> None:
    given = new("color", "Her favourite colour is green", metadata='{"a":1}', source="a.md", vector=NORTH)
    (kept,) = await keep(world, given)
    now = int(world.clock.now() * 1000) / 1000
    assert kept == Passage(
        id="mem_color",
        name="color",
        text=given.text,
        metadata='{"a":1}',
        source="a.md",
        created_at=now,
        updated_at=now,
    )
    assert (await world.store.list_passages(MINE)).items == (kept,)
    (found,) = await world.store.search_passages(MINE, "colour", None, E, 5)
    assert (found.name, found.score) == ("color", 1.0)


async def test_a_newer_passage_of_a_name_takes_the_place_of_the_older_one_and_its_id(world: Any) -> None:
    (first,) = await keep(world, new("home", "lives in Bern", vector=NORTH))
    world.clock.move(10)
    (second,) = await keep(world, new("home", "lives in Rome", id="mem_later"))
    assert (second.id, second.created_at, second.text) == (first.id, first.created_at, "lives in Rome")
    assert second.updated_at == first.updated_at + 10
    assert await names(world, "Bern") == []
    assert await names(world, "Rome") == ["home"]
    assert await names(world, near=NORTH) == [], "the vector is of the older text"
    assert await waiting(world) == ["lives in Rome"]


async def test_of_two_with_one_name_in_one_call_the_last_is_kept(world: Any) -> None:
    kept = await keep(world, new("a", "first"), new("a", "second"))
    assert [one.text for one in kept] == ["second", "second"]
    assert await listed(world) == ["a"]


async def test_an_id_that_another_passage_has_is_not_given_twice(world: Any) -> None:
    (one,), (two,) = await keep(world, new("a", id="mem_1")), await keep(world, new("b", id="mem_1"))
    assert one.id == "mem_1" != two.id
    assert await world.store.forget_passage(MINE, "mem_1")
    assert await listed(world) == ["b"]


async def test_nothing_is_found_listed_or_forgotten_across_spaces(world: Any) -> None:
    """One id in two tenants, a principal whose id holds another's, and a knowledge base are four spaces."""
    ann = space_of(world.ann)
    spaces = [
        ann,
        space_of(replace(world.ann, tenant="t2")),
        space_of(replace(world.ann, tenant=None)),
        space_of(replace(world.ann, id="user:ann2")),
        space_of_documents("user:ann"),
    ]
    assert len(set(spaces)) == 5
    for n, space in enumerate(spaces):
        await keep(world, new("secret", f"the secret number {n}", vector=NORTH), space=space)
    hostile = f"secret 0 1 2 3 4 {' '.join(spaces)} space : * OR principal user ann t1 t2"
    for n, space in enumerate(spaces):
        found = await world.store.search_passages(space, hostile, NORTH, E, 100)
        assert [one.text for one in found] == [f"the secret number {n}"]
    assert await world.store.forget_passages(ann, ["secret"]) == 1
    assert not await world.store.forget_passage(ann, "mem_secret")
    assert await world.store.clear_space(spaces[1]) == 1
    assert [await listed(world, space) for space in spaces] == [[], [], ["secret"], ["secret"], ["secret"]]
    assert await world.store.search_passages(ann, "secret", NORTH, E, 10) == ()


async def test_what_others_have_of_the_same_does_not_crowd_out_the_own(world: Any) -> None:
    await keep(world, *(new(f"n{n}", "green tea", vector=NORTH) for n in range(200)), space=OTHER)
    await keep(world, new("mine", "not quite green", vector=vector(1, 1, 1)))
    assert await names(world, "green tea", limit=1) == ["mine"]
    assert await names(world, near=NORTH, limit=1) == ["mine"]


async def test_words_and_vectors_find_together_and_each_alone(world: Any) -> None:
    await keep(
        world,
        new("both", "green tea", vector=NORTH),
        new("word", "green door", vector=vector(-1, 0.1, 0)),
        new("near", "matcha", vector=vector(0.9, 0.1, 0)),
        new("neither", "a car", vector=vector(-1, 0, 0)),
    )
    found = await world.store.search_passages(MINE, "green tea", NORTH, E, 10)
    assert found[0].name == "both"
    assert {one.name for one in found} == {"both", "word", "near"}
    assert found[0].score == 1.0
    assert all(0 < later.score <= earlier.score for earlier, later in pairwise(found))
    assert await names(world, "green tea", NORTH, limit=1) == ["both"]
    assert sorted(await names(world, "green")) == ["both", "word"]
    assert await names(world, near=NORTH) == ["both", "near"]
    assert await names(world, limit=0, words="green") == []


async def test_the_name_of_a_memory_is_found_with_its_text_and_that_of_a_document_is_not(world: Any) -> None:
    await keep(world, new("postal-address", "12 Elm Street"), new("drink", "green tea"))
    await keep(world, new("postal-code", "see the manual", source="a.md"))
    assert await names(world, "Which postal address?") == ["postal-address"]
    await keep(world, new("postal-address", "7 Oak Road"))
    assert await names(world, "postal") == await names(world, "oak") == ["postal-address"]
    assert await names(world, "elm") == []
    await keep(world, new("mem_1", "has no name", id="mem_1"))
    assert await names(world, "mem_1") == []


async def test_a_rare_word_counts_for_more_than_common_ones(world: Any) -> None:
    await keep(world, *(new(f"n{n}", f"what is my note number {n}") for n in range(30)), new("cat", "a cat named Tom"))
    assert (await names(world, "what is my cat", limit=3))[0] == "cat"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Order A-1001 was sent", "a-1001"),
        ("Das Café an der Straße", "CAFE strasse"),
        ("我喜欢喝咖啡", "咖啡"),
        ("メモリーを保存", "保存"),
        ("좋아하는 색은 초록", "초록"),
        ("addresses of all customers", "address"),
        ("mail ann@example.com", "example"),
        ("x" * 7000 + " tail", "tail"),
    ],
)
async def test_words_are_found_in_any_script_whatever_stands_around_them(world: Any, text: str, words: str) -> None:
    await keep(world, new("it", text), new("else", "nothing of it"))
    assert await names(world, words) == ["it"]


@pytest.mark.parametrize(
    "words",
    [
        "",
        " \n\t",
        '"',
        "'",
        "' OR 1=1 --",
        '") OR space : ("1',
        "NEAR(a b) AND NOT * ^ - : { } ( | & ! <-> :*",
        "\\",
        "\0",
        "\ud800",
        "🙂🙂",
        "%_%",
        "AND OR NOT",
        "a " * 10_000,
        " ".join(f"word{n}" for n in range(10_000)),
        "x" * 100_000,
    ],
    ids=lambda text: ascii(text[:20]),
)
async def test_no_words_are_a_command_or_too_many(world: Any, words: str) -> None:
    await keep(world, new("it", "quite something", vector=NORTH))
    assert await names(world, words) == []
    assert await names(world, words + " something") in (["it"], [])
    assert await names(world, words, NORTH) == ["it"]


async def test_any_text_can_be_kept_and_only_what_no_store_can_hold_is_replaced(world: Any) -> None:
    (kept,) = await keep(world, new("odd\0", "a\0b \ud800 🙂 ' \" \\ {},"))
    assert (kept.name, kept.text) == ("odd\ufffd", "a\ufffdb \ufffd 🙂 ' \" \\ {},")
    for odd in ("mem_\0", "mem_\ud800"):
        assert await world.store.forget_passage(MINE, odd) is False
    assert await world.store.forget_passages(MINE, ["odd\0"]) == 1


async def test_a_text_with_the_same_digest_keeps_its_vectors(world: Any) -> None:
    await keep(world, new("a", "one two", digest="d1", vector=NORTH))
    await keep(world, new("a", "one  two three", digest="d1"))
    assert await names(world, near=NORTH) == ["a"]
    assert await names(world, "three") == ["a"]
    await keep(world, new("a", "one  two three", digest="d2"))
    assert await names(world, near=NORTH) == ["a"], "the text is the same"
    await keep(world, new("a", "four", digest="d3"))
    assert await names(world, near=NORTH) == []
    await keep(world, new("a", "five", vector=EAST))
    await keep(world, new("a", "six"))
    assert await names(world, near=EAST) == [], "no digest is no sameness"


async def test_a_vector_that_comes_too_late_is_dropped(world: Any) -> None:
    await keep(world, new("a", "old text"), new("b", "kept"))
    old, other = await world.store.unembedded(E, 10)
    await keep(world, new("a", "new text"))
    await world.store.keep_vectors(E, [NewVector(key=old.key, version=old.version, vector=NORTH)])
    assert await waiting(world) == ["new text", "kept"]
    assert await names(world, near=NORTH) == []
    (fresh, _) = await world.store.unembedded(E, 10)
    assert (fresh.key, fresh.version) != (old.key, old.version)
    late = NewVector(key=other.key, version=other.version, vector=EAST)
    await world.store.forget_passages(MINE, ["b"])
    await world.store.keep_vectors(E, [late, NewVector(key=fresh.key, version=fresh.version, vector=NORTH)])
    await world.store.keep_vectors(E, [NewVector(key=10**9, version=1, vector=NORTH)])
    assert await names(world, near=NORTH) == ["a"]
    assert await names(world, near=EAST) == []
    assert await waiting(world) == []


async def test_vectors_of_two_embedders_are_never_compared_and_old_ones_go_piece_by_piece(world: Any) -> None:
    await keep(world, *(new(f"n{n}", vector=NORTH) for n in range(5)))
    await keep(world, new("bare"))
    assert await waiting(world, "a-new-one") == ["bare", "n0", "n1", "n2", "n3", "n4"], "those without any come first"
    assert [one.text for one in await world.store.unembedded("z-new-one", 2)] == ["bare", "n0"]
    some = await world.store.unembedded("a-new-one", 3)
    wider = vector(1, 0, 0, 0, 0)
    await world.store.keep_vectors(
        "a-new-one", [NewVector(key=one.key, version=one.version, vector=wider) for one in some]
    )
    assert await waiting(world, "a-new-one") == ["n2", "n3", "n4"]
    assert await names(world, near=NORTH) == ["n0", "n1", "n2", "n3", "n4"], "the old ones stay meanwhile"
    found = await world.store.search_passages(MINE, "", wider, "a-new-one", 10)
    assert {one.name for one in found} == {"bare", "n0", "n1"}
    rest = await world.store.unembedded("a-new-one", 10)
    await world.store.keep_vectors(
        "a-new-one", [NewVector(key=one.key, version=one.version, vector=wider) for one in rest]
    )
    turns = 1
    while await world.store.drop_vectors("a-new-one", 2):
        turns += 1
    assert turns == 3
    assert await names(world, near=NORTH) == []
    assert len(await world.store.search_passages(MINE, "", wider, "a-new-one", 10)) == 6
    assert await waiting(world, "a-new-one") == []
    assert len(await waiting(world)) == 6


async def test_an_embedder_of_another_size_under_the_same_name_is_refused(world: Any) -> None:
    await world.store.prepare_embedder(E, 3)
    await keep(world, new("a", vector=NORTH))
    await world.store.prepare_embedder(E, 3)
    with pytest.raises(ConfigError, match="another name"):
        await world.store.prepare_embedder(E, 4)


async def test_a_source_is_replaced_whole_and_only_what_changed_is_without_a_vector(world: Any) -> None:
    store = world.store
    first = [new("a#1", "alpha", digest="1", vector=NORTH), new("a#2", "beta", digest="2", vector=EAST)]
    await store.replace_source(MINE, "a.md", "v1", first, E)
    await store.replace_source(MINE, "b.md", "v1", [new("b#1", "gamma", vector=UP)], E)
    await store.replace_source(OTHER, "a.md", "x1", [new("a#1", "elsewhere", vector=UP)], E)
    assert await store.sources(MINE) == {"a.md": "v1", "b.md": "v1"}
    second = [new("a#1", "alpha", digest="1"), new("a#3", "delta", digest="3")]
    await store.replace_source(MINE, "a.md", "v2", second, E)
    assert await store.sources(MINE) == {"a.md": "v2", "b.md": "v1"}
    assert sorted(await listed(world)) == ["a#1", "a#3", "b#1"]
    assert {one.source for one in (await store.list_passages(MINE)).items} == {"a.md", "b.md"}
    assert await names(world, "beta") == []
    assert await names(world, near=NORTH) == ["a#1"]
    assert await waiting(world) == ["delta"]
    await store.replace_source(MINE, "a.md", "", [], E)
    await store.replace_source(MINE, "never.md", "", [], E)
    assert await store.sources(MINE) == {"b.md": "v1"}
    assert await listed(world) == ["b#1"]
    assert await store.sources(OTHER) == {"a.md": "x1"}
    assert await store.sources(space_of_documents("none")) == {}
    assert await store.clear_space(MINE) == 1
    assert await store.sources(MINE) == {}


async def test_who_ends_while_a_space_is_cleared_leaves_no_source_that_seems_to_be_there_as_it_was(world: Any) -> None:
    store = world.store
    await store.replace_source(MINE, "a.md", "v1", [new(f"a#{n}") for n in range(held.AT_ONCE)], E)
    await store.replace_source(MINE, "b.md", "v1", [new("b#1")], E)
    await store._forget(MINE, lambda batch: held.clear_some(batch, MINE))  # what is stored when it ends after a piece
    assert len(await listed(world)) == 1
    assert await store.sources(MINE) == {"a.md": "", "b.md": ""}
    assert await store.clear_space(MINE) == 1
    assert await store.sources(MINE) == {}


async def test_no_more_are_kept_than_there_may_be_but_one_can_be_written_over(world: Any) -> None:
    await keep(world, new("a"), new("b"), at_most=3)
    for too_many in ([new("c"), new("d")], [new("a", "changed"), new("c"), new("d")]):
        with pytest.raises(Conflict) as refused:
            await keep(world, *too_many, at_most=3)
        assert refused.value.code == "memory_full"
    assert sorted(await listed(world)) == ["a", "b"]
    assert await names(world, "changed") == []
    await keep(world, new("c"), at_most=3)
    await keep(world, new("a", "changed"), at_most=2)
    with pytest.raises(Conflict, match="at most 0"):
        await keep(world, new("a"), at_most=0, space=OTHER)
    assert await names(world, "changed") == ["a"]
    await world.store.forget_passages(MINE, ["a"])
    await keep(world, new("d"), at_most=3)


async def test_a_list_comes_in_pages_the_one_that_was_written_last_first(world: Any) -> None:
    for n in range(5):
        await keep(world, new(f"n{n}"))
        world.clock.move(n % 2)
    world.clock.move(1)
    await keep(world, new("n1", "again"))
    pages, cursor = [], None
    while True:
        page = await world.store.list_passages(MINE, limit=2, cursor=cursor)
        pages.append([one.name for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == [["n1", "n4"], ["n3", "n2"], ["n0"]]
    with pytest.raises(InvalidRequest):
        await world.store.list_passages(MINE, cursor="x")
    assert (await world.store.list_passages(OTHER)).items == ()


async def test_verbs_whose_answers_are_lost_tell_the_same_when_they_are_sent_again(world: Any) -> None:
    world.lose_answer()
    (kept,) = await keep(world, new("a", vector=NORTH), at_most=1)
    assert (await world.store.list_passages(MINE)).items == (kept,)
    world.lose_answer()
    assert await world.store.forget_passages(MINE, ["a", "b"]) == 1
    await keep(world, new("a", vector=NORTH))
    world.lose_answer()
    assert await world.store.forget_passage(MINE, "mem_a") is True
    await keep(world, new("a", vector=NORTH), space=space_of(world.ann))
    world.clock.move(100)
    world.lose_answer()
    assert await world.store.purge_memories(world.clock.now() - 1, 10) == 1


async def test_memories_that_were_not_written_for_long_are_purged_and_documents_stay(world: Any) -> None:
    ann, bob = space_of(world.ann), space_of(world.bob)
    await keep(world, *(new(f"old{n}") for n in range(3)), new("again"), space=ann)
    await keep(world, new("bobs", vector=NORTH), space=bob)
    await keep(world, new("document"), new("piece", source="a.md"))
    world.clock.move(100)
    await keep(world, new("again", "written again"), new("new"), space=ann)
    before = world.clock.now() - 50
    assert [await world.store.purge_memories(before, 3) for _ in range(3)] == [3, 1, 0]
    assert sorted(await listed(world, ann)) == ["again", "new"]
    assert await listed(world, bob) == []
    assert sorted(await listed(world)) == ["document", "piece"]


async def test_what_is_remembered_of_a_principal_is_forgotten_with_it(world: Any) -> None:
    await keep(world, *(new(f"n{n}", vector=NORTH) for n in range(450)), space=space_of(world.ann))
    await keep(world, new("bobs"), space=space_of(world.bob))
    assert await world.store.forget_principal(world.ann) == Forgotten(memories=450)
    assert await world.store.forget_principal(world.ann) == Forgotten()
    assert await listed(world, space_of(world.bob)) == ["bobs"]


async def test_another_process_finds_at_once_what_is_kept_and_nothing_that_is_forgotten(world: Any) -> None:
    async with world.other_process() as other:
        await keep(world, new("a", "apple", vector=NORTH))
        assert await names(other, "apple", NORTH) == ["a"]
        await keep(world, new("b", "bread", vector=NORTH))
        assert await names(other, near=NORTH) == ["a", "b"]
        await world.store.forget_passages(MINE, ["a"])
        assert await names(other, "apple", NORTH) == ["b"]
        await other.store.clear_space(MINE)
        assert await names(world, "bread", NORTH) == []
        await keep(other, new("c", vector=EAST))
        assert await names(world, near=NORTH) == []
        assert await names(world, near=EAST) == ["c"]


async def test_many_at_once_write_to_one_space_and_none_is_lost(world: Any) -> None:
    async with world.other_process() as other:
        kept = [keep(one, new(f"n{n}"), new(f"{id(one)}-{n}")) for n in range(10) for one in (world, other)]
        forgotten = [world.store.forget_passages(OTHER, ["n1"]), other.store.clear_space(OTHER)]
        await asyncio.gather(*kept, *forgotten)
        page = await world.store.list_passages(MINE, limit=100)
        assert len(page.items) == 30
