"""The numbered log: what is told live, and what is read later, are the same, in the same order."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.ports.views import LogPage, event_size

pytestmark = pytest.mark.anyio


async def test_the_log_read_later_is_what_was_told_live(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    lease = await world.start(worker)
    calls = [world.call(lease, 1, 0), world.call(lease, 1, 1, approval=world.approval(expires_at=2e9 + 0.0009))]
    await world.store.write(world.reply(lease, 1, *calls, text="both"))
    await world.store.write(world.change(lease, starts=((1, 0),)))
    progress = NewEvent(type=EventType.TOOL_PROGRESS, turn=1, n=0, data='{"text":"half way"}', subject=calls[0])
    await world.store.write(world.change(lease, events=(progress,)))
    await world.store.write(world.result(lease, calls[0], {"big": 2**80, "none": None}))
    await world.store.pause(world.change(lease), None, ("approval",))
    await world.store.decide(world.verdict(calls[1], lease, decision="decline", reason="no"))
    (lease,) = await world.claim(worker)
    await world.store.write(world.result(lease, calls[1], "declined", status=CallStatus.DECLINED))
    world.clock.move(6.1234567)
    (lease,) = await world.claim(await world.worker())
    await world.store.write(world.finish(lease, 2))
    stored = await world.log(lease, page=3)
    assert [(one.seq, one.type, one.data) for one in stored] == [(one.seq, one.type, one.data) for one in world.told]
    assert [one.seq for one in stored] == list(range(1, len(stored) + 1))


async def test_a_runs_log_is_its_own_events_and_says_where_it_ends(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.submit(conversation=conversation, on_busy="queue")
    open_position = await world.store.find_log(world.ann, run_id=lease.run_id)
    assert (open_position.first_seq, open_position.last_seq, open_position.ended_seq) == (1, 5, None)
    await world.store.write(world.finish(lease, 1))
    (behind,) = await world.claim(worker)
    await world.store.write(world.finish(behind, 1))
    position = await world.store.find_log(world.ann, run_id=lease.run_id)
    events = (await world.store.read_log(position, 0, 100, 10**6)).events
    assert {event.run for event in events} == {lease.run}
    assert (events[-1].seq, events[-1].type.ends_run) == (position.ended_seq, True)
    second = await world.store.find_log(world.ann, run_id=behind.run_id)
    assert (await world.store.read_log(second, 0, 100, 10**6)).events[0].seq == second.first_seq == 4
    whole = await world.store.find_log(world.ann, conversation_id=conversation)
    assert (whole.run, whole.first_seq, whole.last_seq, whole.ended_seq) == (None, 4, second.ended_seq, None)
    assert len((await world.store.read_log(whole, 0, 100, 10**6)).events) == len(world.told)


async def test_a_finished_message_stands_in_place_of_its_deltas(world: Any) -> None:
    lease = await world.start(await world.worker())
    for n in range(5):
        await world.store.write(world.delta(lease, "msg_1", n, "x"))
    await world.store.write(world.finish(lease, 1))
    stored = await world.log(lease)
    assert [event.seq for event in stored] == [1, 2, 3, 9, 10]
    assert [event.seq for event in world.told] == list(range(1, 11))
    position = await world.store.find_log(world.ann, run_id=lease.run_id)
    page = await world.store.read_log(position, 5, 1, 10**6)
    assert ([event.seq for event in page.events], page.more) == ([9], True)
    assert await world.store.read_log(position, 10, 5, 10**6) == LogPage(events=(), more=False)
    assert await world.store.read_log(position, 999, 5, 10**6) == LogPage(events=(), more=False)


async def test_a_page_of_the_log_is_bounded_in_size_and_has_one_event_at_least(world: Any) -> None:
    lease = await world.start(await world.worker())
    calls = [world.call(lease, 1, n) for n in range(20)]
    await world.store.write(world.reply(lease, 1, *calls, text="y" * 50_000))
    for call in calls:
        await world.store.write(world.result(lease, call, "x" * 10_000))
    await world.store.write(world.finish(lease, 2))
    told = [(one.seq, one.data) for one in world.told]
    position = await world.store.find_log(world.ann, run_id=lease.run_id)
    for limit_size in (1, 25_000, 70_000, 10**6):
        pages, after, more = [], 0, True
        while more:
            page = await world.store.read_log(position, after, 500, limit_size)
            pages.append(page.events)
            after, more = page.events[-1].seq, page.more
        assert [(one.seq, one.data) for events in pages for one in events] == told
        for events, following in pairwise([*pages, ()]):
            size = sum(map(event_size, events))
            assert size <= limit_size or len(events) == 1
            assert not following or size + event_size(following[0]) > limit_size, "a page takes what it can"
    assert len(pages) == 1, "a log that fits is read at once"


async def test_an_event_keeps_no_more_than_it_tells(world: Any) -> None:
    """A reply's message and its calls do not bring the results that came after them."""
    lease = await world.start(await world.worker())
    calls = [world.call(lease, 1, n, approval=world.approval()) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    for call in calls:
        await world.store.write(world.result(lease, call, "x" * 10_000))
    sizes = {event.seq: event_size(event) for event in await world.log(lease)}
    with_result = {event.seq for event in world.told if event.type is EventType.TOOL_COMPLETED}
    assert {seq for seq, size in sizes.items() if size > 10_000} == with_result
    assert max(sizes.values()) < 10_100


async def test_processes_hear_of_each_others_events_in_the_order_of_the_log(world: Any) -> None:
    """What another process commits is told before anything that this one commits after it."""
    async with world.other_process() as other:
        worker, there = await world.worker(), await other.worker()
        leases = [await world.start(worker) for _ in range(5)] + [await other.start(there) for _ in range(5)]

        async def work(lease: Any) -> None:
            home = world if lease.worker == worker.key else other
            calls = [home.call(lease, 1, n, status=CallStatus.STARTED) for n in range(8)]
            await home.store.write(home.reply(lease, 1, *calls))
            for call in calls:
                progress = NewEvent(type=EventType.TOOL_PROGRESS, turn=1, n=call.n, data='{"text":"x"}', subject=call)
                await home.store.write(home.change(lease, events=(progress,)))
                await home.store.write(home.result(lease, call))

        async def disturb(lease: Any, home: Any) -> None:
            conversation = (await home.store.get_run(lease.run_id, home.ann)).conversation_id
            for _ in range(3):
                await home.submit(conversation=conversation, on_busy="queue")

        async with anyio.create_task_group() as tasks:
            for place, lease in enumerate(leases):
                tasks.start_soon(work, lease)
                tasks.start_soon(disturb, lease, (other, world)[place % 2])
        for lease in leases:
            stored = [(event.seq, event.data) for event in await world.log(lease)]
            for home in (world, other):
                heard = lambda home=home, lease=lease: [  # noqa: E731
                    (event.seq, event.data) for event in home.told if event.conversation == lease.conversation
                ]
                await world.until(lambda heard=heard, stored=stored: len(heard()) >= len(stored))
                assert heard() == stored
