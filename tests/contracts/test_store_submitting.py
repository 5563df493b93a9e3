"""A message becomes a run: once, in the right conversation, behind or in place of what is busy there."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.run import RunStatus
from amoxi_py.errors import Conflict, NotFound

pytestmark = pytest.mark.anyio


async def test_a_message_is_stored_with_its_queued_run_and_told(world: Any) -> None:
    submitted = await world.submit("Where is  A-1001?\nPlease.")
    run = submitted.run
    assert (run.status, run.attempt, submitted.created, submitted.rows) == (RunStatus.QUEUED, 0, True, None)
    assert await world.store.get_run(run.id, world.ann) == run
    assert [event.type.label for event in world.told] == ["run.queued", "message.completed"]
    assert world.told[0].data == {
        "run_id": run.id, "agent": world.agent, "conversation_id": run.conversation_id
    }  # fmt: skip
    page = await world.store.read_conversation(run.conversation_id, world.ann)
    assert page.conversation.title == "Where is A-1001? Please."
    (message,) = page.messages.items
    assert (message.text, message.role, message.files) == ("Where is  A-1001?\nPlease.", "user", ())


async def test_a_principal_comes_back_as_it_was_with_tenant_roles_and_claims(world: Any) -> None:
    submitted = await world.submit()
    (rows,) = await world.store.claim(await world.worker(), 1, 10)
    assert rows.principal == world.ann
    assert (await world.store.get_run(submitted.run.id, world.ann)).principal == world.ann


async def test_a_submission_with_a_free_worker_is_claimed_in_the_same_commit(world: Any) -> None:
    worker = await world.worker()
    submitted = await world.submit(claim_by=worker)
    assert submitted.run.status is RunStatus.RUNNING
    assert submitted.rows == await world.store.load(submitted.rows.lease)
    assert world.labels(submitted.rows.lease) == ["run.queued", "message.completed", "run.started"]
    assert await world.claim(worker) == []


async def test_a_worker_whose_lease_expired_gets_nothing_with_a_submission(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    world.clock.move(6)
    assert (await world.submit(claim_by=worker)).run.status is RunStatus.QUEUED


async def test_the_same_key_and_body_is_the_same_run_and_another_body_is_refused(world: Any) -> None:
    first = await world.submit(idempotency_key="k", digest="d1")
    again = await world.submit(idempotency_key="k", digest="d1")
    assert (again.run.id, again.created) == (first.run.id, False)
    with pytest.raises(Conflict) as refused:
        await world.submit(idempotency_key="k", digest="d2")
    assert refused.value.code == "idempotency_key_reused"


async def test_keys_of_different_callers_and_agents_do_not_meet(world: Any) -> None:
    runs = {
        (await world.submit(idempotency_key="k", principal=who, agent=agent)).run.id
        for who in (world.ann, world.bob)
        for agent in ("a", "b")
    }
    assert len(runs) == 4


async def test_a_key_with_a_scope_is_one_for_all_agents_and_no_other_ones(world: Any) -> None:
    first = await world.submit(idempotency_key="k", key_scope="door", agent="a", digest="d1")
    again = await world.submit(idempotency_key="k", key_scope="door", agent="b", digest="d1")
    assert (again.run.id, again.created) == (first.run.id, False)
    with pytest.raises(Conflict, match="used with another request"):
        await world.submit(idempotency_key="k", key_scope="door", agent="b", digest="d2")
    others = (
        {"key_scope": "hall"},
        {"agent": "door"},
        {"agent": "a"},
        {"key_scope": "door", "principal": world.bob},
    )
    assert all([(await world.submit(idempotency_key="k", digest="d1", **other)).created for other in others])


async def test_of_messages_that_begin_a_conversation_the_first_does_and_the_others_go_on_with_it(world: Any) -> None:
    worker = await world.worker()
    named = {"conversation_id": "conv_named", "new_conversation": False, "begins": True, "on_busy": "queue"}
    first = await world.submit("one", claim_by=worker, **named)
    assert (first.began, first.busy, first.run.status) == (True, False, RunStatus.RUNNING)
    behind = await world.submit("two", claim_by=worker, **named)
    assert (behind.began, behind.busy, behind.run.status) == (False, True, RunStatus.QUEUED)
    await world.store.write(world.finish(first.rows.lease, 1))
    (lease,) = await world.claim(worker)
    await world.store.write(world.finish(lease, 1))
    idle = await world.submit("three", claim_by=worker, **named)
    assert (idle.began, idle.busy, idle.run.status) == (False, False, RunStatus.RUNNING)
    history = await world.store.history(idle.rows.lease)
    assert [message.text for message in history.messages] == ["one", "Done.", "two", "Done."]
    for other in ({"principal": world.bob}, {"agent": "other"}):
        with pytest.raises(NotFound):
            await world.submit("four", **named, **other)
    fresh = await world.submit(claim_by=worker)
    assert (fresh.began, fresh.busy) == (True, False)


async def test_first_messages_of_one_conversation_at_once_to_two_servers_all_land(world: Any) -> None:
    async with world.other_process() as other:
        workers = [(home, await home.worker()) for home in (world, other)]
        landed: dict[str, list[Any]] = {f"conv_{number:026}": [] for number in range(10)}

        async def send(home: Any, worker: Any, conversation: str) -> None:
            named = {"conversation_id": conversation, "new_conversation": False, "begins": True, "on_busy": "queue"}
            for _ in range(4):
                one = await home.submit(claim_by=worker, idempotency_key=new_id("key"), **named)
                landed[conversation].append(one)
                if one.rows is not None:
                    tasks.start_soon(work, home, one.rows.lease)

        async def work(home: Any, lease: Any) -> None:
            for n in range(8):  # beside the messages that still come
                told = NewEvent(type=EventType.TOOL_PROGRESS, turn=1, n=n, data='{"text":"x"}')
                await home.store.write(home.change(lease, events=(told,)))
            await home.store.write(home.finish(lease, 1))

        async with anyio.create_task_group() as tasks:
            for conversation in landed:
                for home, worker in workers:
                    tasks.start_soon(send, home, worker, conversation)
        for conversation, ones in landed.items():
            (began,) = [one for one in ones if one.began]
            page = await world.store.read_conversation(conversation, world.ann)
            assert len([message for message in page.messages.items if message.role == "user"]) == len(ones) == 8
            assert [event.seq for event in await world.log(began.rows.lease)] == list(range(1, page.last_event_id + 1))


async def test_a_key_is_looked_up_before_the_busy_conversation(world: Any) -> None:
    first = await world.submit(idempotency_key="k", digest="d")
    again = await world.submit(
        idempotency_key="k", digest="d", conversation=first.run.conversation_id, on_busy="reject"
    )
    assert again.run.id == first.run.id
    assert again.run.status is RunStatus.QUEUED


async def test_a_key_is_forgotten_after_a_day(world: Any) -> None:
    first = await world.submit(idempotency_key="k", digest="d1")
    world.clock.move(24 * 3600 - 1)
    assert (await world.submit(idempotency_key="k", digest="d1")).run.id == first.run.id
    world.clock.move(2)
    assert (await world.submit(idempotency_key="k", digest="d2")).run.id != first.run.id


async def test_a_key_whose_run_was_erased_is_refused(world: Any) -> None:
    first = await world.submit(idempotency_key="k", digest="d")
    await world.store.erase(first.run.conversation_id, world.ann)
    with pytest.raises(Conflict) as refused:
        await world.submit(idempotency_key="k", digest="d")
    assert refused.value.code == "idempotency_key_reused"


async def test_twenty_requests_with_one_key_at_once_are_one_run(world: Any) -> None:
    ids = set()

    async def post() -> None:
        ids.add((await world.submit(idempotency_key="k", digest="d")).run.id)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(post)
    assert len(ids) == 1
    assert len((await world.store.list_runs(world.ann)).items) == 1


async def test_a_conversation_of_somebody_else_or_of_another_agent_is_not_found(world: Any) -> None:
    conversation = (await world.submit()).run.conversation_id
    for more in ({"principal": world.bob}, {"agent": "other"}, {"conversation": "conv_none"}):
        with pytest.raises(NotFound):
            await world.submit(**({"conversation": conversation} | more))
    assert len((await world.store.list_runs(world.ann)).items) == 1


async def test_replace_cancels_all_that_is_open_and_the_last_message_wins(world: Any) -> None:
    worker = await world.worker()
    first = await world.start(worker)
    conversation = (await world.store.get_run(first.run_id, world.ann)).conversation_id
    second = await world.submit(conversation=conversation, on_busy="queue")
    third = await world.submit(conversation=conversation, on_busy="replace")
    ended = (first.run_id, second.run.id)
    statuses = [(await world.store.get_run(run_id, world.ann)).status for run_id in ended]
    assert statuses == [RunStatus.CANCELLED, RunStatus.CANCELLED]
    await world.store.release(first)
    assert [lease.run_id for lease in await world.claim(worker)] == [third.run.id]


async def test_queue_puts_a_run_behind_and_each_becomes_due_when_the_one_before_has_ended(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    queued = [(await world.submit(conversation=conversation, on_busy="queue", claim_by=worker)) for _ in range(3)]
    assert {one.run.status for one in queued} == {RunStatus.QUEUED}
    for one in queued:
        assert await world.claim(worker) == []
        await world.store.write(world.finish(lease, 1))
        (lease,) = await world.claim(worker)
        assert lease.run_id == one.run.id


async def test_reject_refuses_a_busy_conversation_and_changes_nothing(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    told = len(world.told)
    with pytest.raises(Conflict) as refused:
        await world.submit(conversation=conversation, on_busy="reject")
    assert refused.value.code == "conversation_busy"
    assert len(world.told) == told
    await world.store.write(world.finish(lease, 1))
    assert (await world.submit(conversation=conversation, on_busy="reject", claim_by=worker)).rows is not None


@pytest.mark.parametrize(("approver", "first_ends"), [("owner", True), ("role:finance", False), ("function", False)])
async def test_replace_only_queues_behind_a_run_that_waits_for_somebody_else(
    world: Any, approver: str, first_ends: bool
) -> None:
    lease, _ = await world.waiting_run(await world.worker(), approver=approver)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.submit(conversation=conversation, on_busy="replace")
    first = await world.store.get_run(lease.run_id, world.ann)
    assert first.status is (RunStatus.CANCELLED if first_ends else RunStatus.WAITING)


async def test_nul_and_lone_surrogates_become_one_replacement_character(world: Any) -> None:
    submitted = await world.submit("a\x00b\ud800c \N{GRINNING FACE} é")
    page = await world.store.read_conversation(submitted.run.conversation_id, world.ann)
    assert page.messages.items[0].text == "a\ufffdb\ufffdc \N{GRINNING FACE} é"
    assert page.conversation.title == page.messages.items[0].text
    assert world.told[1].data["message"]["text"] == page.messages.items[0].text
