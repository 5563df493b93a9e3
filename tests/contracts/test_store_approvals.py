"""Decisions of people: by who may, the first one wins, and a run that waits for one never sleeps through it."""

from __future__ import annotations

import dataclasses
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import Conflict, Forbidden, InvalidRequest, NotFound

pytestmark = pytest.mark.anyio


async def test_a_waiting_run_says_for_what_and_has_no_worker(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    lease, call = await world.waiting_run(worker)
    run = await world.store.get_run(lease.run_id, world.ann)
    (waiting,) = run.waiting_for
    assert run.status is RunStatus.WAITING
    assert (waiting.kind, waiting.call_id, waiting.tool) == ("approval", call.id, call.tool)
    assert world.labels(lease)[-2:] == ["approval.requested", "run.waiting"]
    assert world.told[-1].data == {"run_id": lease.run_id, "waiting_for": ["approval"]}
    world.clock.move(100)
    assert await world.claim(await world.worker()) == []


async def test_a_decision_wakes_the_run_and_is_told(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.waiting_run(worker)
    edited = '{"order_id":"A-1002"}'
    approval, view = await world.store.decide(world.verdict(call, lease, reason="fine\x00", arguments=edited))
    assert (approval.decision, approval.by, approval.reason) == ("approve", world.ann.id, "fine\ufffd")
    assert (view.requested_by, view.agent, view.call.approval) == (world.ann, world.agent, approval)
    assert world.told[-1].data == {
        "run_id": lease.run_id,
        "call_id": call.id,
        "decision": "approve",
        "by": world.ann.id,
        "reason": "fine\ufffd",
        "arguments": {"order_id": "A-1002"},
    }
    (rows,) = await world.store.claim(worker, 50, 10)
    assert rows.messages[1].calls[0].approval == approval
    assert (rows.messages[1].calls[0].effective_arguments, rows.messages[1].calls[0].arguments) == (
        edited,
        call.arguments,
    )
    assert (rows.attempt, rows.crashes) == (1, 0)


async def test_the_first_decision_wins_and_the_same_again_is_the_recorded_one(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.waiting_run(worker)
    first, _ = await world.store.decide(world.verdict(call, lease, decision="decline", reason="no"))
    told = len(world.told)
    again, _ = await world.store.decide(world.verdict(call, lease, decision="decline", reason="other"))
    assert again == first
    for other in ({"decision": "approve"}, {"decision": "decline", "arguments": "{}"}):
        with pytest.raises(Conflict) as refused:
            await world.store.decide(world.verdict(call, lease, **other))
        assert refused.value.code == "already_decided"
    assert len(world.told) == told


async def test_only_the_owner_decides_by_default(world: Any) -> None:
    lease, call = await world.waiting_run(await world.worker())
    for other in (world.bob, world.fin):
        with pytest.raises(NotFound):
            await world.store.decide(world.verdict(call, lease, principal=other, allowed=True))
        with pytest.raises(NotFound):
            await world.store.get_call(call.id, other)
    assert (await world.store.get_call(call.id, world.ann)).requested_by == world.ann


async def test_a_role_decides_and_the_owner_without_it_is_told_so(world: Any) -> None:
    lease, call = await world.waiting_run(await world.worker(), approver="role:finance")
    with pytest.raises(Forbidden):
        await world.store.decide(world.verdict(call, lease))
    with pytest.raises(NotFound):
        await world.store.decide(world.verdict(call, lease, principal=world.bob))
    elsewhere = dataclasses.replace(world.fin, tenant="t2")
    with pytest.raises(NotFound):
        await world.store.decide(world.verdict(call, lease, principal=elsewhere))
    approval, _ = await world.store.decide(world.verdict(call, lease, principal=world.fin))
    assert approval.by == world.fin.id
    assert (await world.store.get_call(call.id, world.fin)).call.approval == approval
    with pytest.raises(NotFound):
        await world.store.get_run(lease.run_id, world.fin)


async def test_a_function_decides_through_the_engine(world: Any) -> None:
    lease, call = await world.waiting_run(await world.worker(), approver="function")
    with pytest.raises(Forbidden):
        await world.store.decide(world.verdict(call, lease))
    with pytest.raises(NotFound):
        await world.store.decide(world.verdict(call, lease, principal=world.fin))
    with pytest.raises(NotFound):  # of another tenant, whatever the function says
        await world.store.decide(world.verdict(call, lease, principal=world.bob, allowed=True))
    approval, _ = await world.store.decide(world.verdict(call, lease, principal=world.fin, allowed=True))
    assert approval.by == world.fin.id


async def test_an_unknown_call_or_one_without_approval_is_not_found(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1)
    await world.store.write(world.reply(lease, 1, call))
    for unknown in (call.id, call.id[:-1] + "7", "call_x", "run_1"):
        with pytest.raises(NotFound):
            await world.store.decide(world.verdict(replace(call, id=unknown), lease))


async def test_an_expired_approval_wakes_its_run_and_can_no_longer_be_decided(world: Any) -> None:
    worker = await world.worker(lease_s=1000)
    lease, call = await world.waiting_run(worker, expires_at=world.clock.now() + 60)
    world.clock.move(59.9)
    assert await world.claim(worker) == []
    world.clock.move(0.2)
    with pytest.raises(Conflict) as refused:
        await world.store.decide(world.verdict(call, lease))
    assert refused.value.code == "approval_expired"
    (again,) = await world.claim(worker)
    await world.store.write(world.result(again, call, "nobody answered", status=CallStatus.DECLINED, expired=((1, 0),)))
    with pytest.raises(Conflict) as refused:
        await world.store.decide(world.verdict(call, lease))
    assert refused.value.code == "approval_expired"
    assert (await world.store.get_call(call.id, world.ann)).call.approval.decision == "expire"


@pytest.mark.parametrize("verb", ["write", "pause"])
async def test_a_call_never_expires_after_a_person_has_decided(world: Any, verb: str) -> None:
    lease = await world.start(await world.worker())
    expires_at = world.clock.now() + 10
    calls = [world.call(lease, 1, n, approval=world.approval(expires_at=expires_at)) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    world.clock.move(9.9)
    await world.store.decide(world.verdict(calls[0], lease))
    world.clock.move(1)
    before = world.labels(lease)
    late = world.result(lease, calls[0], "nobody answered", status=CallStatus.DECLINED, expired=((1, 0), (1, 1)))
    with pytest.raises(Conflict) as refused:
        await (world.store.write(late) if verb == "write" else world.store.pause(late, None, ("approval",)))
    assert refused.value.code == "already_decided"
    rows = await world.store.load(lease)
    assert [(call.status, call.approval.decision) for call in rows.messages[1].calls] == [
        (CallStatus.OPEN, "approve"),
        (CallStatus.OPEN, None),
    ]
    assert (rows.changes, world.labels(lease)) == (1, before)
    other = world.result(
        lease, calls[1], "nobody answered", status=CallStatus.DECLINED, expired=((1, 1),), number=late.number
    )
    await world.store.write(other)
    rows = await world.store.load(lease)
    assert (rows.changes, rows.messages[1].calls[1].approval.decision) == (2, "expire")


async def test_a_call_that_is_asked_for_and_expires_in_one_commit_expires(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, approval=world.approval(expires_at=world.clock.now()))
    asked = world.store.write(world.reply(lease, 1, call))
    late = world.result(lease, call, "nobody answered", status=CallStatus.DECLINED, expired=((1, 0),))
    await world.store.write(late)
    await asked
    await world.store.write(late)
    assert (await world.store.get_call(call.id, world.ann)).call.approval.decision == "expire"


async def test_a_decision_about_an_ended_run_or_call_is_refused(world: Any) -> None:
    worker = await world.worker()
    lease, call = await world.waiting_run(worker)
    await world.store.cancel(lease.run_id, world.ann)
    with pytest.raises(Conflict) as refused:
        await world.store.decide(world.verdict(call, lease))
    assert refused.value.code == "approval_closed"


async def test_each_decision_wakes_the_run(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    calls = [world.call(lease, 1, n, approval=world.approval()) for n in range(2)]
    await world.store.write(world.reply(lease, 1, *calls))
    assert await world.store.pause(world.change(lease), None, ("approval",))
    await world.store.decide(world.verdict(calls[1], lease))
    (lease,) = await world.claim(worker)
    await world.store.write(world.change(lease, starts=((1, 1),)))
    await world.store.write(world.result(lease, calls[1]))
    assert await world.store.pause(world.change(lease), None, ("approval",))
    await world.store.decide(world.verdict(calls[0], lease, decision="decline"))
    (lease,) = await world.claim(worker)
    assert [call.status for call in (await world.store.load(lease)).messages[1].calls] == ["open", "done"]


async def test_pause_looks_again_and_goes_on_when_the_decision_is_there_already(world: Any) -> None:
    lease = await world.start(await world.worker())
    call = world.call(lease, 1, approval=world.approval())
    await world.store.write(world.reply(lease, 1, call))
    await world.store.decide(world.verdict(call, lease))
    events = (NewEvent(type=EventType.MESSAGE_DELTA, data='{"message_id":"m","offset":0,"text":"x"}'),)
    paused = world.change(lease, model_failures=3, events=events)
    assert await world.store.pause(paused, None, ("approval",)) is False
    assert (await world.store.get_run(lease.run_id, world.ann)).status is RunStatus.RUNNING
    assert world.labels(lease)[-2:] == ["approval.decided", "message.delta"], "what it tells is told, once"
    assert (await world.store.load(lease)).model_failures == 3
    assert await world.store.pause(paused, None, ("approval",)) is False
    assert world.labels(lease).count("message.delta") == 1


async def test_a_pause_and_a_decision_at_the_same_moment_never_leave_a_run_asleep(world: Any) -> None:
    worker = await world.worker()
    for _ in range(30):
        lease = await world.start(worker)
        call = world.call(lease, 1, approval=world.approval())
        await world.store.write(world.reply(lease, 1, call))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.store.pause, world.change(lease), None, ("approval",))
            tasks.start_soon(world.store.decide, world.verdict(call, lease))
        status = (await world.store.get_run(lease.run_id, world.ann)).status
        assert status in (RunStatus.RUNNING, RunStatus.QUEUED)


async def test_a_pause_until_a_time_is_due_at_that_time_and_not_before(world: Any) -> None:
    worker = await world.worker(lease_s=1000)
    lease = await world.start(worker)
    assert await world.store.pause(world.change(lease, model_failures=1), world.clock.now() + 10.0005, ("model",))
    run = await world.store.get_run(lease.run_id, world.ann)
    assert [waiting.kind for waiting in run.waiting_for] == ["model"]
    world.clock.move(10)
    assert await world.claim(worker) == []
    world.clock.move(0.001)
    (rows,) = await world.store.claim(worker, 90, 10)
    assert (rows.model_failures, rows.attempt) == (1, 1)
    assert (await world.store.get_run(lease.run_id, world.ann)).waiting_for == ()


async def test_a_principals_list_has_what_is_open_and_its_own_to_decide_and_nothing_else(world: Any) -> None:
    worker, now = await world.worker(lease_s=1000), world.clock.now()
    other_tenant = dataclasses.replace(world.ann, id="user:eve", tenant="t2")
    _, own = await world.waiting_run(worker)
    _, of_role = await world.waiting_run(worker, approver="role:finance")
    _, of_function = await world.waiting_run(worker, approver="function")
    _, expiring = await world.waiting_run(worker, approver="role:finance", expires_at=now + 60)
    await world.waiting_run(worker, principal=other_tenant)
    await world.waiting_run(worker, principal=other_tenant, approver="role:finance")
    await world.waiting_run(worker, principal=other_tenant, approver="function")
    decided, call = await world.waiting_run(worker)
    await world.store.decide(world.verdict(call, decided))
    cancelled, _ = await world.waiting_run(worker)
    await world.store.cancel(cancelled.run_id, world.ann)

    async def listed(who: Any, *, at: float = now, functions: bool = False) -> list[str]:
        found, cursor = [], None
        while True:
            page = await world.store.list_approvals(who, at, functions=functions, limit=1, cursor=cursor)
            found += [view.call.id for view in page.items]
            if (cursor := page.next_cursor) is None:
                return found

    assert await listed(world.ann) == [own.id]
    assert await listed(world.ann, functions=True) == [own.id, of_function.id]
    assert await listed(world.fin) == [of_role.id, expiring.id]
    assert await listed(world.fin, at=now + 60, functions=True) == [of_role.id, of_function.id]
    assert await listed(world.bob, functions=True) == []
    with pytest.raises(InvalidRequest):
        await world.store.list_approvals(world.ann, now, functions=False, cursor="x")
