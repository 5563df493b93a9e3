"""Places for requests to models: never too many at once, none is lost, and nobody waits longer than a round."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amoxi_py import agent
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.model_places import ModelPlaces
from amoxi_py.models.script import Gate
from amoxi_py.stores.sqlite.store import SqliteStore
from whole import some_of

Who = tuple[int, int]
COMES = st.tuples(st.just("comes"), st.integers(0, 2), st.integers(0, 2))
STEPS = st.lists(
    st.one_of(COMES, COMES, st.tuples(st.sampled_from(["ends", "leaves"]), st.integers(0, 30))), max_size=60
)


class Turns:
    """The same in the plainest words: a queue of principals, each with a queue of conversations, each with a queue."""

    def __init__(self, at_once: int) -> None:
        self.free = at_once
        self.waiting: deque[tuple[int, deque[tuple[int, deque[int]]]]] = deque()

    def come(self, who: Who, number: int) -> list[int]:
        if self.free:
            self.free -= 1
            return [number]
        for principal, conversations in self.waiting:
            if principal == who[0]:
                for conversation, numbers in conversations:
                    if conversation == who[1]:
                        numbers.append(number)
                        return []
                conversations.append((who[1], deque([number])))
                return []
        self.waiting.append((who[0], deque([(who[1], deque([number]))])))
        return []

    def end(self) -> list[int]:
        if not self.waiting:
            self.free += 1
            return []
        principal, conversations = self.waiting.popleft()
        conversation, numbers = conversations.popleft()
        number = numbers.popleft()
        if numbers:
            conversations.append((conversation, numbers))
        if conversations:
            self.waiting.append((principal, conversations))
        return [number]

    def leave(self, number: int) -> None:
        kept: deque[tuple[int, deque[tuple[int, deque[int]]]]] = deque()
        for principal, conversations in self.waiting:
            left = deque((one, deque(n for n in numbers if n != number)) for one, numbers in conversations)
            left = deque((one, numbers) for one, numbers in left if numbers)
            if left:
                kept.append((principal, left))
        self.waiting = kept


@settings(max_examples=some_of(60), deadline=None)
@given(at_once=st.integers(1, 3), steps=STEPS)
def test_whatever_comes_ends_and_gives_up_places_go_round_in_turn_and_none_is_lost(
    at_once: int, steps: list[tuple[Any, ...]]
) -> None:
    async def play() -> None:
        places, turns, numbers = ModelPlaces(at_once), Turns(at_once), count()
        tasks: dict[int, tuple[asyncio.Task[None], asyncio.Event]] = {}
        given_out: list[int] = []
        expected: list[int] = []

        async def hold(who: Who, number: int, done: asyncio.Event) -> None:
            async with places.place(*who):
                given_out.append(number)
                await done.wait()

        async def settle() -> None:
            for _ in range(4):
                await asyncio.sleep(0)

        holding: list[int] = []
        for kind, first, *rest in steps:
            waiting = [number for number in tasks if number not in holding]
            if kind == "comes":
                number, done = next(numbers), asyncio.Event()
                tasks[number] = asyncio.create_task(hold((first, rest[0]), number, done)), done
                got = turns.come((first, rest[0]), number)
            elif kind == "ends" and holding:
                number = holding.pop(first % len(holding))
                tasks.pop(number)[1].set()
                got = turns.end()
            elif kind == "leaves" and waiting:
                number = waiting[first % len(waiting)]
                tasks.pop(number)[0].cancel()
                turns.leave(number)
                got = []
            else:
                continue
            await settle()
            holding += got
            expected += got
            assert given_out == expected
            assert len(holding) <= at_once
        for task, _ in tasks.values():
            task.cancel()
        await asyncio.gather(*(task for task, _ in tasks.values()), return_exceptions=True)
        async with asyncio.timeout(60):  # all places are free again
            for _ in range(at_once):
                await places.place(0, 0).__aenter__()
        assert not places._waiting  # nothing of those who left

    asyncio.run(play())


def test_a_place_that_is_given_to_somebody_who_gives_up_in_the_same_moment_goes_on_to_the_next() -> None:
    async def play() -> list[str]:
        places, order = ModelPlaces(1), list[str]()

        async def take(name: str) -> None:
            async with places.place(name, 1):
                order.append(name)

        async with places.place("first", 1):
            gives_up, next_one = asyncio.create_task(take("gives up")), asyncio.create_task(take("next"))
            await asyncio.sleep(0)
        gives_up.cancel()  # its place was given out, and it has not run since
        async with asyncio.timeout(60):
            await asyncio.gather(gives_up, next_one, return_exceptions=True)
        return order

    assert asyncio.run(play()) == ["next"]


def test_a_conversation_with_fifty_waiting_requests_keeps_another_one_waiting_for_one_of_them() -> None:
    async def play() -> list[str]:
        places, order = ModelPlaces(1), list[str]()

        async def take(principal: str, conversation: str) -> None:
            async with places.place(principal, conversation):
                order.append(conversation)

        async with places.place("busy", "holds"):
            tasks = [asyncio.create_task(take("busy", "fifty")) for _ in range(50)]
            tasks += [asyncio.create_task(take("busy", "one")), asyncio.create_task(take("other", "theirs"))]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(play())[:4] == ["fifty", "theirs", "one", "fifty"]


@agent
class Helper:
    """Help."""


@pytest.mark.parametrize("at_once", [1, 2])
def test_no_more_requests_are_at_the_model_than_the_setting_allows(
    with_engine: Any, tmp_path: Any, at_once: int
) -> None:
    gate, asked = Gate(), list[str]()

    def script(request: Any) -> list[Any]:
        asked.append(request.messages[-1].text)
        return [gate, "Done."]

    async def story(engine: Any) -> None:
        people = [Principal(id=f"user:{name}") for name in "abcd"]
        runs = [(await engine.submit("helper", one.id, principal=one)).run for one in people]
        assert await gate.reached()
        async with asyncio.timeout(60):
            while len(asked) < at_once:
                await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(asked) == at_once
        gate.open()
        ended = [await engine.wait(run.id, one, timeout=60) for run, one in zip(runs, people, strict=True)]
        assert [run.status for run in ended] == ["completed"] * 4

    with_engine(SqliteStore(tmp_path), [Helper], script, story, models_at_once=at_once)
    assert len(asked) == 4
