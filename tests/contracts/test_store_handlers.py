"""Handlers of events: one living worker has each, what is done is kept, and a worker that lost it writes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.event import EventType
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.deliveries import Delivered, DeliveryPage, HandlerLease

pytestmark = pytest.mark.anyio

QUEUED = (EventType.RUN_QUEUED,)


async def lease(world: Any, worker: Any, name: str = "tell") -> HandlerLease:
    (found,) = await world.store.claim_handlers([name], worker)
    assert isinstance(found, HandlerLease)
    return found


async def told(world: Any, held: HandlerLease, after: int | None = None, limit: int = 100) -> DeliveryPage:
    page = await world.store.deliveries(held, QUEUED, after, limit)
    assert isinstance(page, DeliveryPage)
    return page


async def test_a_new_handler_begins_after_what_is_there_and_is_told_each_event_of_its_types_in_order(
    world: Any,
) -> None:
    worker = await world.worker()
    await world.submit("before")
    held = await lease(world, worker)
    runs = [(await world.submit(text)).run for text in ("one", "two", "three")]
    page = await told(world, held)
    assert [one.event.run_id for one in page.deliveries] == [run.id for run in runs]
    first = page.deliveries[0]
    assert (first.agent, first.conversation_id, first.principal) == (
        world.agent,
        runs[0].conversation_id,
        world.ann,
    )
    assert (first.event.data["agent"], first.tries, first.again_at) == (world.agent, 0, None)
    seen, after, more = [], None, True
    while more:
        part = await told(world, held, after, 2)
        seen += [one.place for one in part.deliveries]
        after, more = part.read_to, part.more
    assert seen == [one.place for one in page.deliveries]


async def test_what_is_done_is_not_told_again_and_what_was_tried_is_told_with_its_tries(world: Any) -> None:
    worker = await world.worker()
    held = await lease(world, worker)
    for text in ("one", "two", "three", "four"):
        await world.submit(text)
    one, two, three, four = [each.place for each in (await told(world, held)).deliveries]
    settled = [
        Delivered(place=one, tries=1, done=True),
        Delivered(place=two, tries=2, again_at=world.clock.now() + 5),
        Delivered(place=three, tries=1, done=True),
    ]
    for _ in range(2):  # the answer may be lost, and the verb is sent again
        await world.store.settle_deliveries(held, settled, one)
    left = (await told(world, held)).deliveries
    assert [(each.place, each.tries) for each in left] == [(two, 2), (four, 0)]
    assert left[0].again_at == pytest.approx(world.clock.now() + 5, abs=0.01)
    await world.store.settle_deliveries(held, [Delivered(place=two, tries=3, done=True)], three)
    await world.store.settle_deliveries(held, (), one)
    assert [each.place for each in (await told(world, held)).deliveries] == [four]


async def test_one_living_worker_has_a_handler_and_the_next_goes_on_where_it_stood(world: Any) -> None:
    first, second = await world.worker(lease_s=10), await world.worker(lease_s=60)
    held = await lease(world, first)
    assert await world.store.claim_handlers(["tell"], second) == ()
    assert await world.store.claim_handlers(["tell"], None) == ()
    assert await lease(world, first) == held
    await world.submit("one")
    (delivery,) = (await told(world, held)).deliveries
    await world.store.settle_deliveries(held, [Delivered(place=delivery.place, tries=1)], delivery.place - 1)

    world.clock.move(11)
    taken = await lease(world, second)
    assert taken.fence == held.fence + 1
    assert [one.tries for one in (await told(world, taken)).deliveries] == [1]
    for late in (
        world.store.settle_deliveries(held, (), delivery.place),
        world.store.deliveries(held, QUEUED, None, 10),
    ):
        with pytest.raises(LeaseLost):
            await late
    assert len((await told(world, taken)).deliveries) == 1

    await world.store.retire(second)
    third = await world.worker()
    await lease(world, third)


async def test_events_of_an_erased_conversation_are_not_told(world: Any) -> None:
    worker = await world.worker()
    held = await lease(world, worker)
    gone, kept = (await world.submit("gone")).run, (await world.submit("kept")).run
    await world.store.erase(gone.conversation_id, world.ann)
    assert [one.event.run_id for one in (await told(world, held)).deliveries] == [kept.id]
