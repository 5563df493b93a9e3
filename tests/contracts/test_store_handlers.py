"""Handlers of events: one living worker has each, what is done is kept, and a worker that lost it writes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.event import EventType
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.deliveries import Arrival, ArrivalPage, Behind, HandlerLease

pytestmark = pytest.mark.anyio

QUEUED = (EventType.RUN_QUEUED,)


async def lease(world: Any, worker: Any, name: str = "tell") -> HandlerLease:
    (found,) = await world.store.claim_handlers([name], worker)
    assert isinstance(found, HandlerLease)
    return found


async def arrived(world: Any, held: HandlerLease, after: int | None = None, limit: int = 100) -> ArrivalPage:
    page = await world.store.arrivals(held, QUEUED, after, limit)
    assert isinstance(page, ArrivalPage)
    return page


async def told(world: Any, held: HandlerLease, one: Arrival | Behind, until: int) -> str | None:
    found = await world.store.delivery(held, QUEUED, one.conversation, one.seq, until)
    return None if found is None else found.event.run_id


async def test_a_new_handler_begins_after_what_is_there_and_finds_each_event_of_its_types_in_order(world: Any) -> None:
    worker = await world.worker()
    await world.submit("before")
    held = await lease(world, worker)
    assert await world.store.behind(held) == ()
    runs = [(await world.submit(text)).run for text in ("one", "two", "three")]
    page = await arrived(world, held)
    assert [await told(world, held, one, one.place) for one in page.arrivals] == [run.id for run in runs]
    first = page.arrivals[0]
    found = await world.store.delivery(held, QUEUED, first.conversation, first.seq, page.read_to)
    assert (found.agent, found.conversation_id, found.principal) == (world.agent, runs[0].conversation_id, world.ann)
    assert (found.place, found.event.data["agent"]) == (first.place, world.agent)
    assert await world.store.delivery(held, QUEUED, first.conversation, first.seq, first.place - 1) is None
    assert await world.store.delivery(held, QUEUED, first.conversation, first.seq + 1, page.read_to) is None
    seen: list[Arrival] = []
    after, more = None, True
    while more:
        part = await arrived(world, held, after, 2)
        seen += part.arrivals
        after, more = part.read_to, part.more
    assert seen == list(page.arrivals)


async def test_a_handler_stands_where_it_has_come_to_but_for_the_conversations_that_are_behind(world: Any) -> None:
    worker = await world.worker()
    held = await lease(world, worker)
    for text in ("one", "two", "three"):
        await world.submit(text)
    one, two, three = (await arrived(world, held)).arrivals
    tried = Behind(conversation=one.conversation, seq=one.seq, tries=2, again_at=world.clock.now() + 5)
    new = Behind(conversation=two.conversation, seq=two.seq)
    for _ in range(2):  # the answer may be lost, and the verb is sent again
        await world.store.fall_behind(held, [tried, new], two.place)
    assert [each.place for each in (await arrived(world, held)).arrivals] == [three.place]
    await world.store.fall_behind(held, (), one.place)  # an older one comes late
    assert [each.place for each in (await arrived(world, held)).arrivals] == [three.place]
    first, second = await world.store.behind(held)
    assert (first.conversation, first.seq, first.tries) == (one.conversation, one.seq, 2)
    assert first.again_at == pytest.approx(world.clock.now() + 5, abs=0.01)
    assert second == new

    further = Behind(conversation=one.conversation, seq=one.seq + 3)
    await world.store.fall_behind(held, [further])
    await world.store.fall_behind(held, [tried])
    await world.store.catch_up(held, one.conversation, one.seq)
    await world.store.catch_up(held, two.conversation, two.seq)
    assert await world.store.behind(held) == (further,)
    await world.store.catch_up(held, one.conversation, further.seq)
    assert await world.store.behind(held) == ()


async def test_one_living_worker_has_a_handler_and_the_next_goes_on_where_it_stood(world: Any) -> None:
    first, second = await world.worker(lease_s=10), await world.worker(lease_s=60)
    held = await lease(world, first)
    assert await world.store.claim_handlers(["tell"], second) == ()
    assert await world.store.claim_handlers(["tell"], None) == ()
    assert await lease(world, first) == held
    await world.submit("one")
    (one,) = (await arrived(world, held)).arrivals
    row = Behind(conversation=one.conversation, seq=one.seq, tries=1)
    await world.store.fall_behind(held, [row], one.place)

    world.clock.move(11)
    taken = await lease(world, second)
    assert taken.fence == held.fence + 1
    assert await world.store.behind(taken) == (row,)
    for late in (
        world.store.fall_behind(held, (), one.place + 10),
        world.store.catch_up(held, one.conversation, one.seq),
        world.store.behind(held),
        world.store.arrivals(held, QUEUED, None, 10),
        world.store.delivery(held, QUEUED, one.conversation, one.seq, one.place),
    ):
        with pytest.raises(LeaseLost):
            await late
    assert await world.store.behind(taken) == (row,)

    await world.store.retire(second)
    third = await world.worker()
    await lease(world, third)


async def test_events_of_an_erased_conversation_are_not_told(world: Any) -> None:
    worker = await world.worker()
    held = await lease(world, worker)
    gone, kept = (await world.submit("gone")).run, (await world.submit("kept")).run
    await world.store.erase(gone.conversation_id, world.ann)
    page = await arrived(world, held)
    found = [await told(world, held, one, page.read_to) for one in page.arrivals]
    assert [run for run in found if run is not None] == [kept.id]
