"""Two processes write to one conversation at the same moment: what comes of it must be what some order of them gives.

What each order gives is found out by the embedded store, one verb after another; its own histories are checked against
a model. A claim may pass over what somebody else writes to at that moment, so one that got nothing may be left out.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import Conflict, LeaseLost, NotFound
from whole import some_of

OF_THE_WORKER = ("result", "pause", "release", "finish", "listen")
OF_OTHERS = ("cancel", "approve", "decline", "answer", "signal", "queue", "replace", "claim", "erase")
VERBS = (*OF_THE_WORKER, *OF_OTHERS)
OUTCOMES = (Conflict, LeaseLost, NotFound)
REFUSALS = [outcome.__name__ for outcome in OUTCOMES]
Play = tuple[str, bool, bool]
"""A verb, whether it is done in the other process, and whether an answer of that process is lost."""
PLAYS = st.lists(
    st.tuples(st.sampled_from(VERBS), st.booleans(), st.booleans()),
    min_size=2,
    max_size=4,
    unique_by=lambda play: "worker" if play[0] in OF_THE_WORKER else play[0],  # a worker does one thing with a run
)


class Scene:
    """A run with a started call, one to decide about and one that asks, and another run behind it; two workers."""

    def __init__(self, world: Any, waits: bool) -> None:
        self.world = world
        self._waits = waits

    async def prepare(self) -> None:
        world = self.world
        self.workers = [await world.worker(), await world.worker()]
        self.first = world.submission("first", claim_by=self.workers[0])
        submitted = await world.store.submit(self.first)
        assert submitted.rows is not None
        self.lease = submitted.rows.lease
        self.conversation = self.first.conversation_id
        behind = world.submission("behind", conversation=self.conversation, on_busy="queue")
        await world.store.submit(behind)
        self.sent = [self.first, behind]
        asked = world.call(self.lease, 1, 1, approval=world.approval())
        self.started, self.asked = world.call(self.lease, 1, 0, status=CallStatus.STARTED), asked
        self.asks = world.call(self.lease, 1, 2, status=CallStatus.STARTED)
        calls = (asked, self.asks) if self._waits else (self.started, asked, self.asks)
        await world.store.write(world.reply(self.lease, 1, *calls))
        await world.store.write(world.waits_for(self.lease, self.asks, "question", "Which?"))
        if self._waits:
            assert await world.store.pause(world.change(self.lease), None, ("approval", "question"))

    def verb(self, name: str, store: Any) -> Callable[[], Awaitable[Any]]:
        """Return what does a verb in one of the stores, and gives what is the same in every store."""
        world, lease = self.world, self.lease
        match name:
            case "result":
                change = world.result(lease, self.started if not self._waits else self.asked, "x")
                return lambda: _none(store.write(change))
            case "finish":
                finish = world.finish(lease, 2)
                return lambda: _none(store.write(finish))
            case "listen":
                listen = world.waits_for(lease, self.started, "signal", "go")
                return lambda: _none(store.write(listen))
            case "answer":
                return lambda: _none(store.answer(world.answer(self.asks, "a")))
            case "signal":
                sent_signal = world.signal(lease, "go", 1)
                return lambda: _none(store.signal(sent_signal))
            case "pause":
                pause = world.change(lease)
                return lambda: store.pause(pause, None, ("approval",))
            case "release":
                return lambda: store.release(lease)
            case "cancel":
                return lambda: _status(store.cancel(self.first.run_id, world.ann))
            case "approve" | "decline":
                verdict = world.verdict(self.asked, lease, decision=name)
                return lambda: _none(store.decide(verdict))
            case "queue" | "replace":
                sent = world.submission(name, conversation=self.conversation, on_busy=name)
                self.sent.append(sent)
                return lambda: _none(store.submit(sent))
            case "claim":
                return lambda: self._texts_of(store.claim(self.workers[1], 1, 5))
            case _:
                return lambda: _none(store.erase(self.conversation, world.ann))

    async def _texts_of(self, claiming: Awaitable[Any]) -> list[str]:
        names = {sent.run_id: sent.text for sent in self.sent}
        return [names[rows.lease.run_id] for rows in await claiming]

    async def outcome(self, store: Any) -> Any:
        """Return all that readers see, but for what each store chooses by itself."""
        ann = self.world.ann
        try:
            position = await store.find_log(ann, conversation_id=self.conversation)
        except NotFound:
            return "erased"
        names = {sent.run_id: sent.text for sent in self.sent}
        runs = {}
        for run_id, name in names.items():
            with suppress(NotFound):  # what came when all was erased
                run = await store.get_run(run_id, ann)
                runs[name] = (run.status, run.attempt, [one.kind for one in run.waiting_for])
        page = await store.read_conversation(self.conversation, ann, limit=100)
        log = (await store.read_log(position, 0, 1000, 10**9)).events
        numbers = [event.seq for event in log]
        assert numbers == sorted(set(numbers)), "the log has each number once"
        messages = [(names[one.run_id], one.role, one.text, list(map(_seen, one.calls))) for one in page.messages.items]
        events = {name: [event.type.label for event in log if event.run_id == run_id] for run_id, name in names.items()}
        return runs, messages, events


def _seen(call: Any) -> tuple[Any, ...]:
    return (call.n, call.status, call.result, None if call.wait is None else call.wait.value)


async def _status(cancelling: Awaitable[Any]) -> str:
    return str((await cancelling).status)


async def _none(doing: Awaitable[Any]) -> None:
    await doing


async def told(doing: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await doing()
    except OUTCOMES as error:
        return type(error).__name__


async def together(world: Any, plays: Sequence[Play], waits: bool) -> tuple[list[Any], Any]:
    """Do all verbs at the same moment, a worker's own in its process, and some with an answer that is lost."""
    await world.open()
    scene = Scene(world, waits)
    try:
        async with world.other_process() as other:
            await scene.prepare()
            doing, losing = [], {}
            for play in plays:
                name, _, lost = play
                place = other if in_other(play) else world
                doing.append(scene.verb(name, place.store))
                if lost:
                    losing[id(place)] = place
            for place in losing.values():
                place.lose_answer()
            answers = await asyncio.gather(*map(told, doing))
            seen = await scene.outcome(other.store)
            assert await scene.outcome(world.store) == seen
            for one in (world, other):
                numbers = [event.seq for event in one.told if event.conversation == scene.lease.conversation]
                assert numbers == sorted(set(numbers)), "each event is told once, in order"
        return answers, seen
    finally:
        await world.store.close()


