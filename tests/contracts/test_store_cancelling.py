"""Ending runs from outside: at once, once, with an honest result for every call, and nothing written after it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.settle import NEVER_STARTED_TEXT, UNKNOWN_TEXT
from amoxi_py.domain.tool_call import CallStatus, Effect
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.views import LogPage

pytestmark = pytest.mark.anyio


async def test_a_cancelled_run_settles_its_calls_keeps_its_text_and_takes_no_more(world: Any) -> None:
    lease = await world.start(await world.worker())
    calls = [
        world.call(lease, 1, 0, status=CallStatus.STARTED, effect=Effect.UNSAFE),
        world.call(lease, 1, 1, status=CallStatus.STARTED, effect=Effect.READ_ONLY),
        world.call(lease, 1, 2, effect=Effect.UNSAFE),
        world.call(lease, 1, 3, status=CallStatus.STARTED),
    ]
    await world.store.write(world.reply(lease, 1, *calls))
    await world.store.write(world.result(lease, calls[3], "kept"))
    run = await world.store.cancel(lease.run_id, world.ann)
    assert run.status is RunStatus.CANCELLED
    messages = (await world.store.read_conversation(run.conversation_id, world.ann)).messages.items
    assert [call.status.value for call in messages[1].calls] == ["unknown", "stopped", "stopped", "done"]
    assert UNKNOWN_TEXT[:20] in messages[1].calls[0].result
    assert NEVER_STARTED_TEXT in messages[1].calls[2].result
    assert world.labels(lease)[-4:] == ["tool.completed"] * 3 + ["run.cancelled"]
    for change in (world.finish(lease, 2), world.delta(lease, "msg_1", 0, "x"), world.change(lease)):
        with pytest.raises(LeaseLost):
            await world.store.write(change)
    assert world.labels(lease)[-1] == "run.cancelled"
    assert [event.data for event in await world.log(lease)] == [event.data for event in world.told]


async def test_streamed_text_becomes_a_message_marked_stopped(world: Any) -> None:
    lease = await world.start(await world.worker())
    await world.store.write(world.delta(lease, "msg_1", 0, "a first try"))
    await world.store.write(world.delta(lease, "msg_2", 0, "Your order"))
    await world.store.write(world.delta(lease, "msg_2", 10, " A-1001 \N{GRINNING FACE}"))
    await world.store.write(world.delta(lease, "msg_2", 19, " is"))
    run = await world.store.cancel(lease.run_id, world.ann)
    last = (await world.store.read_conversation(run.conversation_id, world.ann)).messages.items[-1]
    assert (last.id, last.text, last.status) == ("msg_2", "Your order A-1001 \N{GRINNING FACE} is", "stopped")
    assert [event.type.label for event in await world.log(lease)][-2:] == ["message.completed", "run.cancelled"]
    assert [event.data for event in await world.log(lease)][-2:] == [event.data for event in world.told[-2:]]


async def test_queued_and_waiting_runs_are_cancelled_too(world: Any) -> None:
    worker = await world.worker()
    queued = await world.submit()
    lease, _ = await world.waiting_run(worker)
    for run_id in (queued.run.id, lease.run_id):
        run = await world.store.cancel(run_id, world.ann)
        assert (run.status, run.waiting_for) == (RunStatus.CANCELLED, ())
    assert await world.claim(worker) == []
    assert await world.store.busy_runs() == 0


async def test_a_run_that_had_ended_is_returned_unchanged(world: Any) -> None:
    lease = await world.start(await world.worker())
    await world.store.write(world.finish(lease, 1))
    before = await world.store.get_run(lease.run_id, world.ann)
    told = len(world.told)
    assert await world.store.cancel(lease.run_id, world.ann) == before
    assert len(world.told) == told


async def test_somebody_elses_run_and_another_agents_are_not_found(world: Any) -> None:
    run = (await world.submit()).run
    for who, agent in ((world.bob, None), (world.fin, None), (world.ann, "other")):
        with pytest.raises(NotFound):
            await world.store.cancel(run.id, who, agent)
        with pytest.raises(NotFound):
            await world.store.erase(run.conversation_id, who, agent)
    assert (await world.store.get_run(run.id, world.ann, world.agent)).status is RunStatus.QUEUED


async def test_cancel_against_finish_has_one_winner_and_one_terminal_event(world: Any) -> None:
    worker = await world.worker()
    for _ in range(30):
        lease = await world.start(worker)
        outcomes = {}

        async def finish(lease: Any = lease, outcomes: dict[str, Any] = outcomes) -> None:
            try:
                await world.store.write(world.finish(lease, 1))
                outcomes["finish"] = True
            except LeaseLost:
                outcomes["finish"] = False

        async def cancel(lease: Any = lease, outcomes: dict[str, Any] = outcomes) -> None:
            outcomes["cancel"] = (await world.store.cancel(lease.run_id, world.ann)).status

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(finish)
            tasks.start_soon(cancel)
        status = (await world.store.get_run(lease.run_id, world.ann)).status
        assert status is (RunStatus.COMPLETED if outcomes["finish"] else RunStatus.CANCELLED)
        assert outcomes["cancel"] is status
        assert len([event for event in world.told if event.run == lease.run and event.type.ends_run]) == 1


async def test_the_next_run_may_start_when_the_old_worker_has_let_go(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    behind = await world.submit(conversation=conversation, on_busy="queue")
    await world.store.cancel(lease.run_id, world.ann)
    assert await world.claim(worker) == []
    await world.store.release(lease)
    (following,) = await world.claim(worker)
    assert following.run_id == behind.run.id


async def test_the_next_run_may_start_a_second_later_if_the_old_worker_is_silent(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.store.cancel(lease.run_id, world.ann)
    following = await world.submit(conversation=conversation, claim_by=worker)
    assert following.rows is None
    world.clock.move(0.9)
    assert await world.claim(worker) == []
    world.clock.move(0.2)
    assert [one.run_id for one in await world.claim(worker)] == [following.run.id]


async def test_nobody_waits_for_a_worker_that_is_dead(world: Any) -> None:
    lease = await world.start(await world.worker(lease_s=5))
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    world.clock.move(6)
    await world.store.cancel(lease.run_id, world.ann)
    assert (await world.submit(conversation=conversation, claim_by=await world.worker())).rows is not None


async def test_an_erased_conversation_is_gone_with_all_that_belongs_to_it(world: Any) -> None:
    lease, call = await world.waiting_run(await world.worker())
    keep = await world.submit("keep me")
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    position = await world.store.find_log(world.ann, run_id=lease.run_id)
    await world.store.erase(conversation, world.ann)
    assert world.labels(lease)[-1] == "run.cancelled"
    for read in (
        world.store.get_run(lease.run_id, world.ann),
        world.store.get_call(call.id, world.ann),
        world.store.read_conversation(conversation, world.ann),
        world.store.find_log(world.ann, run_id=lease.run_id),
        world.store.find_log(world.ann, conversation_id=conversation),
        world.store.erase(conversation, world.ann),
    ):
        with pytest.raises(NotFound):
            await read
    assert await world.store.read_log(position, 0, 100, 10**6) == LogPage(events=(), more=False)
    assert [run.id for run in (await world.store.list_runs(world.ann)).items] == [keep.run.id]
    with pytest.raises(LeaseLost):
        await world.store.write(world.finish(lease, 2))


async def test_other_processes_hear_that_erased_runs_ended_and_nobody_reads_what_is_left(world: Any) -> None:
    async with world.other_process() as other:
        lease = await world.start(await world.worker())
        call = world.call(lease, 1, status=CallStatus.STARTED)
        await world.store.write(world.reply(lease, 1, call, text="private"))
        failing = await world.start(await world.worker())
        await world.store.write(world.fail(failing))
        position = await world.store.find_log(world.ann, run_id=lease.run_id)
        whole = replace(position, run=None)
        for run in (lease, failing):
            conversation = (await world.store.get_run(run.run_id, world.ann)).conversation_id
            await other.store.erase(conversation, world.ann)
        await world.until(lambda: world.labels(lease)[-1:] == ["run.cancelled"])
        assert world.told[-1].data == {"run_id": lease.run_id}
        assert world.labels(failing).count("run.failed") == 1
        for log in (position, whole):
            assert (await world.store.read_log(log, 0, 100, 10**6)).events == ()
        for missing in (
            world.store.get_run(lease.run_id, world.ann),
            world.store.find_log(world.ann, run_id=lease.run_id),
            world.store.cancel(lease.run_id, world.ann),
            world.store.get_call(call.id, world.ann),
        ):
            with pytest.raises(NotFound):
                await missing
        assert await world.store.busy_runs() == 0


async def test_keys_of_erased_things_are_never_given_again(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    await world.store.erase((await world.store.get_run(lease.run_id, world.ann)).conversation_id, world.ann)
    following = await world.start(worker)
    assert following.run > lease.run
    assert following.conversation > lease.conversation
