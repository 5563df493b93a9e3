"""The hub hands committed events to readers and the worker: in order, bounded, and to nobody else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.tool_call import Effect, ToolCall
from amoxi_py.engine.hub import Follower, Hub

BOUND = 10.0
ENDS = [kind for kind in EventType if kind.ends_run]
BUFFER = 1000


def event(seq: int = 1, *, type: EventType = EventType.TOOL_PROGRESS, run: int = 1, conversation: int = 1) -> Event:
    return Event(conversation=conversation, seq=seq, run=run, run_id=f"run_{run}", type=type)


def of_child_run(
    seq: int,
    *,
    type: EventType = EventType.TOOL_PROGRESS,
    run: int = 2,
    hidden: bool = False,
    source: int | None = None,
) -> Event:
    return Event(conversation=1, seq=seq, run=run, run_id=f"run_{run}", type=type, hidden=hidden, source=source)


def result(seq: int, size: int) -> Event:
    call = ToolCall(id=f"call_{seq}", turn=1, n=seq, tool="t", arguments="{}", effect=Effect.UNSAFE, result="x" * size)
    kind = EventType.TOOL_COMPLETED
    return Event(conversation=1, seq=seq, run=1, run_id="run_1", type=kind, subject=call)


def seqs(events: list[Event]) -> list[int]:
    return [each.seq for each in events]


async def bounded(awaitable: Any) -> Any:
    async with asyncio.timeout(BOUND):
        return await awaitable


# -- followers


def test_a_reader_gets_the_events_of_its_conversation_in_the_order_of_the_log() -> None:
    async def story() -> tuple[list[int], list[int]]:
        hub = Hub()
        follower = hub.follow(1)
        hub.publish([event(1), event(2, conversation=2), event(3, run=2)])
        hub.publish([event(4)])
        first = await bounded(follower.take())
        hub.publish([event(5)])
        return seqs(first), seqs(await bounded(follower.take()))

    assert asyncio.run(story()) == ([1, 3, 4], [5])


def test_several_readers_of_one_conversation_get_all_events_each() -> None:
    async def story() -> list[list[int]]:
        hub = Hub()
        followers = [hub.follow(1) for _ in range(3)]
        hub.publish([event(1), event(2)])
        return [seqs(await bounded(follower.take())) for follower in followers]

    assert asyncio.run(story()) == [[1, 2]] * 3


def test_a_reader_that_waits_is_woken_by_the_next_event() -> None:
    async def story() -> list[int]:
        hub = Hub()
        follower = hub.follow(1)
        reading = asyncio.create_task(follower.take())
        await asyncio.sleep(0)
        hub.publish([event(1, conversation=2)])
        await asyncio.sleep(0)
        assert not reading.done()
        hub.publish([event(2)])
        return seqs(await bounded(reading))

    assert asyncio.run(story()) == [2]


def test_a_reader_that_gives_up_waiting_loses_nothing() -> None:
    async def story() -> list[int]:
        hub = Hub()
        follower = hub.follow(1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(follower.take(), 0.001)
        hub.publish([event(1), event(2)])
        return seqs(await bounded(follower.take()))

    assert asyncio.run(story()) == [1, 2]


def test_a_reader_that_is_too_slow_is_sent_back_to_the_log_and_keeps_nothing() -> None:
    async def story() -> None:
        hub = Hub()
        slow, other = hub.follow(1), hub.follow(2)
        hub.publish([event(seq) for seq in range(BUFFER)])
        assert not slow.overflowed
        hub.publish([event(BUFFER), event(1, conversation=2)])
        assert slow.overflowed
        hub.publish([event(seq) for seq in range(5 * BUFFER)])
        assert len(slow._events) == 0, "a reader that never reads costs no memory"
        assert await bounded(slow.take()) == []
        assert not other.overflowed
        assert seqs(await bounded(other.take())) == [1]

    asyncio.run(story())


def test_a_reader_is_sent_back_to_the_log_when_what_waits_for_it_is_large() -> None:
    async def story() -> None:
        hub = Hub()
        slow = hub.follow(1)
        results = [result(seq, 60_000) for seq in range(50)]
        hub.publish(results[:8])
        assert not slow.overflowed, "the results of a reply that come together are told as they come"
        hub.publish(results[8:])
        assert slow.overflowed
        assert len(slow._events) == 0
        slow.restart()
        hub.publish(results[:8])
        assert seqs(await bounded(slow.take())) == list(range(8))
        for one in results:
            hub.publish([one])
            assert len(await bounded(slow.take())) == 1, "what was taken does not count any more"

    asyncio.run(story())


def test_one_event_is_told_however_large_it_is() -> None:
    async def story() -> list[int]:
        hub = Hub()
        follower = hub.follow(1)
        hub.publish([result(1, 10_000_000)])
        return seqs(await bounded(follower.take()))

    assert asyncio.run(story()) == [1]


def test_a_full_buffer_is_given_whole_and_in_order() -> None:
    async def story() -> list[int]:
        hub = Hub()
        follower = hub.follow(1)
        hub.publish([event(seq) for seq in range(BUFFER)])
        return seqs(await bounded(follower.take()))

    assert asyncio.run(story()) == list(range(BUFFER))


def test_a_reader_that_waits_is_woken_when_one_commit_brings_too_many_at_once() -> None:
    async def story() -> list[Event]:
        follower = Follower()
        reading = asyncio.create_task(follower.take())
        await asyncio.sleep(0)
        for seq in range(BUFFER + 1):
            follower.push(event(seq))
        return list(await bounded(reading))

    assert asyncio.run(story()) == []


def test_after_a_restart_a_reader_gets_what_came_since() -> None:
    async def story() -> list[int]:
        hub = Hub()
        follower = hub.follow(1)
        hub.publish([event(seq) for seq in range(BUFFER + 1)])
        follower.restart()
        assert not follower.overflowed
        hub.publish([event(5000), event(5001)])
        return seqs(await bounded(follower.take()))

    assert asyncio.run(story()) == [5000, 5001]


def test_a_reader_that_left_gets_nothing_more_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        hub = Hub()
        gone, stays = hub.follow(1), hub.follow(1)
        hub.unfollow(1, gone)
        hub.publish([event(1)])
        assert len(gone._events) == 0
        assert seqs(await bounded(stays.take())) == [1]
        hub.unfollow(1, stays)
        assert not hub.conversations()

    asyncio.run(story())


# -- watchers


def test_a_watcher_sees_the_events_of_its_run_alone_until_it_is_taken_off() -> None:
    hub = Hub()
    seen: list[int] = []

    def watch(each: Event) -> None:
        seen.append(each.seq)

    hub.watch(1, 1, watch)
    hub.publish([event(1), event(2, run=2), event(3)])
    hub.unwatch(1, 1, watch)
    hub.publish([event(4)])
    assert seen == [1, 3]


def test_taking_off_an_old_watcher_leaves_a_newer_one() -> None:
    hub = Hub()
    old: list[Event] = []
    new: list[Event] = []
    first, second = old.append, new.append
    hub.watch(1, 1, first)
    hub.watch(1, 1, second)
    hub.unwatch(1, 1, first)
    hub.publish([event(1)])
    assert (old, seqs(new)) == ([], [1])


# -- ends


@pytest.mark.parametrize("kind", ENDS)
def test_all_who_wait_for_a_runs_end_are_told_once(kind: EventType) -> None:
    async def story() -> None:
        hub = Hub()
        waiters = [hub.end_of("run_1", 1) for _ in range(3)]
        other = hub.end_of("run_2", 1)
        hub.publish([event(1, type=EventType.MESSAGE_COMPLETED)])
        assert not any(waiter.done() for waiter in waiters)
        hub.publish([event(2, type=kind)])
        for waiter in waiters:
            await bounded(waiter)
        assert not other.done()
        hub.publish([event(3, type=kind)])
        hub.forget_end("run_2", 1, other)
        assert not hub.conversations(), "nothing is left of those who were told"

    asyncio.run(story())


def test_a_waiter_that_gave_up_harms_nobody_and_leaves_nothing_behind() -> None:
    async def story() -> None:
        hub = Hub()
        gone, cancelled, stays = (hub.end_of("run_1", 1) for _ in range(3))
        hub.forget_end("run_1", 1, gone)
        hub.forget_end("run_1", 1, gone)
        cancelled.cancel()
        hub.publish([event(1, type=EventType.RUN_COMPLETED)])
        await bounded(stays)
        assert not gone.done()
        hub.forget_end("run_1", 1, stays)
        last = hub.end_of("run_1", 1)
        hub.forget_end("run_1", 1, last)
        assert not hub.conversations()

    asyncio.run(story())


# -- child runs


def test_events_of_a_child_run_are_for_its_own_readers_and_those_of_its_root_for_the_roots() -> None:
    async def story() -> list[list[int]]:
        hub = Hub()
        everybody, of_root, of_child = hub.follow(1), hub.follow(1, 1), hub.follow(1, 2)
        hub.publish([event(1), of_child_run(2, hidden=True), of_child_run(3, run=1, source=2), event(4, run=3)])
        return [seqs(await bounded(one.take())) for one in (everybody, of_root, of_child)]

    assert asyncio.run(story()) == [[1, 3, 4], [1, 3], [2]]


def test_who_executes_a_child_run_hears_what_its_roots_readers_are_told_of_it() -> None:
    hub = Hub()
    seen: list[Event | None] = []
    of_root: list[Event | None] = []
    hub.publish([of_child_run(1, run=1, source=2, type=EventType.APPROVAL_DECIDED)])
    hub.watch(2, 1, seen.append)
    hub.watch(1, 1, of_root.append)
    hub.publish([of_child_run(2, run=1, source=2, type=EventType.APPROVAL_DECIDED)])
    assert seqs([each for each in seen if each is not None]) == [1, 2]
    assert of_root == []


def test_the_end_of_a_child_run_tells_the_worker_that_the_one_above_may_go_on() -> None:
    hub = Hub()
    told = wakes(hub)
    hub.publish([of_child_run(1, type=EventType.RUN_QUEUED, hidden=True)])
    assert len(told) == 1
    hub.publish([of_child_run(2, type=EventType.RUN_STARTED, hidden=True)])
    assert len(told) == 1
    hub.publish([of_child_run(3, type=EventType.RUN_COMPLETED, hidden=True)])
    assert len(told) == 2
    types: list[Any] = []
    hub.listeners.append(types.append)
    hub.publish([of_child_run(4, type=EventType.RUN_FAILED, hidden=True)])
    assert types == [set()], "handlers get no hidden events"


# -- a store that does not tell all


def test_the_hub_is_interested_in_a_conversation_for_as_long_as_somebody_is() -> None:
    async def story() -> None:
        hub = Hub()
        wanted = hub.conversations()
        follower = hub.follow(1)
        seen: list[Event | None] = []
        watch = seen.append
        hub.watch(20, 2, watch)
        end = hub.end_of("run_30", 3)
        again = hub.end_of("run_31", 3)
        assert set(wanted) == {1, 2, 3}
        hub.unfollow(1, follower)
        hub.publish([event(1, type=EventType.RUN_COMPLETED, run=30, conversation=3)])
        assert end.done()
        assert set(wanted) == {2, 3}
        hub.unwatch(20, 2, watch)
        hub.forget_end("run_31", 3, again)
        assert set(wanted) == set()

    asyncio.run(story())


def test_what_was_missed_of_one_conversation_is_told_to_those_who_are_interested_in_it_alone() -> None:
    async def story() -> None:
        hub = Hub()
        reader, other_reader = hub.follow(1), hub.follow(2)
        seen: list[tuple[int, Event | None]] = []
        hub.watch(10, 1, lambda each: seen.append((10, each)))
        hub.watch(20, 2, lambda each: seen.append((20, each)))
        end, other_end = hub.end_of("run_10", 1), hub.end_of("run_20", 2)
        told = wakes(hub)
        hub.missed(1)
        hub.missed(7)
        assert (reader.overflowed, other_reader.overflowed) == (True, False)
        assert (end.done(), other_end.done()) == (True, False)
        assert seen == [(10, None)]
        assert told == []
        hub.publish([event(1, type=EventType.RUN_COMPLETED, run=20, conversation=2)])
        assert other_end.done()

    asyncio.run(story())


def test_all_are_told_when_anything_may_have_been_missed() -> None:
    async def story() -> None:
        hub = Hub()
        reader = hub.follow(1)
        seen: list[Event | None] = []
        heard: list[Any] = []
        hub.watch(20, 2, seen.append)
        hub.listeners.append(heard.append)
        end = hub.end_of("run_30", 3)
        told = wakes(hub)
        hub.miss()
        assert (reader.overflowed, seen, heard, end.done(), told) == (True, [None], [None], True, [1])
        assert set(hub.conversations()) == {1, 2}

    asyncio.run(story())


def test_news_wakes_the_worker_when_a_run_may_be_due_and_tells_listeners_its_types() -> None:
    hub = Hub()
    told = wakes(hub)
    heard: list[Any] = []
    hub.listeners.append(heard.append)
    hub.news({EventType.MESSAGE_COMPLETED}, False)
    assert told == []
    hub.news({EventType.RUN_QUEUED, EventType.RUN_FAILED}, True)
    assert told == [1]
    assert heard == [{EventType.MESSAGE_COMPLETED}, {EventType.RUN_QUEUED, EventType.RUN_FAILED}]


def test_listeners_hear_of_which_types_the_events_of_a_commit_are() -> None:
    hub = Hub()
    heard: list[Any] = []
    hub.listeners.append(heard.append)
    hub.publish([event(1, type=EventType.RUN_QUEUED), event(2, type=EventType.RUN_STARTED), event(1, run=2)])
    assert heard == [{EventType.RUN_QUEUED, EventType.RUN_STARTED, EventType.TOOL_PROGRESS}]


@pytest.mark.parametrize("kind", [EventType.RUN_CANCELLED, EventType.APPROVAL_DECIDED])
def test_what_happened_to_a_run_before_it_was_watched_is_heard_when_it_is(kind: EventType) -> None:
    hub = Hub()
    seen: list[Event | None] = []
    hub.publish([event(1, type=EventType.TOOL_PROGRESS), event(2, type=kind), event(3, type=kind, run=2)])
    hub.watch(1, 1, seen.append)
    assert [None if one is None else one.seq for one in seen] == [2]


def test_runs_whose_end_is_never_told_are_forgotten_in_the_end() -> None:
    hub = Hub()
    for run in range(20_000):
        hub.publish([event(1, type=EventType.RUN_QUEUED, run=run, conversation=run)])
    assert len(hub._queued) <= 10_000
    told = wakes(hub)
    hub.publish([event(2, type=EventType.RUN_COMPLETED, run=90_000, conversation=90_000)])
    assert told == [], "an end wakes the worker only where another run waits behind"
    hub.publish([event(2, type=EventType.RUN_COMPLETED, run=90_000, conversation=19_999)])
    assert told == [1]


# -- the worker


def wakes(hub: Hub) -> list[int]:
    """Return a list that grows with each wake-up of the worker."""
    told: list[int] = []
    hub.on_due = lambda: told.append(1)
    return told


def test_a_hub_without_a_worker_takes_all_events() -> None:
    Hub().publish([event(1, type=kind) for kind in EventType])


def test_the_worker_is_woken_once_for_all_new_runs_of_a_commit() -> None:
    hub = Hub()
    told = wakes(hub)
    hub.publish([event(1, type=EventType.RUN_QUEUED), event(2, type=EventType.RUN_QUEUED, run=2)])
    assert len(told) == 1


def test_the_worker_is_not_woken_for_a_run_that_started_in_the_same_commit() -> None:
    hub = Hub()
    told = wakes(hub)
    hub.publish([event(1, type=EventType.RUN_QUEUED), event(2, type=EventType.RUN_STARTED)])
    assert told == []


@pytest.mark.parametrize("decision", [EventType.APPROVAL_DECIDED])
def test_the_worker_is_woken_by_a_decision(decision: EventType) -> None:
    hub = Hub()
    told = wakes(hub)
    hub.publish([event(1, type=decision)])
    assert len(told) == 1


@pytest.mark.parametrize("kind", ENDS)
def test_the_worker_is_woken_by_an_end_when_another_run_is_queued_behind(kind: EventType) -> None:
    hub = Hub()
    hub.publish([event(1, type=EventType.RUN_QUEUED), event(2, type=EventType.RUN_STARTED)])
    hub.publish([event(3, type=EventType.RUN_QUEUED, run=2)])
    told = wakes(hub)
    hub.publish([event(4, type=kind, run=1)])
    assert len(told) == 1


@pytest.mark.parametrize("kind", ENDS)
def test_the_worker_is_left_alone_by_an_end_when_nothing_is_queued(kind: EventType) -> None:
    hub = Hub()
    hub.publish([event(1, type=EventType.RUN_QUEUED)])
    told = wakes(hub)
    hub.publish([event(2, type=kind)])
    assert told == []


def test_the_worker_is_left_alone_by_what_is_no_new_work() -> None:
    hub = Hub()
    hub.publish([event(1, type=EventType.RUN_QUEUED, run=9)])
    told = wakes(hub)
    quiet = [
        EventType.RUN_STARTED,
        EventType.RUN_RESUMED,
        EventType.MESSAGE_DELTA,
        EventType.MESSAGE_COMPLETED,
        EventType.MESSAGE_DISCARDED,
        EventType.TOOL_CALLED,
        EventType.TOOL_PROGRESS,
        EventType.TOOL_COMPLETED,
        EventType.APPROVAL_REQUESTED,
        EventType.RUN_WAITING,
    ]
    for kind in quiet:
        hub.publish([event(2, type=kind)])
    assert told == []