async def one_by_one(
    world: Any, plays: Sequence[Play], waits: bool, order: Sequence[int], answers: Sequence[Any]
) -> tuple[list[Any], Any]:
    await world.open()
    scene = Scene(world, waits)
    try:
        await scene.prepare()
        doing = [scene.verb(name, world.store) for name, _, _ in plays]
        found = list(answers)
        for place in order:
            if plays[place][0] != "claim" or answers[place] != []:
                found[place] = await told(doing[place])
        return found, await scene.outcome(world.store)
    finally:
        await world.store.close()


def explains(possible: tuple[list[Any], Any], happened: tuple[list[Any], Any], plays: Sequence[Play]) -> bool:
    """Whether it comes to the same. What landed and is sent again may find that all has been taken away since."""
    losing = {in_other(play) for play in plays if play[2]}
    answers = [
        one if in_other(play) in losing and answer in REFUSALS else answer
        for play, one, answer in zip(plays, possible[0], happened[0], strict=True)
    ]
    return (answers, happened[1]) == possible


def in_other(play: Play) -> bool:
    """Whether it is done in the process that has no worker of the run."""
    return play[1] and play[0] not in OF_THE_WORKER


def test_what_two_processes_do_at_once_is_what_some_order_of_it_gives(
    new_world: Callable[[], Any], new_embedded_world: Callable[[], Any]
) -> None:
    @settings(max_examples=some_of(25), deadline=None, suppress_health_check=list(HealthCheck))
    @given(plays=PLAYS, waits=st.booleans())
    def check(plays: list[Play], waits: bool) -> None:
        happened = asyncio.run(together(new_world(), plays, waits))
        possible = []
        for order in itertools.permutations(range(len(plays))):
            possible.append(asyncio.run(one_by_one(new_embedded_world(), plays, waits, order, happened[0])))
            if explains(possible[-1], happened, plays):
                return
        raise AssertionError(f"no order gives {happened!r}; they give {possible!r}")

    check()
