"""Invented histories of passages: the store against a model of it in dicts, from two processes, with lost answers."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings, stateful
from hypothesis import strategies as st

from amoxi_py.domain.memory import space_of_documents
from amoxi_py.errors import Conflict
from amoxi_py.ports.passages import NewPassage, NewVector

TRIALS = int(os.environ.get("AMOXI_TRIALS", "8"))
WORDS = ("apple", "bread", "cider", "dates")
NAMES = ("n0", "n1", "n2", "n3")
AXES = len(WORDS)
E = "e"
SPACES = st.sampled_from([space_of_documents("one"), space_of_documents("two")])
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
PASSAGES = st.lists(st.tuples(st.sampled_from(NAMES), TEXTS, st.booleans()), min_size=1, max_size=3)
MOST = 3


def vector_of(text: str) -> bytes:
    """One axis for each word, and of a text that of its first word: who asks for another word is not near it."""
    return struct.pack(f"<{AXES}f", *(1.0 if word == text.split()[0] else 0.0 for word in WORDS))


class PassageHistory(stateful.RuleBasedStateMachine):
    """`spaces` says what the store must hold: of each name the text, its source, and whether it is embedded."""

    def __init__(self, new_world: Callable[[], Any]) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.worlds = [new_world()]
        self.run(self.worlds[0].open())
        self.worlds.append(type(self.worlds[0])(self.worlds[0].place, self.worlds[0].clock))
        self.run(self.worlds[1].open())
        self.spaces: dict[str, dict[str, dict[str, Any]]] = {}
        self.sources: dict[str, dict[str, str]] = {}
        self.seen: list[tuple[Any, str]] = []

    def run(self, verb: Any) -> Any:
        async def wait() -> Any:
            return await verb

        return self.loop.run(wait())

    def teardown(self) -> None:
        try:
            self.nothing_differs()
        finally:
            for world in self.worlds:
                self.run(world.store.close())
            self.loop.close()

    def store(self, which: int, lost: bool) -> Any:
        if lost:
            self.worlds[which].lose_answer()
        return self.worlds[which].store

    @stateful.rule(space=SPACES, given=PASSAGES, bounded=st.booleans(), which=st.integers(0, 1), lost=st.booleans())
    def keep(self, space: str, given: list[tuple[str, str, bool]], bounded: bool, which: int, lost: bool) -> None:
        held = self.spaces.setdefault(space, {})
        new = [self.new(name, text, embedded) for name, text, embedded in given]
        verb = self.store(which, lost).keep_passages(space, new, E, at_most=MOST if bounded else None)
        more = {name for name, _, _ in given} - held.keys()
        if bounded and more and len(held) + len(more) > MOST:
            try:
                self.run(verb)
            except Conflict:
                return
            raise AssertionError("more were kept than there may be")
        self.take(held, {name: (text, embedded) for name, text, embedded in given}, None)
        kept = self.run(verb)
        assert [(one.name, one.text) for one in kept] == [(name, held[name]["text"]) for name, _, _ in given]

    @stateful.rule(
        space=SPACES,
        source=st.sampled_from(["a.md", "b.md"]),
        given=st.one_of(st.just([]), PASSAGES),
        which=st.integers(0, 1),
        lost=st.booleans(),
    )
    def replace(self, space: str, source: str, given: list[tuple[str, str, bool]], which: int, lost: bool) -> None:
        held = self.spaces.setdefault(space, {})
        new = [self.new(name, text, embedded) for name, text, embedded in given]
        self.run(self.store(which, lost).replace_source(space, source, str(given), new, E))
        wanted = {name: (text, embedded) for name, text, embedded in given}
        for name in [name for name, one in held.items() if one["source"] == source and name not in wanted]:
            del held[name]
        self.take(held, wanted, source)
        self.sources.setdefault(space, {}).pop(source, None)
        if given:
            self.sources[space][source] = str(given)

    @stateful.rule(space=SPACES, names=st.lists(st.sampled_from(NAMES)), which=st.integers(0, 1), lost=st.booleans())
    def forget(self, space: str, names: list[str], which: int, lost: bool) -> None:
        held = self.spaces.setdefault(space, {})
        count = len(held.keys() & set(names))
        assert self.run(self.store(which, lost).forget_passages(space, names)) == count
        for name in names:
            held.pop(name, None)

    @stateful.rule(space=SPACES, name=st.sampled_from(NAMES), which=st.integers(0, 1), lost=st.booleans())
    def forget_one(self, space: str, name: str, which: int, lost: bool) -> None:
        held = self.spaces.setdefault(space, {})
        ids = {one.name: one.id for one in self.run(self.worlds[which].store.list_passages(space)).items}
        there = self.run(self.store(which, lost).forget_passage(space, ids.get(name, "mem_none")))
        assert there is (held.pop(name, None) is not None)

    @stateful.rule(space=SPACES, which=st.integers(0, 1))
    def clear(self, space: str, which: int) -> None:
        held = self.spaces.pop(space, {})
        assert self.run(self.worlds[which].store.clear_space(space)) == len(held)
        self.sources.pop(space, None)

    @stateful.rule(which=st.integers(0, 1))
    def look_for_work(self, which: int) -> None:
        found = self.run(self.worlds[which].store.unembedded(E, 100))
        waiting = [one["text"] for held in self.spaces.values() for one in held.values() if not one["embedded"]]
        assert sorted(one.text for one in found) == sorted(waiting)
        self.seen = [(one, one.text) for one in found]

    @stateful.rule(which=st.integers(0, 1), lost=st.booleans())
    def embed(self, which: int, lost: bool) -> None:
        """Vectors of texts that were looked at some time ago: some are of another text by now."""
        seen, self.seen = self.seen, []
        still = {(one.key, one.version) for one in self.run(self.worlds[which].store.unembedded(E, 100))}
        vectors = [NewVector(key=one.key, version=one.version, vector=vector_of(text)) for one, text in seen]
        store = self.store(which, lost) if any((one.key, one.version) in still for one, _ in seen) else None
        self.run((store or self.worlds[which].store).keep_vectors(E, vectors))
        left = {(one.key, one.version) for one in self.run(self.worlds[which].store.unembedded(E, 100))}
        assert left == still - {(one.key, one.version) for one, _ in seen}
        waiting = sorted(one.text for one in self.run(self.worlds[which].store.unembedded(E, 100)))
        for held in self.spaces.values():  # of two with one text it does not matter which has its vector already
            for one in held.values():
                if not one["embedded"]:
                    one["embedded"] = one["text"] not in waiting
                    if not one["embedded"]:
                        waiting.remove(one["text"])

    @stateful.invariant()
    def nothing_differs(self) -> None:
        for space, held in self.spaces.items():
            for world in self.worlds:
                listed = self.run(world.store.list_passages(space)).items
                assert {(one.name, one.text, one.source) for one in listed} == {
                    (name, one["text"], one["source"]) for name, one in held.items()
                }
                assert self.run(world.store.sources(space)) == self.sources.get(space, {})
                for word in WORDS:
                    by_word = {name for name, one in held.items() if word in one["text"].split()}
                    assert self.found(world, space, word, None) == by_word
                    near = {name for name, one in held.items() if one["embedded"] and one["text"].split()[0] == word}
                    assert self.found(world, space, "", vector_of(word)) == near or not self.told_apart(held, word)
                    assert self.found(world, space, word, vector_of(word)) >= by_word

    def told_apart(self, held: dict[str, dict[str, Any]], word: str) -> bool:
        """Whether the model knows which of some passages with one text have their vectors."""
        texts = [one["text"] for one in held.values() if one["text"].split()[0] == word]
        everywhere = [one["text"] for each in self.spaces.values() for one in each.values()]
        return all(everywhere.count(text) == 1 for text in texts)

    def found(self, world: Any, space: str, words: str, near: bytes | None) -> set[str]:
        return {one.name for one in self.run(world.store.search_passages(space, words, near, E, 50))}

    def new(self, name: str, text: str, embedded: bool) -> NewPassage:
        return NewPassage(id=f"mem_{name}", name=name, text=text, vector=vector_of(text) if embedded else None)

    def take(self, held: dict[str, dict[str, Any]], given: dict[str, tuple[str, bool]], source: str | None) -> None:
        for name, (text, embedded) in given.items():
            same = name in held and held[name]["text"] == text
            kept = same and held[name]["embedded"]
            held[name] = {"text": text, "source": source, "embedded": embedded or kept}


def test_no_history_parts_what_is_found_from_what_was_kept(new_world: Callable[[], Any]) -> None:
    stateful.run_state_machine_as_test(
        lambda: PassageHistory(new_world),
        settings=settings(
            max_examples=TRIALS, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
