"""Who executes a run: due ones in order, dead workers' taken over, and nobody without a current lease."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from amoxi_py.domain.run import RunRows, RunStatus
from amoxi_py.errors import LeaseLost

pytestmark = pytest.mark.anyio


async def test_due_runs_are_claimed_oldest_first_up_to_the_limit(world: Any) -> None:
    runs = []
    for _ in range(3):
        runs.append((await world.submit()).run.id)
        world.clock.move(1)
    worker = await world.worker()
    assert [lease.run_id for lease in await world.claim(worker, limit=2)] == runs[:2]
    assert [lease.run_id for lease in await world.claim(worker, limit=2)] == runs[2:]
    assert await world.claim(worker) == []


async def test_runs_are_claimed_in_the_order_in_which_they_became_due(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    world.clock.move(1)
    later = await world.submit()
    world.clock.move(1)
    await world.store.release(lease)
    assert [one.run_id for one in await world.claim(worker)] == [later.run.id, lease.run_id]


async def test_a_claimed_run_comes_with_all_its_rows(world: Any) -> None:
    lease = await world.start(await world.worker(lease_s=5), text="hi")
    call = world.call(lease, 1)
    await world.store.write(world.reply(lease, 1, call, text="let me look"))
    await world.store.write(world.change(lease, starts=((1, 0),)))
    await world.store.write(world.step(lease, call, "refund", '"R-1"'))
    await world.store.write(world.delta(lease, "msg_next", 0, "So"))
    world.clock.move(6)
    worker = await world.worker()
    (rows,) = await world.store.claim(worker, 1, 10)
    assert rows == await world.store.load(rows.lease)
    assert [message.text for message in rows.messages] == ["hi", "let me look"]
    assert (rows.messages[1].calls[0].status, rows.messages[1].calls[0].tries) == ("started", 1)
    assert [step.value for step in rows.steps[1, 0]] == ['"R-1"']
    assert (rows.partial, rows.changes, rows.lease.worker) == ("msg_next", 0, worker.key)


async def test_a_run_of_a_dead_worker_is_taken_over_as_one_more_crash_and_attempt(world: Any) -> None:
    lease = await world.start(await world.worker(lease_s=5))
    second = await world.worker(lease_s=60)
    assert await world.claim(second) == []
    world.clock.move(4.9)
    assert await world.claim(second) == []
    world.clock.move(0.2)
    (rows,) = await world.store.claim(second, 10, 10)
    assert (rows.attempt, rows.crashes, rows.lease.fence) == (2, 1, lease.fence + 1)
    assert world.labels(lease)[-1] == "run.resumed"
    assert world.told[-1].data == {"run_id": lease.run_id, "attempt": 2}


async def test_a_checkpoint_sets_crashes_back_and_an_event_does_not(world: Any) -> None:
    crashes = []
    lease = await world.start(await world.worker(lease_s=5))
    for change in (None, world.delta, None, world.reply, None):
        world.clock.move(6)
        (rows,) = await world.store.claim(await world.worker(lease_s=5), 1, 10)
        crashes.append(rows.crashes)
        lease = rows.lease
        if change == world.delta:
            await world.store.write(world.delta(lease, "msg_1", 0, "x"))
        elif change == world.reply:
            await world.store.write(world.reply(lease, 1, world.call(lease, 1)))
    assert crashes == [1, 2, 3, 4, 1]


async def test_a_renewed_lease_lives_on_and_an_expired_one_cannot_be_renewed(world: Any) -> None:
    worker, other = await world.worker(lease_s=5), await world.worker(lease_s=100)
    lease = await world.start(worker)
    world.clock.move(4)
    await anyio.to_thread.run_sync(world.store.renew, worker, 5.0)
    world.clock.move(4)
    assert await world.claim(other) == []
    world.clock.move(1.1)
    with pytest.raises(LeaseLost):
        await anyio.to_thread.run_sync(world.store.renew, worker, 5.0)
    assert [one.run_id for one in await world.claim(other)] == [lease.run_id]
    with pytest.raises(LeaseLost):
        world.store.renew(worker, 5.0)


async def test_renewing_works_while_the_event_loop_is_blocked(world: Any) -> None:
    world.store.renew(await world.worker(), 30.0)


async def test_an_expired_worker_claims_nothing(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    await world.submit()
    world.clock.move(6)
    assert await world.claim(worker) == []


async def test_a_released_run_is_claimable_at_once_and_counts_as_no_crash(world: Any) -> None:
    first, second = await world.worker(), await world.worker()
    lease = await world.start(first)
    await world.store.release(lease)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.QUEUED
    (rows,) = await world.store.claim(second, 1, 10)
    assert (rows.attempt, rows.crashes) == (1, 0)
    await world.store.release(lease)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.RUNNING


async def test_a_run_released_to_rest_is_claimable_by_anybody_after_it_and_counts_as_no_crash(world: Any) -> None:
    first, second = await world.worker(lease_s=1000), await world.worker(lease_s=1000)
    lease = await world.start(first)
    for _ in range(2):
        world.lose_answer()
        await world.store.release(lease, rest=5)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.QUEUED
    world.clock.move(4.9)
    assert await world.claim(first) == await world.claim(second) == []
    world.clock.move(0.1)
    (rows,) = await world.claim(second)
    assert (rows.run_id, rows.fence) == (lease.run_id, lease.fence + 1)
    loaded = await world.store.load(rows)
    assert (loaded.attempt, loaded.crashes) == (1, 0)


async def test_a_run_released_after_an_error_rests_a_second_and_counts_as_a_crash(world: Any) -> None:
    worker = await world.worker(lease_s=1000)
    lease = await world.start(worker)
    for _ in range(2):
        world.lose_answer()
        await world.store.release(lease, crashed=True)
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.QUEUED
    assert await world.claim(worker) == []
    world.clock.move(0.9)
    assert await world.claim(worker) == []
    world.clock.move(0.1)
    (rows,) = await world.store.claim(worker, 90, 10)
    assert (rows.lease.run_id, rows.attempt, rows.crashes) == (lease.run_id, 2, 1)
    assert world.told[-1].data == {"run_id": lease.run_id, "attempt": 2}
    await world.store.release(lease, crashed=True)
    assert (await world.store.load(rows.lease)).crashes == 1


async def test_a_cancelled_run_that_an_error_ended_lets_the_next_one_go_on(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    behind = await world.submit(conversation=conversation, on_busy="queue")
    await world.store.cancel(lease.run_id, world.ann)
    await world.store.release(lease, crashed=True)
    assert [one.run_id for one in await world.claim(worker)] == [behind.run.id]


async def test_a_retired_worker_hands_its_runs_over_at_once_and_not_as_crashes(world: Any) -> None:
    first, second = await world.worker(), await world.worker()
    lease = await world.start(first)
    await world.store.retire(first)
    (rows,) = await world.store.claim(second, 1, 10)
    assert (rows.lease.run_id, rows.attempt, rows.crashes) == (lease.run_id, 1, 0)
    with pytest.raises(LeaseLost):
        world.store.renew(first, 30.0)
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(lease, 1))


async def test_the_runs_of_a_worker_whose_process_is_known_to_be_dead_are_due_at_once_as_after_a_crash(
    world: Any,
) -> None:
    first, second, third = await world.worker(), await world.worker(), await world.worker()
    lost, kept = await world.start(first), await world.start(third)
    world.lose_answer()
    await world.store.expire_worker(first.id)
    await world.store.expire_worker("worker_that_is_gone")
    with pytest.raises(LeaseLost):
        world.store.renew(first, 30.0)
    (rows,) = await world.claim_rows(second)
    assert (rows.lease.run_id, rows.attempt, rows.crashes) == (lost.run_id, 2, 1)
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(lost, 1))
    world.clock.move(1)
    await world.store.expire_worker(first.id)
    assert (await world.store.load(rows.lease)).attempt == 2
    assert (await world.store.load(kept)).attempt == 1
    world.store.renew(third, 30.0)


async def test_a_stale_fence_writes_loads_and_releases_nothing(world: Any) -> None:
    lease = await world.start(await world.worker(lease_s=5))
    world.clock.move(6)
    (taken,) = await world.claim(await world.worker())
    for verb in (world.store.write(world.finish(lease, 1)), world.store.pause(world.change(lease), None, ())):
        with pytest.raises(LeaseLost):
            await verb
    with pytest.raises(LeaseLost):
        await world.store.load(lease)
    await world.store.release(lease)
    rows = await world.store.load(taken)
    assert (len(rows.messages), rows.changes) == (1, 0)


async def test_five_claims_at_once_never_share_a_run(world: Any) -> None:
    for _ in range(40):
        await world.submit()
    claimed: list[str] = []

    async def claim(other: Any) -> None:
        worker = await other.worker()
        for _ in range(20):
            claimed.extend(lease.run_id for lease in await other.claim(worker, limit=3))

    async with world.other_process() as other, anyio.create_task_group() as tasks:
        for store in (world, other, world, other, world):
            tasks.start_soon(claim, store)
    assert len(claimed) == len(set(claimed)) == 40


async def test_runs_of_one_conversation_never_run_at_the_same_time(world: Any) -> None:
    worker = await world.worker()
    conversation = (await world.submit()).run.conversation_id
    for _ in range(3):
        await world.submit(conversation=conversation, on_busy="queue")
    for _ in range(4):
        (lease,) = await world.claim(worker)
        await world.store.write(world.finish(lease, 1))


async def test_history_is_all_of_the_earlier_runs_with_their_calls_in_order(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker, text="one")
    call = world.call(lease, 1)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.result(lease, call, {"n": 2**70}))
    await world.store.write(world.finish(lease, 2, text="first"))
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    second = await world.start(worker, text="two", conversation=conversation)
    history = await world.store.history(second)
    assert [message.text for message in history.messages] == ["one", "", "first"]
    assert history.messages[1].calls[0].result == '{"n":1180591620717411303424}'
    assert history.summary is None


@pytest.mark.parametrize(("limited_to", "of"), [("conversations", "conversation_id"), ("runs", "id")])
async def test_a_claim_for_some_conversations_or_runs_gets_no_others(world: Any, limited_to: str, of: str) -> None:
    async def claim(number: int, *ids: str) -> tuple[RunRows, ...]:
        claimed: tuple[RunRows, ...] = await world.store.claim(worker, number, 10, **{limited_to: ids})
        return claimed

    dead = await world.start(await world.worker(lease_s=5))
    world.clock.move(6)
    worker = await world.worker()
    mine, other = [(await world.submit()).run for _ in range(2)]
    (of_dead,) = [run for run in (await world.store.list_runs(world.ann)).items if run.id == dead.run_id]
    assert await claim(1, "unknown") == ()
    (rows,) = await claim(2, getattr(mine, of))
    assert rows.lease.run_id == mine.id
    assert await claim(3, getattr(mine, of)) == ()
    (taken_over,) = await claim(4, getattr(of_dead, of))
    assert (taken_over.lease.run_id, taken_over.attempt) == (dead.run_id, 2)
    (rest,) = await world.store.claim(worker, 5, 10)
    assert rest.lease.run_id == other.id


@pytest.mark.parametrize(("count", "sizes"), [(70, [70, 64, 8, 8]), (2, [2, 2, 2, 1])])
async def test_what_was_in_two_crashes_runs_beside_few_like_it_and_in_the_end_alone(
    world: Any, count: int, sizes: list[int]
) -> None:
    first = await world.worker(lease_s=5)
    runs = [(await world.start(first)).run_id for _ in range(count)]
    found = []
    for _ in sizes:
        world.clock.move(6)
        worker = await world.worker(lease_s=5)
        found.append(len(await world.claim(worker)))
        assert await world.claim(worker) == [], "as long as these are here"
    assert found == sizes
    world.clock.move(6)
    last, seen = await world.worker(lease_s=3600), []
    while leases := await world.claim(last):
        for lease in leases:
            seen.append(lease.run_id)
            await world.write(world.finish(lease, 1))
    assert sorted(seen) == sorted(runs), "each of them has its turn"


async def test_a_run_that_kills_its_process_comes_to_its_last_attempt_without_the_others(world: Any) -> None:
    first = await world.worker(lease_s=5)
    leases = [await world.start(first) for _ in range(100)]
    poison, most = leases[37].run_id, {lease.run_id: 0 for lease in leases}
    while most[poison] < 5:
        world.clock.move(6)
        worker = await world.worker(lease_s=5)
        while found := await world.claim_rows(worker):
            most.update({rows.lease.run_id: rows.crashes for rows in found})
            if poison in [rows.lease.run_id for rows in found]:
                break  # before anybody gets any further
            for rows in found:
                await world.write(world.finish(rows.lease, 1))
    assert max(crashes for run, crashes in most.items() if run != poison) == 4
