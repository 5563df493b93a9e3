"""The tasks of callers over A2A: their own alone, in the order of their statuses, whoever has moved them."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import InvalidRequest, NotFound
from amoxi_py.ports.tasks import TaskFilter

pytestmark = pytest.mark.anyio

SHOP = Principal(id="a2a:shop", name="shop", channel="a2a")
BANK = Principal(id="a2a:bank", name="bank", channel="a2a", tenant="t1")
WORKING = (RunStatus.RUNNING, RunStatus.WAITING)


async def ids(world: Any, principal: Principal = SHOP, **wanted: Any) -> list[str]:
    page = await world.store.list_tasks(principal, TaskFilter(**wanted))
    assert page.next_cursor is None
    assert page.total == len(page.items)
    return [run.id for run in page.items]


async def later(world: Any, **more: Any) -> Run:
    world.clock.move(1)
    submitted = await world.submit(**{"principal": SHOP} | more)
    run: Run = submitted.run
    return run


async def test_only_callers_over_a2a_have_tasks_and_each_its_own(world: Any) -> None:
    mine, theirs = await later(world), await later(world, principal=BANK)
    others = [await later(world, principal=who) for who in (world.ann, Principal(id="mcp:a2a:shop", channel="mcp"))]
    assert await ids(world) == [mine.id]
    assert await ids(world, BANK) == [theirs.id]
    assert await ids(world, Principal(id="a2a:bank")) == [], "the same id in another tenant is somebody else"
    assert await ids(world, conversation_id=theirs.conversation_id) == []
    assert await ids(world, conversation_id=mine.conversation_id) == [mine.id]
    assert await ids(world, conversation_id="conv_none") == []
    for run in others:
        assert await ids(world, run.principal) == []
        assert (await world.store.get_run(run.id, run.principal)).status_at is None


async def test_the_task_that_was_moved_last_is_the_first(world: Any) -> None:
    first, second, third = [await later(world) for _ in range(3)]
    assert await ids(world) == [third.id, second.id, first.id]
    world.clock.move(1)
    await world.store.cancel(first.id, SHOP)
    assert await ids(world) == [first.id, third.id, second.id]
    assert (await world.store.get_run(first.id, SHOP)).status_at == world.clock.now()


async def test_a_status_keeps_its_time_while_its_run_is_written_to(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker, principal=SHOP)
    began = (await world.store.get_run(lease.run_id, SHOP)).status_at
    assert began == world.clock.now()
    world.clock.move(5)
    await world.write(world.delta(lease, "msg_1", 0, "Hel"))
    run = await world.store.get_run(lease.run_id, SHOP)
    assert (run.status_at, run.updated_at) == (began, world.clock.now())
    await world.write(world.finish(lease, 1))
    assert (await world.store.get_run(lease.run_id, SHOP)).status_at == world.clock.now()


async def test_each_way_from_one_status_to_the_next_is_seen(world: Any) -> None:
    worker = await world.worker()
    seen: list[RunStatus] = []

    async def moved() -> None:
        (run,) = (await world.store.list_tasks(SHOP)).items
        assert run.status_at == world.clock.now()
        seen.append(run.status)
        world.clock.move(1)

    await world.submit(principal=SHOP)
    await moved()
    (lease,) = await world.claim(worker)
    await moved()
    await world.store.release(lease)
    await moved()
    (lease,) = await world.claim(worker)
    await moved()
    call = world.call(lease, 1, approval=world.approval())
    await world.write(world.reply(lease, 1, call))
    assert await world.store.pause(world.change(lease), None, ("approval",))
    await moved()
    await world.store.decide(world.verdict(call, lease, principal=SHOP))
    await moved()
    (lease,) = await world.claim(worker)
    await moved()
    await world.store.retire(worker)
    await moved()
    (lease,) = await world.claim(await world.worker())
    await moved()
    await world.write(world.fail(lease))
    await moved()
    assert [one.value for one in seen] == [
        *("queued", "running", "queued", "running", "waiting", "queued", "running", "queued", "running", "failed")
    ]


async def test_what_waits_is_told_apart_by_whether_it_asks(world: Any) -> None:
    worker = await world.worker()
    approval, call = await world.waiting_run(worker, principal=SHOP)
    question, asked = await world.asking_run(worker, principal=SHOP)
    sleeper = await world.start(worker, principal=SHOP)
    sleeping = world.call(sleeper, 1, status=CallStatus.STARTED)
    await world.write(world.reply(sleeper, 1, sleeping))
    until = world.clock.now() + 60
    await world.write(world.waits_for(sleeper, sleeping, "sleep", until=until))
    assert await world.store.pause(world.change(sleeper), until, ("sleep",))
    running = await world.start(worker, principal=SHOP)
    ask, work = {approval.run_id, question.run_id}, {sleeper.run_id, running.run_id}
    assert set(await ids(world, statuses=(RunStatus.WAITING,), asking=True)) == ask
    assert set(await ids(world, statuses=WORKING, asking=False)) == work
    assert set(await ids(world, statuses=WORKING)) == ask | work
    conversation = (await world.store.get_run(question.run_id, SHOP)).conversation_id
    assert await ids(world, conversation_id=conversation, asking=True) == [question.run_id]
    assert await ids(world, conversation_id=conversation, statuses=WORKING, asking=False) == []
    await world.store.decide(world.verdict(call, approval, principal=SHOP))
    await world.store.answer(world.answer(asked, "the red one", principal=SHOP))
    assert await ids(world, statuses=(RunStatus.WAITING,), asking=True) == []
    assert set(await ids(world, statuses=(RunStatus.QUEUED,))) == ask


async def test_what_is_queued_is_told_apart_by_whether_it_has_begun(world: Any) -> None:
    worker = await world.worker()
    begun, new = await world.start(worker, principal=SHOP), (await later(world)).id
    queued = (RunStatus.QUEUED,)
    everything = (*queued, *WORKING)
    assert await ids(world, statuses=queued, begun=True) == []
    assert await ids(world, statuses=everything, begun=True) == [begun.run_id], "it is running"
    await world.store.release(begun)
    for within in ({}, {"conversation_id": (await world.store.get_run(begun.run_id, SHOP)).conversation_id}):
        assert await ids(world, statuses=queued, begun=True, **within) == [begun.run_id]
        assert await ids(world, statuses=everything, begun=True, asking=False, **within) == [begun.run_id]
        assert await ids(world, statuses=queued, begun=False, **within) == ([] if within else [new])
    assert set(await ids(world, statuses=queued)) == {begun.run_id, new}


async def test_a_server_that_knows_nothing_of_tasks_moves_them_too(world: Any) -> None:
    run = await later(world)
    moved = int(world.clock.now() + 7) * 1000
    await world.change_rows("run", f"status = 'running', updated_at = {moved}")
    assert (await world.store.get_run(run.id, SHOP)).status_at == moved / 1000
    await world.change_rows("run", f"updated_at = {moved + 1000}")
    assert (await world.store.get_run(run.id, SHOP)).status_at == moved / 1000, "no other status"


@pytest.mark.parametrize("kind", ["approval", "question"])
async def test_what_asks_before_a_run_in_its_conversation_is_found(world: Any, kind: str) -> None:
    worker = await world.worker()
    ask = world.waiting_run if kind == "approval" else world.asking_run
    elsewhere, _ = await ask(worker, principal=SHOP)
    lease, call = await ask(worker, principal=SHOP)
    conversation = (await world.store.get_run(lease.run_id, SHOP)).conversation_id
    behind = (await world.submit(principal=SHOP, conversation=conversation, on_busy="queue")).run
    last = (await world.submit(principal=SHOP, conversation=conversation, on_busy="queue")).run
    for run in (behind, last):
        assert (await world.store.asking_before(run.id, SHOP)).id == lease.run_id
    for first in (lease, elsewhere):
        assert await world.store.asking_before(first.run_id, SHOP) is None, "nothing is before it"
    for run_id, who in ((behind.id, BANK), ("run_none", SHOP)):
        with pytest.raises(NotFound):
            await world.store.asking_before(run_id, who)
    if kind == "approval":
        await world.store.decide(world.verdict(call, lease, principal=SHOP))
    else:
        await world.store.answer(world.answer(call, "this", principal=SHOP))
    assert await world.store.asking_before(last.id, SHOP) is None


async def test_what_asks_below_a_run_asks_before_the_next_and_what_sleeps_does_not(world: Any) -> None:
    worker = await world.worker()
    parent, _ = await world.asking_parent(worker, principal=SHOP)
    conversation = (await world.store.get_run(parent.run_id, SHOP)).conversation_id
    behind = (await world.submit(principal=SHOP, conversation=conversation, on_busy="queue")).run
    assert await world.store.asking_before(behind.id, SHOP) is None, "it waits for a run that works"
    (child,) = await world.claim(worker)
    call = world.call(child, 1, approval=world.approval(approver="role:finance"))
    await world.write(world.reply(child, 1, call))
    assert await world.store.pause(world.change(child), None, ("approval",))
    asking = await world.store.asking_before(behind.id, SHOP)
    assert (asking.id, asking.waiting_for[0].call_id) == (parent.run_id, call.id)


@pytest.mark.parametrize("kind", ["approval", "question"])
async def test_a_task_asks_when_a_run_below_it_does(world: Any, kind: str) -> None:
    worker = await world.worker()
    parent, _ = await world.asking_parent(worker, principal=SHOP)
    assert await ids(world, statuses=WORKING, asking=False) == [parent.run_id]
    world.clock.move(1)
    (child,) = await world.claim(worker)
    call = world.call(
        child, 1, **{"approval": world.approval()} if kind == "approval" else {"status": CallStatus.STARTED}
    )
    await world.write(world.reply(child, 1, call))
    if kind == "question":
        await world.write(world.waits_for(child, call, "question", "Which?"))
    assert await world.store.pause(world.change(child), None, (kind,))
    (task,) = (await world.store.list_tasks(SHOP, TaskFilter(statuses=(RunStatus.WAITING,), asking=True))).items
    assert (task.id, task.status_at) == (parent.run_id, world.clock.now())
    world.clock.move(1)
    if kind == "approval":
        await world.store.decide(world.verdict(call, parent, principal=SHOP))
    else:
        await world.store.answer(world.answer(call, "this", principal=SHOP))
    (task,) = (await world.store.list_tasks(SHOP, TaskFilter(statuses=WORKING, asking=False))).items
    assert (task.id, task.status_at) == (parent.run_id, world.clock.now())
    (child,) = await world.claim(worker)
    world.clock.move(1)
    await world.store.cancel(parent.run_id, SHOP)
    assert await ids(world, statuses=(RunStatus.CANCELLED,)) == [parent.run_id], "a run below is no task"


async def test_pages_are_whole_and_say_how_many_there_are(world: Any) -> None:
    conversation = (await later(world)).conversation_id
    runs = [await later(world, conversation=conversation, on_busy="queue") for _ in range(6)]
    world.clock.move(1)
    same = [(await world.submit(principal=SHOP)).run for _ in range(3)]
    every = [*(run.id for run in reversed(same)), *(run.id for run in reversed(runs))]
    for wanted, expected in (({}, every), ({"conversation_id": conversation}, every[3:])):
        found: list[str] = []
        cursor: str | None = None
        while True:
            only = TaskFilter(updated_after=runs[0].created_at, **wanted)
            page = await world.store.list_tasks(SHOP, only, limit=2, cursor=cursor)
            assert page.total == len(expected)
            assert len(page.items) == min(2, len(expected) - len(found))
            found += [run.id for run in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == expected
    with pytest.raises(InvalidRequest, match="not a cursor"):
        await world.store.list_tasks(SHOP, cursor=(await world.store.list_runs(SHOP, limit=1)).next_cursor)


async def test_a_time_is_the_first_that_counts(world: Any) -> None:
    first, second = await later(world), await later(world)
    assert await ids(world, updated_after=second.created_at) == [second.id]
    assert await ids(world, updated_after=second.created_at + 0.0004) == []
    assert await ids(world, updated_after=-1.0) == [second.id, first.id]
    assert await ids(world, updated_after=first.created_at, conversation_id=second.conversation_id) == [second.id]


async def test_an_erased_conversation_has_no_tasks(world: Any) -> None:
    run = await later(world)
    await world.store.erase(run.conversation_id, SHOP)
    assert await ids(world) == []
