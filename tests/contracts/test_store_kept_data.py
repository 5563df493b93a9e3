"""What is kept: old conversations are purged, a principal's things are read in pieces and forgotten."""

from __future__ import annotations

from asyncio import gather
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.errors import NotFound, TooMany
from amoxi_py.ports.changes import Summary
from amoxi_py.ports.files import NewFile, StoredFile
from amoxi_py.ports.kept_data import Forgotten, Purged
from amoxi_py.ports.records import Record, group_of

pytestmark = pytest.mark.anyio
DAY = 86_400.0


async def content() -> AsyncIterator[bytes]:
    yield b"same"


async def save(world: Any, who: Principal) -> StoredFile:
    new = NewFile(id=new_id("file"), principal=who, name="a.txt", media_type="text/plain")
    stored: StoredFile = await world.store.save_file(new, content())
    return stored


async def ended(world: Any, worker: Any, **more: Any) -> str:
    """A conversation whose run has ended; return its id."""
    lease = await world.start(worker, **more)
    await world.write(world.finish(lease, 1))
    run = await world.store.get_run(lease.run_id, more.get("principal", world.ann))
    assert isinstance(run.conversation_id, str)
    return run.conversation_id


async def there(world: Any) -> set[str]:
    pages = [await world.store.list_conversations(who, limit=200) for who in (world.ann, world.bob)]
    return {one.id for page in pages for one in page.items}


async def purge_all(world: Any, before: float, **more: Any) -> tuple[int, int]:
    purged = Purged(conversations=0, runs=0, next=0)
    conversations = runs = 0
    while purged.next is not None:
        purged = await world.store.purge(before, after=purged.next, **more)
        conversations, runs = conversations + purged.conversations, runs + purged.runs
    return conversations, runs


async def test_what_is_old_and_has_ended_is_purged_piece_by_piece_and_nothing_else(world: Any) -> None:
    worker = await world.worker(lease_s=100 * DAY)
    old = [await ended(world, worker) for _ in range(5)] + [await ended(world, worker, principal=world.bob)]
    again = await ended(world, worker)
    queued = (await world.submit()).run.conversation_id
    running = await world.start(worker)
    waiting, _ = await world.waiting_run(worker)
    parent, _ = await world.asking_parent(worker)
    world.clock.move(10 * DAY)
    await world.start(worker, conversation=again, on_busy="queue")
    new = await ended(world, worker)
    open_ones = {
        (await world.store.get_run(lease.run_id, world.ann)).conversation_id for lease in (running, waiting, parent)
    }
    before = world.clock.now() - DAY
    kept = {again, queued, new} | open_ones
    assert await there(world) == kept | set(old)
    assert await purge_all(world, before, limit=4, dry_run=True) == (6, 6)
    assert await there(world) == kept | set(old), "a dry run deletes nothing"
    first = await world.store.purge(before, limit=4)
    assert (first.conversations, first.runs, len(await there(world))) == (4, 4, len(kept) + 2)
    assert await purge_all(world, before, limit=4) == (2, 2)
    assert await there(world) == kept
    for conversation in old[:5]:
        with pytest.raises(NotFound):
            await world.store.read_conversation(conversation, world.ann)
    await world.write(world.finish(running, 1))
    assert (await world.store.get_run(waiting.run_id, world.ann)).status is RunStatus.WAITING
    assert await purge_all(world, before) == (0, 0)


async def test_a_purge_looks_at_so_many_and_says_where_it_goes_on_though_none_of_them_is_old(world: Any) -> None:
    worker = await world.worker(lease_s=100 * DAY)
    await gather(*(world.submit() for _ in range(500)))
    old = await ended(world, worker)
    world.clock.move(2 * DAY)
    before = world.clock.now() - DAY
    first = await world.store.purge(before)
    assert first.conversations == 0
    assert first.next is not None
    assert await world.store.purge(before, after=first.next) == Purged(conversations=1, runs=1, next=None)
    with pytest.raises(NotFound):
        await world.store.read_conversation(old, world.ann)


async def test_a_purge_takes_files_and_records_with_it_and_may_be_sent_again(world: Any) -> None:
    worker = await world.worker(lease_s=100 * DAY)
    own, shared = await save(world, world.ann), await save(world, world.ann)
    gone = await ended(world, worker, files=(own.file.id, shared.file.id))
    await world.store.keep_record(Record(kind="k", key="1", group=gone, content="1"))
    world.clock.move(2 * DAY)
    kept = await ended(world, worker, files=(shared.file.id,))
    world.lose_answer()
    assert await world.store.purge(world.clock.now() - DAY) == Purged(conversations=1, runs=1, next=None)
    assert await there(world) == {kept}
    assert await world.store.find_files([own.file.id, shared.file.id], world.ann) == (shared.file,)
    assert await world.store.find_records("k", gone) == ()
    with pytest.raises(NotFound):
        await world.store.submit(world.submission(conversation=gone))


async def test_a_sweep_purges_what_is_older_than_it_is_kept(world: Any) -> None:
    worker = await world.worker(lease_s=100 * DAY)
    await ended(world, worker)
    world.clock.move(2 * DAY)
    new = await ended(world, worker)
    await world.store._sweep_unused()
    assert len(await there(world)) == 2, "without a time all are kept"
    world.store._keep_s = DAY
    await world.store._sweep_unused()
    assert await there(world) == {new}


