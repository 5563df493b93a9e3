"""Reads over all principals, and the operator's decision: bounded, in order, and open to nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.errors import Conflict, Forbidden, InvalidRequest, NotFound
from amoxi_py.ports.operator_store import RunFilter
from amoxi_py.stores.sql import operating

pytestmark = pytest.mark.anyio


async def all_runs(world: Any, *, limit: int = 2, **wanted: Any) -> list[str]:
    found, cursor = [], None
    while True:
        page = await world.store.find_runs(RunFilter(**wanted), limit=limit, cursor=cursor)
        assert len(page.items) <= limit
        found += [run.id for run in page.items]
        if (cursor := page.next_cursor) is None:
            return found


async def test_runs_of_all_principals_are_found_newest_first_by_status_agent_and_principal(world: Any) -> None:
    worker = await world.worker()
    made: list[tuple[str, str, str, str]] = []
    for number in range(12):
        who, agent = (world.ann, world.bob)[number % 2], ("first", "second")[number % 3 == 0]
        lease = await world.start(worker, text=str(number), principal=who, agent=agent)
        if number % 4 == 0:
            await world.store.write(world.finish(lease, 1))
        elif number % 4 == 1:
            await world.store.write(world.fail(lease))
        elif number % 4 == 2:
            await world.store.cancel(lease.run_id, who)
        status = ("completed", "failed", "cancelled", "running")[number % 4]
        made.insert(0, (lease.run_id, status, agent, who.id))
    assert await all_runs(world) == [run for run, *_ in made]
    for status in ("completed", "failed", "cancelled", "running", "queued"):
        expected = [run for run, its, *_ in made if its == status]
        assert await all_runs(world, status=RunStatus(status)) == expected
    for who in (world.ann, world.bob, world.fin):
        assert await all_runs(world, principal=who.id) == [run for run, _, _, its in made if its == who.id]
    for agent in ("first", "second", "other"):
        assert await all_runs(world, agent=agent) == [run for run, _, its, _ in made if its == agent]
        for status in ("failed", "completed", "running"):
            expected = [run for run, one, its, _ in made if (one, its) == (status, agent)]
            assert await all_runs(world, status=RunStatus(status), agent=agent) == expected
    expected = [run for run, status, agent, who in made if (status, agent, who) == ("failed", "second", world.bob.id)]
    wanted = {"status": RunStatus.FAILED, "agent": "second", "principal": world.bob.id}
    assert await all_runs(world, **wanted) == expected != []


async def test_runs_of_an_id_are_found_in_all_tenants_and_those_of_an_owner_in_one(world: Any) -> None:
    people = [Principal(id="user:4", tenant=tenant) for tenant in (None, "", "t", "tt")]
    people += [Principal(id=other, tenant="t") for other in ("user:42", "user:")]
    made = [(who, (await world.submit(principal=who)).run.id) for who in people]
    for who, run_id in made:
        assert await all_runs(world, owner_key=who.owner_key) == [run_id]
        assert await all_runs(world, owner_key=who.owner_key, status=RunStatus.COMPLETED) == []
        expected = [run for one, run in reversed(made) if one.id == who.id]
        assert await all_runs(world, principal=who.id) == expected


async def test_one_page_looks_at_so_many_runs_and_the_next_one_goes_on_behind_them(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "_LOOKED_AT", 3)
    rare = (await world.submit(agent="rare")).run.id
    for _ in range(7):
        await world.submit(agent="usual")
    wanted = RunFilter(agent="rare")
    first = await world.store.find_runs(wanted, limit=2)
    assert first.items == ()
    assert first.next_cursor is not None
    assert await all_runs(world, agent="rare") == [rare]


async def test_open_approvals_are_those_that_somebody_can_decide_now_the_oldest_runs_first(world: Any) -> None:
    worker = await world.worker()
    now = world.clock.now()
    decided, call = await world.waiting_run(worker)
    await world.store.decide(world.verdict(call, decided))
    cancelled, _ = await world.waiting_run(worker)
    await world.store.cancel(cancelled.run_id, world.ann)
    await world.waiting_run(worker, expires_at=now + 5)
    open_calls = [await world.waiting_run(worker, approver="role:finance") for _ in range(3)]
    open_calls.append(await world.waiting_run(worker, principal=world.bob, expires_at=now + 50))
    found, cursor = [], None
    while True:
        page = await world.store.open_approvals(now + 5, limit=3, cursor=cursor)
        found += page.items
        if (cursor := page.next_cursor) is None:
            break
    assert [view.call.id for view in found] == [call.id for _, call in open_calls]
    assert [view.run_id for view in found] == [lease.run_id for lease, _ in open_calls]
    assert [view.requested_by for view in found] == [world.ann] * 3 + [world.bob]
    assert {view.call.approval.approver for view in found[:3]} == {"role:finance"}
    assert all(view.agent == world.agent for view in found)


async def test_two_calls_of_one_reply_that_wait_are_in_order_also_over_pages(world: Any) -> None:
    lease = await world.start(await world.worker())
    calls = [world.call(lease, 1, n, approval=world.approval()) for n in range(3)]
    await world.store.write(world.reply(lease, 1, *calls))
    first = await world.store.open_approvals(world.clock.now(), limit=2)
    second = await world.store.open_approvals(world.clock.now(), limit=2, cursor=first.next_cursor)
    assert [view.call.id for view in (*first.items, *second.items)] == [call.id for call in calls]
    assert second.next_cursor is None


@pytest.mark.parametrize("approver", ["owner", "role:finance", "function", "a rule of a newer version"])
async def test_the_operator_decides_whatever_the_rule_is_and_is_named(world: Any, approver: str) -> None:
    lease, call = await world.waiting_run(await world.worker(), approver=approver)
    with pytest.raises((NotFound, Forbidden)):
        await world.store.decide(world.verdict(call, lease, principal=world.bob))
    verdict = world.verdict(call, lease, principal=world.bob, operator=True, reason="it is fine")
    approval, _ = await world.store.decide(verdict)
    assert (approval.decision, approval.by, approval.reason) == ("approve", world.bob.id, "it is fine")
    [told] = [event for event in world.told if event.type.label == "approval.decided"]
    assert (told.data["decision"], told.data["by"]) == ("approve", world.bob.id)
    assert (await world.store.decide(verdict))[0] == approval
    with pytest.raises(Conflict):
        await world.store.decide(world.verdict(call, lease, principal=world.bob, operator=True, decision="decline"))


async def test_the_owner_of_a_run_is_found_as_it_was_stored_with_it(world: Any) -> None:
    run = (await world.submit()).run
    assert await world.store.owner_of(run.id) == world.ann
    with pytest.raises(NotFound):
        await world.store.owner_of("run_that_never_was")


async def test_messages_of_a_run_are_its_own_ones_in_order_and_only_its_principals(world: Any) -> None:
    worker = await world.worker()
    first = await world.start(worker, text="first")
    await world.store.write(world.finish(first, 1))
    conversation = (await world.store.get_run(first.run_id, world.ann)).conversation_id
    second = await world.start(worker, text="second", conversation=conversation)
    call = world.call(second, 1)
    await world.store.write(world.reply(second, 1, call, text="Look:"))
    messages = await world.store.run_messages(second.run_id, world.ann)
    assert [(message.turn, message.text) for message in messages] == [(0, "second"), (1, "Look:")]
    assert [one.id for one in messages[1].calls] == [call.id]
    with pytest.raises(NotFound):
        await world.store.run_messages(second.run_id, world.bob)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "cnVuczox"])
async def test_a_cursor_of_another_list_is_refused(world: Any, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        await world.store.find_runs(RunFilter(), cursor=cursor)
    with pytest.raises(InvalidRequest):
        await world.store.open_approvals(world.clock.now(), cursor=cursor)
