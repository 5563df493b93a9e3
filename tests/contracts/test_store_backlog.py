"""What is open over all principals, for who watches the app: counted, and how old the oldest is."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.errors import LeaseLost
from amoxi_py.stores.sql import operating

pytestmark = pytest.mark.anyio


async def test_the_backlog_counts_what_waits_for_a_worker_what_one_has_and_open_approvals(world: Any) -> None:
    async def found() -> tuple[int, int, int, float]:
        backlog = await world.store.backlog(world.clock.now())
        return backlog.queued, backlog.running, backlog.approvals, round(backlog.oldest, 3)

    assert await found() == (0, 0, 0, 0.0)
    worker = await world.worker()
    waiting, call = await world.waiting_run(worker)
    await world.waiting_run(worker, expires_at=world.clock.now() + 3)
    running = await world.start(worker)
    assert await found() == (0, 1, 2, 0.0)
    await world.submit()
    world.clock.move(2)
    await world.submit(principal=world.bob)
    assert await found() == (2, 1, 2, 2.0)
    world.clock.move(5)
    assert await found() == (2, 1, 1, 7.0), "an approval that has expired is nobody's to decide"
    await world.store.decide(world.verdict(call, waiting))
    await world.store.write(world.finish(running, 1))
    assert await found() == (3, 0, 0, 7.0), "a decision makes its run claimable"
    await world.claim(worker, limit=1)
    queued, had, *_ = await found()
    assert (queued, had) == (2, 1)


async def test_the_backlog_counts_no_further_than_its_limit(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operating, "_COUNTED", 3)
    for _ in range(5):
        await world.submit()
    assert (await world.store.backlog(world.clock.now())).queued == 3


async def test_a_store_counts_what_it_commits_and_what_waits_to_be(world: Any) -> None:
    measures = world.store.measures
    measures.tools = {"refund_order"}
    worker = await world.worker()
    lease = await world.start(worker)
    known, made_up = (
        world.call(lease, 1, n, tool=tool) for n, tool in enumerate(("refund_order", "tool of a model's own"))
    )
    await world.until(lambda: measures.waiting == 0)  # what a worker's start sweeps away
    await world.store.write(world.reply(lease, 1, known, made_up))
    await world.store.write(world.result(lease, known))
    await world.store.write(world.result(lease, made_up))
    await world.store.write(world.finish(lease, 2))
    assert measures.calls == {("refund_order", "done"): 1, ("other", "done"): 1}
    assert sum(measures.events) == len(world.told)
    assert sum(measures.commit_seconds.counts) == sum(measures.batch_size.counts) >= 4
    assert measures.commit_seconds.total > 0
    assert measures.batch_size.total >= 4
    future = world.store.write(world.finish(lease, 3))
    assert measures.waiting >= 1
    with pytest.raises(LeaseLost):
        await future
    await world.until(lambda: measures.waiting == 0)
    assert measures.dropped_events == 0


async def test_what_another_process_commits_is_not_counted_here(world: Any) -> None:
    async with world.other_process() as other:
        await other.submit()
        await world.until(lambda: bool(world.told))
        assert sum(other.store.measures.events) == len(other.told) > 0
        assert sum(world.store.measures.events) == 0