async def test_one_that_is_written_to_while_it_is_looked_at_stays(world: Any) -> None:
    worker = await world.worker(lease_s=100 * DAY)
    conversation = await ended(world, worker)
    world.clock.move(2 * DAY)
    message = world.store.submit(world.submission(conversation=conversation))
    purged = await world.store.purge(world.clock.now() - DAY)
    await message
    assert purged.conversations == 0
    assert await there(world) == {conversation}


async def test_all_that_is_a_principals_is_forgotten_and_nothing_of_others(world: Any) -> None:
    worker = await world.worker()
    other_tenant = replace(world.fin, tenant="t2")
    keyed = {}
    for who in (world.ann, world.bob):
        for _ in range(3):
            await save(world, who)
        keyed[who.id] = (await world.submit(principal=who, idempotency_key="k", digest="d")).run.id
        await world.store.keep_record(Record(kind="k", key=who.id, group=group_of(who), content="1"))
    lease, call = await world.waiting_run(worker, approver="role:finance")
    await world.store.decide(world.verdict(call, lease, principal=world.fin, reason="fine"))
    bobs = (await world.store.kept_files(world.bob)).items
    assert await world.store.forget_principal(world.ann) == Forgotten(files=3, idempotency_keys=1, records=1)
    assert await world.store.forget_principal(world.ann) == Forgotten()
    assert await world.store.forget_principal(other_tenant) == Forgotten()
    assert (await world.store.kept_files(world.ann)).items == ()
    assert (await world.store.kept_files(world.bob)).items == bobs
    assert [await world.store.read_file(one.file.id, world.bob, 0, 9) for one in bobs] == [b"same"] * 3
    assert await world.store.find_record("k", world.ann.id) is None
    assert await world.store.find_record("k", world.bob.id) is not None
    runs = [
        (await world.submit(principal=who, idempotency_key="k", digest="d")).run.id for who in (world.ann, world.bob)
    ]
    assert [run == known for run, known in zip(runs, keyed.values(), strict=True)] == [False, True]
    (made,) = (await world.store.made_decisions(world.fin)).items
    assert (made.call_id, made.decision, made.reason, made.run_id) == (call.id, "approve", "fine", lease.run_id)
    assert await world.store.forget_principal(world.fin) == Forgotten(decisions=1)
    approval = (await world.store.get_call(call.id, world.ann)).call.approval
    assert (approval.decision, approval.by, approval.reason) == ("approve", None, "fine")
    assert (await world.store.made_decisions(world.fin)).items == ()


async def test_what_is_more_than_a_piece_is_forgotten_in_several(world: Any) -> None:
    group = group_of(world.ann)
    await gather(
        *(world.store.keep_record(Record(kind="k", key=str(n), group=group, content="1")) for n in range(250)),
        *(world.submit(idempotency_key=f"k{n}") for n in range(201)),
    )
    before = world.store._writer.commits
    assert await world.store.forget_principal(world.ann) == Forgotten(idempotency_keys=201, records=250)
    assert world.store._writer.commits - before >= 6, "others write in between"
    assert await world.store.find_records("k", group) == ()


async def test_runs_are_read_in_pages_with_their_rows_those_below_them_too(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker)
    summary = Summary(run_id=lease.run_id, turn=0, text="They asked.")
    await world.write(world.change(lease, summary=summary))
    _, calls = await world.asking_parent(worker, count=2, lease=lease)
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    first = await world.store.kept_runs(conversation, world.ann, limit=2)
    rest = await world.store.kept_runs(conversation, world.ann, limit=2, cursor=first.next_cursor)
    kept = (*first.items, *rest.items)
    assert rest.next_cursor is None
    assert [(one.run.id, one.run.root_id) for one in kept][:1] == [(lease.run_id, None)]
    assert {one.run.root_id for one in kept[1:]} == {lease.run_id}
    assert [one.rows.lease.run_id for one in kept] == [one.run.id for one in kept]
    assert kept[0].rows.messages[1].calls[0].id == calls[0].id
    assert [[one.text for one in of_run.summaries] for of_run in kept] == [["They asked."], [], []]
    for who, conversation_id in ((world.bob, conversation), (world.ann, "conv_none")):
        with pytest.raises(NotFound):
            await world.store.kept_runs(conversation_id, who)


async def test_files_are_read_in_pages(world: Any) -> None:
    saved = [await save(world, world.ann) for _ in range(3)]
    first = await world.store.kept_files(world.ann, limit=2)
    rest = await world.store.kept_files(world.ann, limit=2, cursor=first.next_cursor)
    assert [*first.items, *rest.items] == saved
    assert rest.next_cursor is None


async def test_tenants_are_named_in_which_somebody_of_this_id_has_something(world: Any) -> None:
    for who in (Principal(id="user:1", tenant=tenant) for tenant in (None, "b", "a")):
        await world.submit(principal=who)
    await world.submit(principal=Principal(id="user:10", tenant="c"))
    assert await world.store.tenants_with("user:1") == ("a", "b")
    assert await world.store.tenants_with("user:2") == ()


async def test_what_is_counted_of_a_principal_is_forgotten_too(world_with: Any) -> None:
    world = await world_with(runs_per_day=1)
    for who in (world.ann, world.bob):
        await world.submit(principal=who)
    await world.store.forget_principal(world.ann)
    await world.submit(principal=world.ann)
    with pytest.raises(TooMany):
        await world.submit(principal=world.bob)
