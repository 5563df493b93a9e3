"""What a run is signalled is for the runs below it too, whose waits it shows."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus

pytestmark = pytest.mark.anyio


async def listening_child(world: Any, *names: str, count: int = 1) -> tuple[Any, list[tuple[Any, Any]]]:
    """A parent that waits for its children, each with a call that waits for a signal of the n-th name."""
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, count)
    listening = []
    for n, rows in enumerate(await world.claim_rows(worker)):
        call = world.call(rows.lease, 1, status=CallStatus.STARTED)
        await world.store.write(world.reply(rows.lease, 1, call))
        if n < len(names):
            await world.store.write(world.waits_for(rows.lease, call, "signal", names[n]))
            assert await world.store.pause(world.change(rows.lease), None, ("signal",))
        listening.append((rows.lease, call))
    return lease, listening


async def test_a_signal_to_the_root_wakes_the_run_below_that_waits_for_it(world: Any) -> None:
    lease, ((first, _), (second, call)) = await listening_child(world, "paid", "sent", count=2)
    waiting = (await world.store.get_run(lease.run_id, world.ann)).waiting_for
    assert [(one.kind, one.name) for one in waiting if one.kind == "signal"] == [("signal", "paid"), ("signal", "sent")]
    assert waiting[-1].call_id == call.id
    await world.store.signal(world.signal(lease, "sent", 7))
    (event,) = [event for event in world.told if event.type.label == "signal.received"]
    assert (event.run_id, event.source, event.hidden) == (lease.run_id, second.run, False)
    assert event.data == {"run_id": lease.run_id, "name": "sent", "payload": 7}
    (rows,) = await world.claim_rows(await world.worker())
    assert rows.lease.run_id == second.run_id
    assert [wait.value for wait in rows.waits[1, 0]] == ["7"]
    assert (await world.store.get_run(first.run_id, world.ann)).status is RunStatus.WAITING
    stored = [one for one in await world.log(lease) if one.type.label == "signal.received"]
    assert [(one.data, one.source) for one in stored] == [(event.data, second.run)]


async def test_a_signal_that_came_to_the_root_before_is_taken_by_the_run_below_once(world: Any) -> None:
    lease, ((child, call),) = await listening_child(world)
    await world.store.signal(world.signal(lease, "paid", "the root's"))
    await world.store.signal(world.signal(child, "paid", "its own"))
    for k, value in enumerate(('"its own"', '"the root\'s"', None), start=1):
        await world.store.write(world.waits_for(child, call, "signal", "paid", k=k))
        rows = await world.store.load(child)
        assert rows.waits[1, 0][-1].value == value


async def test_a_run_that_waits_itself_comes_before_the_runs_below_it(world: Any) -> None:
    worker = await world.worker()
    lease, _ = await world.asking_parent(worker, pause=False)
    (child,) = await world.claim(worker)
    call = world.call(child, 1, status=CallStatus.STARTED)
    await world.store.write(world.reply(child, 1, call))
    await world.store.write(world.waits_for(child, call, "signal", "paid"))
    own = world.call(lease, 2, status=CallStatus.STARTED)
    await world.store.write(world.reply(lease, 2, own))
    await world.store.write(world.waits_for(lease, own, "signal", "paid"))
    for payload in (1, 2):
        await world.store.signal(world.signal(lease, "paid", payload))
    assert [wait.value for wait in (await world.store.load(lease)).waits[2, 0]] == ["1"]
    assert [wait.value for wait in (await world.store.load(child)).waits[1, 0]] == ["2"]


async def test_a_sleep_of_a_run_below_is_shown_above(world: Any) -> None:
    lease, ((child, call),) = await listening_child(world)
    until = world.clock.now() + 60
    await world.store.write(world.waits_for(child, call, "sleep", until=until))
    waiting = (await world.store.get_run(lease.run_id, world.ann)).waiting_for
    assert [(one.kind, one.call_id, one.expires_at) for one in waiting if one.kind == "sleep"] == [
        ("sleep", call.id, until)
    ]
