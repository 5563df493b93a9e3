"""What a worker adds to its run: whole, once, in order, and told as it is stored."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import LeaseLost, StoreUnavailable

pytestmark = pytest.mark.anyio


async def test_a_run_from_its_message_to_its_end(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED, tries=1)
    usage = Usage(requests=2, input_tokens=30, output_tokens=4)
    await world.store.write(world.reply(lease, 1, call, text="Let me see."))
    await world.store.write(world.result(lease, call, {"item": "Trail backpack"}))
    await world.store.write(world.finish(lease, 2, text="Shipped.", usage=usage, result='{"ok":true}'))
    run = await world.store.get_run(lease.run_id, world.ann)
    assert (run.status, run.output, run.result, run.usage) == (RunStatus.COMPLETED, "Shipped.", '{"ok":true}', usage)
    assert world.labels(lease)[3:] == [
        "message.completed",
        "tool.called",
        "tool.completed",
        "message.completed",
        "run.completed",
    ]
    assert await world.store.busy_runs() == 0


async def test_a_change_tells_when_it_was_stored_and_nothing_the_second_time(world: Any) -> None:
    lease = await world.start(await world.worker())
    change = world.finish(lease, 1)
    stored_at = await world.store.write(change)
    assert stored_at == (await world.store.get_run(lease.run_id, world.ann)).updated_at
    assert await world.store.write(change) is None


async def test_a_failed_run_tells_why(world: Any) -> None:
    lease = await world.start(await world.worker())
    await world.store.write(world.fail(lease))
    run = await world.store.get_run(lease.run_id, world.ann)
    assert (run.status, run.error.code, run.output) == (RunStatus.FAILED, "model_failed", None)
    error = {"code": "model_failed", "message": "The model did not answer."}
    assert world.told[-1].data == {"run_id": lease.run_id, "error": error}


async def test_nothing_is_written_to_a_run_that_has_ended(world: Any) -> None:
    lease = await world.start(await world.worker())
    await world.store.write(world.finish(lease, 1))
    for verb in (world.store.write(world.reply(lease, 2)), world.store.pause(world.change(lease), None, ())):
        with pytest.raises(LeaseLost):
            await verb
    assert world.labels(lease)[-1] == "run.completed"


async def test_a_refused_change_leaves_the_others_of_its_commit_alone(world: Any) -> None:
    worker = await world.worker()
    leases = [await world.start(worker) for _ in range(9)]
    stale = replace(leases[4], fence=99)
    outcomes: dict[int, str] = {}

    async def write(place: int) -> None:
        try:
            await world.store.write(world.finish(stale if place == 4 else leases[place], 1, text=f"answer {place}"))
            outcomes[place] = "stored"
        except LeaseLost:
            outcomes[place] = "lost"

    async with anyio.create_task_group() as tasks:
        for place in range(9):
            tasks.start_soon(write, place)
    assert [outcomes[place] for place in range(9)] == ["stored"] * 4 + ["lost"] + ["stored"] * 4
    outputs = [(await world.store.get_run(lease.run_id, world.ann)).output for lease in leases]
    assert outputs == [None if place == 4 else f"answer {place}" for place in range(9)]


async def test_changes_of_one_run_that_wait_at_the_same_moment_are_stored_in_their_order(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1)
    changes = [
        world.delta(lease, "msg_1", 0, "a"),
        world.delta(lease, "msg_1", 1, "b"),
        world.reply(lease, 1, call),
        world.change(lease, starts=((1, 0),)),
        world.step(lease, call, "s", "1", failed=True),
        world.change(lease, retries=((1, 0),)),
        world.step(lease, call, "s", "2"),
        world.delta(lease, "msg_2", 0, "c"),
    ]
    async with anyio.create_task_group() as tasks:
        for change in changes:
            tasks.start_soon(world.write, change)
    rows = await world.store.load(lease)
    (stored,) = rows.messages[1].calls
    assert (stored.status, stored.tries, stored.failures) == (CallStatus.STARTED, 2, 1)
    assert [step.value for step in rows.steps[1, 0]] == ["2"]
    assert (rows.partial, rows.changes) == ("msg_2", 8)
    deltas = [event.data["text"] for event in await world.log(lease) if event.type is EventType.MESSAGE_DELTA]
    assert deltas == ["c"]


async def test_a_change_is_never_stored_before_the_one_before_it(world: Any) -> None:
    worker = await world.worker()
    lease, neighbour = await world.start(worker), await world.start(worker)
    call = world.call(lease, 1, status=CallStatus.STARTED)
    reply, step, result = (
        world.reply(lease, 1, call),
        world.step(lease, call, "a", "1"),
        world.result(lease, call, "done"),
    )
    early = [world.store.write(step), world.store.write(result), world.store.write(world.finish(neighbour, 1))]
    for refused in early[:2]:
        with pytest.raises(StoreUnavailable, match="change 1"):
            await refused
    await early[2]
    rows = await world.store.load(lease)
    assert (len(rows.messages), rows.steps, rows.changes) == (1, {}, 0)
    assert world.labels(lease) == ["run.queued", "message.completed", "run.started"]
    assert (await world.store.get_run(neighbour.run_id, world.ann)).status is RunStatus.COMPLETED
    with pytest.raises(StoreUnavailable):
        await world.store.pause(result, None, ("approval",))
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.RUNNING
    for stored in [world.store.write(change) for change in (reply, step, result)]:
        await stored
    rows = await world.store.load(lease)
    assert (rows.changes, rows.messages[1].calls[0].status) == (3, CallStatus.DONE)
    assert [one.value for one in rows.steps[1, 0]] == ["1"]


async def test_the_number_of_a_refused_change_is_free_again(world: Any) -> None:
    lease = await world.start(await world.worker())
    with pytest.raises(StoreUnavailable):
        await world.store.write(world.change(lease, number=2))
    with pytest.raises(StoreUnavailable):
        await world.store.write(world.change(lease, number=2))
    await world.store.write(world.delta(lease, "msg_1", 0, "x", number=1))
    await world.store.write(world.delta(lease, "msg_1", 1, "y", number=2))
    assert (await world.store.load(lease)).changes == 2


async def test_the_first_result_of_a_call_and_the_first_outcome_of_a_step_stay(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.step(lease, call, "pay", '"first"'))
    await world.store.write(world.step(lease, call, "pay", '"second"'))
    await world.store.write(world.result(lease, call, "first"))
    await world.store.write(world.result(lease, call, "second", status=CallStatus.FAILED))
    await world.store.write(world.change(lease, starts=((1, 0),)))
    rows = await world.store.load(lease)
    assert [step.value for step in rows.steps[1, 0]] == ['"first"']
    assert (rows.messages[1].calls[0].result, rows.messages[1].calls[0].status) == ('"first"', CallStatus.DONE)


async def test_steps_of_different_calls_with_one_name_do_not_meet(world: Any) -> None:
    lease = await world.start(await world.worker())
    calls = [world.call(lease, 1, n) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    for call in calls:
        await world.store.write(world.step(lease, call, "pay", f'"{call.n}"'))
    steps = (await world.store.load(lease)).steps
    assert [[step.value for step in steps[1, n]] for n in range(2)] == [['"0"'], ['"1"']]


async def test_a_retry_forgets_failed_steps_only(world: Any) -> None:
    lease = await world.start(await world.worker())
    calls = [world.call(lease, 1, n, status=CallStatus.STARTED) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    for call in calls:
        await world.store.write(world.step(lease, call, "good", "1"))
        await world.store.write(world.step(lease, call, "bad", "2", failed=True))
    await world.store.write(world.change(lease, retries=((1, 0),)))
    rows = await world.store.load(lease)
    assert [step.name for step in rows.steps[1, 0]] == ["good"]
    assert [step.name for step in rows.steps[1, 1]] == ["good", "bad"]
    assert [(call.tries, call.failures) for call in rows.messages[1].calls] == [(2, 1), (1, 0)]


async def test_a_reply_and_a_discard_drop_the_deltas_of_their_run_only(world: Any) -> None:
    worker = await world.worker()
    leases = [await world.start(worker) for _ in range(3)]
    for lease in leases:
        await world.store.write(world.delta(lease, "msg_x", 0, "half an ans"))
    await world.store.write(world.finish(leases[0], 1, text="half an answer"))
    discarded = NewEvent(type=EventType.MESSAGE_DISCARDED, data='{"message_id":"msg_x"}')
    await world.store.write(world.change(leases[1], discard=True, model_failures=1, events=(discarded,)))
    kept = [EventType.MESSAGE_DELTA in [event.type for event in await world.log(lease)] for lease in leases]
    assert kept == [False, False, True]
    rows = [await world.store.load(lease) for lease in leases[1:]]
    assert [(one.partial, one.model_failures) for one in rows] == [(None, 1), ("msg_x", 0)]


async def test_a_reply_drops_deltas_of_the_same_commit_also_after_another_run_began_to_wait_in_it(world: Any) -> None:
    worker = await world.worker()
    lease, other = [await world.start(worker) for _ in range(2)]
    asked = world.call(other, 1, approval=world.approval())
    await world.store.write(world.reply(other, 1, asked))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.write, world.delta(lease, "msg_1", 0, "Do"))
        tasks.start_soon(world.store.pause, world.change(other), None, ("approval",))
        tasks.start_soon(world.write, world.finish(lease, 1))
    assert EventType.MESSAGE_DELTA not in [event.type for event in await world.log(lease)]


async def test_usage_and_failures_stay_when_a_change_does_not_speak_of_them(world: Any) -> None:
    lease = await world.start(await world.worker())
    usage = Usage(requests=1, input_tokens=7, output_tokens=9)
    await world.store.write(world.change(lease, usage=usage, model_failures=2))
    await world.store.write(world.change(lease))
    rows = await world.store.load(lease)
    assert (rows.usage, rows.model_failures) == (usage, 2)
    await world.store.write(world.reply(lease, 1, model_failures=0))
    assert (await world.store.load(lease)).model_failures == 0


async def test_texts_of_a_reply_are_cleaned_and_told_as_they_are_stored(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, tool="look\x00up", arguments='{"q":"\ud800"}')
    await world.store.write(world.reply(lease, 1, call, text="a\x00b\udfffc"))
    stored = (await world.store.load(lease)).messages[1]
    assert (stored.text, stored.calls[0].tool) == ("a\ufffdb\ufffdc", "look\ufffdup")
    assert [event.data for event in world.told] == [event.data for event in await world.log(lease)]


async def test_a_big_result_comes_back_whole(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    value = {"rows": ["\N{GRINNING FACE} é \\ \" '" * 20_000], "id": 2512292042121000001, "x": 0.1}
    change = world.result(lease, call, value)
    await world.store.write(change)
    assert (await world.store.load(lease)).messages[1].calls[0].result == change.results[0].result
