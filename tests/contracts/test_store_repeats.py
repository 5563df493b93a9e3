"""Every verb can be sent twice, because the answer to a commit can be lost: the work is done once, and told."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus

pytestmark = pytest.mark.anyio


async def test_submit(world: Any) -> None:
    worker = await world.worker()
    submission = world.submission("hi", claim_by=worker, idempotency_key="k")
    world.lose_answer()
    first = await world.store.submit(submission)
    again = await world.store.submit(submission)
    assert first.rows == again.rows is not None
    assert first.created
    assert again.created
    assert world.labels(first.rows.lease) == ["run.queued", "message.completed", "run.started"]
    assert len((await world.store.list_runs(world.ann)).items) == 1
    assert [event.data for event in world.told] == [event.data for event in await world.log(first.rows.lease)]


async def test_claim(world: Any) -> None:
    for _ in range(3):
        await world.submit()
    worker = await world.worker()
    world.lose_answer()
    first = await world.store.claim(worker, 1, 2)
    again = await world.store.claim(worker, 1, 2)
    assert len(first) == 2
    assert again == first
    assert len(await world.store.claim(worker, 2, 2)) == 1


async def test_write(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    reply, result, finish = world.reply(lease, 1, call), world.result(lease, call), world.finish(lease, 2)
    for change in (reply, result, finish):
        world.lose_answer()
        await world.store.write(change)
        await world.store.write(change)
    await world.store.write(reply)
    assert world.labels(lease)[3:] == [
        "message.completed",
        "tool.called",
        "tool.completed",
        "message.completed",
        "run.completed",
    ]
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.COMPLETED


async def test_write_of_many_in_one_commit(world: Any) -> None:
    worker = await world.worker()
    leases = [await world.start(worker) for _ in range(10)]
    world.lose_answer()
    async with anyio.create_task_group() as tasks:
        for lease in leases:
            tasks.start_soon(world.write, world.finish(lease, 1))
    for lease in leases:
        assert world.labels(lease)[3:] == ["message.completed", "run.completed"]
        assert [event.seq for event in await world.log(lease)] == [1, 2, 3, 4, 5]


async def test_pause_and_decide(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    call = world.call(lease, 1, approval=world.approval())
    await world.store.write(world.reply(lease, 1, call))
    pause = world.change(lease)
    world.lose_answer()
    assert await world.store.pause(pause, None, ("approval",))
    assert await world.store.pause(pause, None, ("approval",))
    world.lose_answer()
    first = await world.store.decide(world.verdict(call, lease))
    assert await world.store.decide(world.verdict(call, lease)) == first
    assert world.labels(lease)[-2:] == ["run.waiting", "approval.decided"]
    assert await world.store.pause(pause, None, ("approval",))
    assert len(await world.claim(worker)) == 1


async def test_answer_and_signal(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    asks, listens = (world.call(lease, 1, n, status=CallStatus.STARTED) for n in range(2))
    await world.store.write(world.reply(lease, 1, asks, listens))
    early, sent = world.signal(lease, "go", 1), world.signal(lease, "go", 2)
    for change in (
        early,
        world.waits_for(lease, asks, "question", "Which?"),
        world.waits_for(lease, listens, "signal", "go"),
        world.waits_for(lease, listens, "signal", "go", k=2),
    ):
        for _ in range(2):
            world.lose_answer()
            await (world.store.signal if change is early else world.store.write)(change)
    world.lose_answer()
    assert await world.store.pause(pause := world.change(lease), None, ("question", "signal"))
    assert await world.store.pause(pause, None, ("question", "signal"))
    world.lose_answer()
    first = await world.store.answer(world.answer(asks, "a"))
    assert await world.store.answer(world.answer(asks, "a")) == first
    for signal in (sent, sent, early):
        world.lose_answer()
        await world.store.signal(signal)
    (rows,) = await world.store.claim(worker, 9, 9)
    assert [wait.value for wait in rows.waits[1, 1]] == ["1", "2"]
    labels = [label for label in world.labels(lease) if label.startswith(("question.", "signal."))]
    assert labels == ["signal.received", "question.asked", "question.answered", "signal.received"]
    assert [event.data for event in world.told] == [event.data for event in await world.log(lease)]
    await world.store.cancel(lease.run_id, world.ann)
    await world.store.signal(early)


async def test_cancel_and_release(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    await world.store.write(world.delta(lease, "msg_1", 0, "half"))
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.submit(conversation=conversation, on_busy="queue")
    world.lose_answer()
    first = await world.store.cancel(lease.run_id, world.ann)
    assert await world.store.cancel(lease.run_id, world.ann) == first
    assert world.labels(lease)[-2:] == ["message.completed", "run.cancelled"]
    for _ in range(2):
        world.lose_answer()
        await world.store.release(lease)
    (following,) = await world.claim(worker)
    world.lose_answer()
    await world.store.release(following)
    await world.store.release(following)
    (again,) = await world.claim(worker)
    await world.store.release(following)
    assert (again.fence, (await world.store.load(again)).attempt) == (2, 1)


async def test_a_late_second_release_does_not_let_go_of_another_cancelled_run(world: Any) -> None:
    worker = await world.worker()
    first = await world.start(worker)
    conversation = (await world.store.get_run(first.run_id, world.ann)).conversation_id
    await world.store.cancel(first.run_id, world.ann)
    await world.store.release(first)
    second = await world.start(worker, conversation=conversation)
    await world.submit(conversation=conversation, on_busy="queue")
    await world.store.cancel(second.run_id, world.ann)
    await world.store.release(first)
    assert await world.claim(worker) == []


async def test_enroll_renew_and_retire(world: Any) -> None:
    world.lose_answer()
    worker = await world.store.enroll("worker_1", 5.0)
    assert await world.store.enroll("worker_1", 5.0) == worker
    world.clock.move(4)
    world.lose_answer()
    await anyio.to_thread.run_sync(world.store.renew, worker, 5.0)
    world.clock.move(4)
    lease = await world.start(worker)
    for _ in range(2):
        world.lose_answer()
        await world.store.retire(worker)
    assert [one.run_id for one in await world.claim(await world.worker())] == [lease.run_id]


async def test_erase_and_secret(world: Any) -> None:
    run = (await world.submit()).run
    world.lose_answer()
    await world.store.erase(run.conversation_id, world.ann)
    assert (await world.store.list_runs(world.ann)).items == ()
    world.lose_answer()
    assert await world.store.secret("a", "one") == "one"
