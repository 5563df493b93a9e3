"""What calls wait for is recorded once and over once: by the first answer, by a signal, or by a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from amoxi_py.domain.event import time_text
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import Conflict, LeaseLost, NotFound

pytestmark = pytest.mark.anyio

SCHEMA = '{"type":"string"}'


async def test_a_run_that_asked_says_what_and_holds_no_worker_until_it_is_answered(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    lease = await world.start(worker)
    asks, sleeps, listens = (world.call(lease, 1, n, status=CallStatus.STARTED) for n in range(3))
    await world.store.write(world.reply(lease, 1, asks, sleeps, listens))
    until = world.clock.now() + 3600
    await world.store.write(world.waits_for(lease, asks, "question", "Which\x00?", schema=SCHEMA, until=until))
    await world.store.write(world.waits_for(lease, sleeps, "sleep", until=until))
    await world.store.write(world.waits_for(lease, listens, "signal", "paid"))
    seen = (await world.store.get_run(lease.run_id, world.ann)).waiting_for
    assert [(one.kind, one.call_id, one.name, one.schema, one.expires_at) for one in seen] == [
        ("question", asks.id, "Which\ufffd?", SCHEMA, until),
        ("sleep", sleeps.id, None, None, until),
        ("signal", listens.id, "paid", None, None),
    ]
    assert (seen[0].tool, seen[0].arguments) == (asks.tool, asks.arguments)
    assert await world.store.pause(world.change(lease), until, ("question", "sleep", "signal"))
    waiting = await world.store.get_run(lease.run_id, world.ann)
    assert (waiting.status, waiting.waiting_for) == (RunStatus.WAITING, seen)
    world.clock.move(100)
    other = await world.worker()
    assert await world.claim(other) == []
    view = await world.store.answer(world.answer(asks, "this one"))
    assert (view.call.id, view.call.wait.value, view.call.wait.by) == (asks.id, '"this one"', world.ann.id)
    assert (await world.store.get_call(asks.id, world.ann)).call.wait == view.call.wait
    (rows,) = await world.store.claim(other, 50, 10)
    assert rows.waits[1, 0] == (view.call.wait,)
    assert [call.wait for call in rows.messages[1].calls] == [rows.waits[1, n][-1] for n in range(3)]
    assert (rows.attempt, rows.crashes) == (1, 0)
    assert [one.kind for one in (await world.store.get_run(lease.run_id, world.ann)).waiting_for] == ["sleep", "signal"]


async def test_the_log_tells_of_each_question_of_a_call_as_it_was(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.asking_run(worker, "Which?")
    await world.store.answer(world.answer(call, {"nr": 1}))
    (lease,) = await world.claim(worker)
    until = world.clock.now() + 60
    await world.store.write(world.waits_for(lease, call, "question", "How many?", k=2, schema=SCHEMA, until=until))
    await world.store.answer(world.answer(call, "3", k=2))
    asked = {"run_id": lease.run_id, "call_id": call.id, "tool": call.tool, "expires_at": None}
    answered = {"run_id": lease.run_id, "call_id": call.id, "by": world.ann.id}
    expected = [
        asked | {"k": 1, "question": "Which?", "schema": None},
        answered | {"k": 1, "answer": {"nr": 1}},
        asked | {"k": 2, "question": "How many?", "schema": {"type": "string"}, "expires_at": time_text(until)},
        answered | {"k": 2, "answer": "3"},
    ]
    view = await world.store.get_call(call.id, world.ann)
    assert [(one.k, one.name, one.value) for one in view.waits] == [(1, "Which?", '{"nr":1}'), (2, "How many?", '"3"')]
    stored = [event for event in await world.log(lease) if event.type.label.startswith("question.")]
    assert [event.data for event in stored] == expected
    assert [event.data for event in world.told if event.type.label.startswith("question.")] == expected
    async with world.other_process() as other:
        assert [event.data for event in await other.log(lease) if event.type.label.startswith("question.")] == expected


async def test_the_first_answer_wins_and_the_same_again_is_the_recorded_one(world: Any) -> None:
    lease, call = await world.asking_run(await world.worker())
    first = await world.store.answer(world.answer(call, "a"))
    told = len(world.told)
    assert await world.store.answer(world.answer(call, "a")) == first
    with pytest.raises(Conflict) as refused:
        await world.store.answer(world.answer(call, "b"))
    assert refused.value.code == "already_answered"
    assert len(world.told) == told
    await world.store.cancel(lease.run_id, world.ann)
    assert (await world.store.answer(world.answer(call, "a"))).call.wait == first.call.wait


async def test_the_same_answer_with_its_keys_in_another_order_is_the_recorded_one(world: Any) -> None:
    _, call = await world.asking_run(await world.worker())
    first = await world.store.answer(world.answer(call, {"a": 1, "b": {"c": True, "d": 2}}))
    assert await world.store.answer(world.answer(call, {"b": {"d": 2, "c": True}, "a": 1})) == first
    for other in ({"a": 1, "b": {"c": 1, "d": 2}}, {"a": 1}):
        with pytest.raises(Conflict, match="answered already"):
            await world.store.answer(world.answer(call, other))


async def test_a_signal_that_is_sent_again_with_another_payload_is_refused(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.waits_for(lease, call, "signal", "given"))
    for name in ("given", "kept"):
        sent = world.signal(lease, name, {"a": 1, "b": 2})
        await world.store.signal(sent)
        await world.store.signal(replace(sent, payload='{"b":2,"a":1}'))
        with pytest.raises(Conflict) as refused:
            await world.store.signal(replace(sent, payload='{"a":1}'))
        assert refused.value.code == "idempotency_key_reused"
    assert world.labels(lease).count("signal.received") == 2


async def test_only_the_owner_and_an_operator_answer_a_question(world: Any) -> None:
    lease, call = await world.asking_run(await world.worker())
    nobody = world.call(lease, 1, 7)
    for wrong in (
        world.answer(call, "a", principal=world.bob),
        world.answer(call, "a", principal=world.fin),
        world.answer(call, "a", k=2),
        world.answer(nobody, "a"),
        replace(world.answer(call, "a"), call_id="call_no"),
    ):
        with pytest.raises(NotFound):
            await world.store.answer(wrong)
    view = await world.store.answer(world.answer(call, "a", principal=world.fin, operator=True))
    assert view.call.wait.by == world.fin.id


async def test_a_question_is_closed_when_its_time_is_over_or_its_call_or_run_has_ended(world: Any) -> None:
    worker = await world.worker()
    _, late = await world.asking_run(worker, until=world.clock.now() + 5)
    world.clock.move(5)
    cancelled, of_cancelled = await world.asking_run(worker)
    await world.store.cancel(cancelled.run_id, world.ann)
    lease = await world.start(worker)
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.waits_for(lease, call, "question", "?"))
    await world.store.write(world.result(lease, call))
    for closed in (late, of_cancelled, call):
        with pytest.raises(Conflict) as refused:
            await world.store.answer(world.answer(closed, "a"))
        assert refused.value.code == "question_closed"
    assert (await world.store.get_run(cancelled.run_id, world.ann)).waiting_for == ()
    assert (await world.store.get_run(lease.run_id, world.ann)).waiting_for == ()
    with pytest.raises(NotFound):
        await world.store.answer(world.answer(world.call(lease, 1), "a", k=3))


async def test_a_pause_looks_again_for_an_answer_that_came_before_it(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.waits_for(lease, call, "question", "?"))
    await world.store.answer(world.answer(call, None))
    assert not await world.store.pause(world.change(lease), None, ("question",))
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.RUNNING
    await world.store.write(world.waits_for(lease, call, "signal", "go", k=2))
    await world.store.signal(world.signal(lease, "go", 7))
    assert not await world.store.pause(world.change(lease), None, ("signal",))
    rows = await world.store.load(lease)
    assert [(wait.k, wait.value) for wait in rows.waits[1, 0]] == [(1, "null"), (2, "7")]
    assert rows.messages[1].calls[0].wait == rows.waits[1, 0][1]
    await world.store.write(world.waits_for(lease, call, "sleep", k=3, until=world.clock.now() + 60))
    assert await world.store.pause(world.change(lease), world.clock.now() + 60, ("sleep",))


async def test_a_wait_is_a_checkpoint(world: Any) -> None:
    lease = await world.start(await world.worker(lease_s=5))
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    world.clock.move(6)
    (rows,) = await world.store.claim(await world.worker(lease_s=5), 1, 10)
    assert rows.crashes == 1
    await world.store.write(world.waits_for(rows.lease, call, "sleep", until=world.clock.now() + 60))
    assert (await world.store.load(rows.lease)).crashes == 0


async def test_a_wait_is_over_at_its_time_and_the_run_is_due(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.asking_run(worker, until=world.clock.now() + 5)
    world.clock.move(4.9)
    assert await world.claim(worker) == []
    world.clock.move(0.1)
    (rows,) = await world.store.claim(worker, 50, 10)
    assert rows.lease.run_id == lease.run_id
    assert rows.messages[1].calls[0].wait.over(world.clock.now())
    assert (rows.messages[1].calls[0].id, rows.waits[1, 0][0].value) == (call.id, None)


async def test_a_signal_goes_to_the_oldest_wait_for_its_name(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    calls = [world.call(lease, 1, n, status=CallStatus.STARTED) for n in range(4)]
    await world.store.write(world.reply(lease, 1, *calls))
    for n, name in ((1, "go"), (3, "stop"), (2, "go"), (0, "go")):
        until = world.clock.now() + 0.5 if n == 1 else None
        await world.store.write(world.waits_for(lease, calls[n], "signal", name, until=until))
        world.clock.move(1)
    assert await world.store.pause(world.change(lease), None, ("signal",))
    await world.store.signal(world.signal(lease, "go", {"n": 1}))
    assert world.told[-1].data == {"run_id": lease.run_id, "name": "go", "payload": {"n": 1}}
    (lease,) = await world.claim(worker)
    await world.store.signal(world.signal(lease, "go", {"n": 2}))
    rows = await world.store.load(lease)
    given = {n: waits[0].value for (_, n), waits in rows.waits.items()}
    assert given == {0: '{"n":2}', 1: None, 2: '{"n":1}', 3: None}
    assert rows.waits[1, 0][0].by == world.ann.id
    assert [event.data for event in await world.log(lease)] == [event.data for event in world.told]


async def test_a_signal_that_nothing_waits_for_is_kept_and_taken_once_by_the_oldest_first(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    for number in range(3):
        await world.store.signal(world.signal(lease, "go", number))
    await world.store.signal(world.signal(lease, "stop", "x"))
    calls = [world.call(lease, 1, n, status=CallStatus.STARTED) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    told = len(world.told)
    await world.store.write(world.waits_for(lease, calls[0], "signal", "go"))
    await world.store.write(world.waits_for(lease, calls[0], "signal", "go", k=2))
    await world.store.write(world.waits_for(lease, calls[1], "signal", "go"))
    await world.store.write(world.waits_for(lease, calls[0], "signal", "go", k=3))
    rows = await world.store.load(lease)
    assert [wait.value for wait in rows.waits[1, 0]] == ["0", "1", None]
    assert [wait.value for wait in rows.waits[1, 1]] == ["2"]
    assert len(world.told) == told
    assert not await world.store.pause(world.change(lease), None, ("signal",))


async def test_a_signal_is_for_open_runs_of_their_owner(world: Any) -> None:
    lease = await world.start(await world.worker())
    for wrong in (
        world.signal(lease, "go", principal=world.bob),
        world.signal(lease, "go", agent="other-agent"),
        world.signal(lease, "go", run_id="run_no"),
    ):
        with pytest.raises(NotFound):
            await world.store.signal(wrong)
    sent = world.signal(lease, "go", principal=world.fin, operator=True)
    await world.store.signal(sent)
    await world.store.write(world.finish(lease, 1))
    await world.store.signal(sent)
    with pytest.raises(Conflict) as refused:
        await world.store.signal(world.signal(lease, "go"))
    assert refused.value.code == "run_ended"
    assert world.labels(lease).count("signal.received") == 1


async def test_no_flood_of_signals_is_kept(new_embedded_world: Callable[[], Any]) -> None:
    world = new_embedded_world()
    await world.open()
    lease = await world.start(await world.worker())
    async with anyio.create_task_group() as tasks:
        for _ in range(1000):
            tasks.start_soon(world.store.signal, world.signal(lease, "go"))
    for name in ("go", "other"):
        with pytest.raises(Conflict) as refused:
            await world.store.signal(world.signal(lease, name))
        assert refused.value.code == "too_many_signals"
    call = world.call(lease, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 1, call))
    await world.store.write(world.waits_for(lease, call, "signal", "other"))
    await world.store.signal(world.signal(lease, "other", "heard"))
    assert (await world.store.load(lease)).waits[1, 0][0].value == '"heard"'
    await world.store.close()


async def test_what_is_waited_for_goes_with_its_conversation(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.asking_run(worker)
    signal = world.signal(lease, "go")
    await world.store.signal(signal)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.store.erase(conversation, world.ann)
    with pytest.raises(NotFound):
        await world.store.answer(world.answer(call, "a"))
    with pytest.raises(NotFound):
        await world.store.signal(signal)
    with pytest.raises(LeaseLost):
        await world.store.write(world.waits_for(lease, call, "sleep", k=2))


async def test_answers_signals_and_the_ends_of_runs_that_come_at_once_are_told_in_one_order(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.asking_run(worker)
    refusals: list[str] = []

    async def answer(store: Any, value: str) -> None:
        try:
            await store.answer(world.answer(call, value))
        except Conflict as error:
            refusals.append(error.code)

    async with world.other_process() as other, anyio.create_task_group() as tasks:
        for value in ("a", "b", "c"):
            tasks.start_soon(answer, world.store, value)
            tasks.start_soon(answer, other.store, value)
            tasks.start_soon(world.store.signal, world.signal(lease, value))
            tasks.start_soon(other.store.signal, world.signal(lease, value))
    assert refusals == ["already_answered"] * 4
    labels = [event.type.label for event in await world.log(lease)]
    assert labels.count("question.answered") == 1
    assert labels.count("signal.received") == 6
