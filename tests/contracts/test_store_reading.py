"""Reads for the outside: only one's own, in pages, and joined to the stream without gap or double."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from amoxi_py.domain.event import EventType
from amoxi_py.errors import InvalidRequest, NotFound

pytestmark = pytest.mark.anyio


async def test_every_read_finds_only_the_principals_own(world: Any) -> None:
    lease, call = await world.waiting_run(await world.worker())
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    reads = [
        lambda who, agent: world.store.get_run(lease.run_id, who, agent),
        lambda who, agent: world.store.read_conversation(conversation, who, agent),
        lambda who, agent: world.store.find_log(who, run_id=lease.run_id, agent=agent),
        lambda who, agent: world.store.find_log(who, conversation_id=conversation, agent=agent),
    ]
    for read in reads:
        await read(world.ann, None)
        await read(world.ann, world.agent)
        for who, agent in ((world.bob, None), (world.fin, None), (world.ann, "other")):
            with pytest.raises(NotFound):
                await read(who, agent)
    with pytest.raises(NotFound):
        await world.store.get_call(call.id, world.bob)
    assert (await world.store.list_runs(world.bob)).items == ()
    assert (await world.store.list_conversations(world.bob)).items == ()
    assert (await world.store.list_runs(world.ann, "other")).items == ()
    assert (await world.store.list_conversations(world.ann, "other")).items == ()


async def test_lists_are_newest_first_in_pages_and_whole(world: Any) -> None:
    runs = [(await world.submit(str(n), agent="ab"[n % 2])).run for n in range(7)]
    for agent, expected in ((None, runs), ("a", runs[::2])):
        found, cursor, pages = [], None, 0
        while True:
            page = await world.store.list_runs(world.ann, agent, limit=2, cursor=cursor)
            found += page.items
            pages += 1
            if (cursor := page.next_cursor) is None:
                break
        assert found == expected[::-1]
        assert pages == (len(expected) + 1) // 2
    conversations, cursor = [], None
    while True:
        page = await world.store.list_conversations(world.ann, limit=3, cursor=cursor)
        conversations += [one.id for one in page.items]
        if (cursor := page.next_cursor) is None:
            break
    assert conversations == [run.conversation_id for run in runs[::-1]]


@pytest.mark.parametrize("cursor", ["", "x", "é", "AAAA", "cnVuczoxOjI", "cnVuczotMQ", "bWVzc2FnZXM6MQ", "1\x00"])
async def test_a_cursor_that_is_none_is_refused(world: Any, cursor: str) -> None:
    conversation = (await world.submit()).run.conversation_id
    for read in (
        world.store.list_runs(world.ann, cursor=cursor),
        world.store.list_conversations(world.ann, cursor=cursor),
        world.store.read_conversation(conversation, world.ann, cursor=cursor),
    ):
        with pytest.raises(InvalidRequest):
            await read


async def test_messages_come_newest_page_first_and_oldest_first_in_a_page(world: Any) -> None:
    worker = await world.worker()
    lease = await world.start(worker, text="0")
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    await world.store.write(world.finish(lease, 1, text="1"))
    for n in range(2, 8, 2):
        lease = await world.start(worker, text=str(n), conversation=conversation)
        await world.store.write(world.finish(lease, 1, text=str(n + 1)))
    pages, cursor = [], None
    while True:
        page = await world.store.read_conversation(conversation, world.ann, limit=3, cursor=cursor)
        pages.append([message.text for message in page.messages.items])
        if (cursor := page.messages.next_cursor) is None:
            break
    assert pages == [["5", "6", "7"], ["2", "3", "4"], ["0", "1"]]
    assert page.last_event_id == len(await world.log(lease))


async def test_a_page_and_the_stream_after_it_give_each_message_once_at_any_moment(world: Any) -> None:
    """Joining in the middle of a turn shows no answer twice and misses none."""
    chance = random.Random(5)
    worker = await world.worker()
    lease = await world.start(worker, text="u0")
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    joins: list[tuple[int, list[str]]] = []

    async def join() -> None:
        page = await world.store.read_conversation(conversation, world.ann, limit=100)
        joins.append((page.last_event_id, [message.id for message in page.messages.items]))
        position = await world.store.find_log(world.ann, conversation_id=conversation)
        following = (await world.store.read_log(position, page.last_event_id, 100, 10**6)).events
        offsets = [event.data["offset"] for event in following if event.type is EventType.MESSAGE_DELTA]
        assert offsets == list(range(len(offsets)))
        stored = [event for event in await world.log(lease) if event.type is EventType.MESSAGE_DELTA]
        assert len(offsets) == len(stored)

    for turn in range(4):
        await join()
        for piece in range(chance.randint(0, 3)):
            await world.store.write(world.delta(lease, f"partial{turn}", piece, "x"))
            await join()
            if piece == 1:
                await world.submit(f"queued{turn}", conversation=conversation, on_busy="queue")
                await join()
        call = world.call(lease, 1)
        await world.store.write(world.reply(lease, 1, call))
        await join()
        await world.store.write(world.result(lease, call))
        await world.store.write(world.delta(lease, f"last{turn}", 0, "y"))
        await join()
        await world.store.write(world.finish(lease, 2, text=f"a{turn}"))
        await join()
        claimed = await world.claim(worker, limit=1)
        lease = claimed[0] if claimed else await world.start(worker, text=f"u{turn + 1}", conversation=conversation)
        await join()
    messages = [
        (event.seq, event.data["message"]["id"])
        for event in await world.log(lease)
        if event.type is EventType.MESSAGE_COMPLETED
    ]
    assert len(joins) > 20
    for last_event_id, shown in joins:
        streamed = [message_id for seq, message_id in messages if seq > last_event_id]
        assert sorted(shown + streamed) == sorted(message_id for _, message_id in messages)


async def test_a_secret_is_the_first_one_proposed(world: Any) -> None:
    async with world.other_process() as other:
        assert await world.store.secret("server", "one") == "one"
        assert await other.store.secret("server", "two") == "one"
        assert await world.store.secret("else", "three") == "three"


async def test_open_runs_are_counted(world: Any) -> None:
    worker = await world.worker()
    await world.submit()
    await world.waiting_run(worker)
    lease = await world.start(worker)
    assert await world.store.busy_runs() == 3
    await world.store.write(world.finish(lease, 1))
    assert await world.store.busy_runs() == 2


async def test_readers_read_by_id_what_their_tenant_owns_of_the_agents_named_and_nothing_else(world: Any) -> None:
    lease, _ = await world.waiting_run(await world.worker())
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    reads = [
        lambda who, **more: world.store.get_run(lease.run_id, who, **more),
        lambda who, **more: world.store.read_conversation(conversation, who, **more),
        lambda who, **more: world.store.find_log(who, run_id=lease.run_id, **more),
        lambda who, **more: world.store.find_log(who, conversation_id=conversation, **more),
    ]
    elsewhere = [dataclasses.replace(world.fin, tenant=tenant) for tenant in ("t2", None, "", "1", "t")]
    for read in reads:
        assert await read(world.fin, readable=("x", world.agent)) == await read(world.ann)
        for who, readable in (*((who, (world.agent,)) for who in elsewhere), (world.fin, ("other",)), (world.fin, ())):
            with pytest.raises(NotFound):
                await read(who, readable=readable)
    assert (await world.store.list_runs(world.fin)).items == ()


async def test_one_id_in_two_tenants_is_two_principals(world: Any) -> None:
    elsewhere = [dataclasses.replace(world.ann, tenant=tenant) for tenant in ("t2", None, "")]
    lease, call = await world.waiting_run(await world.worker(), idempotency_key="k")
    conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
    for who in elsewhere:
        for attempt in (
            lambda who=who: world.store.get_run(lease.run_id, who),
            lambda who=who: world.store.read_conversation(conversation, who),
            lambda who=who: world.store.find_log(who, run_id=lease.run_id),
            lambda who=who: world.store.get_call(call.id, who),
            lambda who=who: world.store.decide(world.verdict(call, lease, principal=who)),
            lambda who=who: world.store.cancel(lease.run_id, who),
            lambda who=who: world.store.erase(conversation, who),
            lambda who=who: world.submit(principal=who, conversation_id=conversation, new_conversation=False),
        ):
            with pytest.raises(NotFound):
                await attempt()
        assert (await world.store.list_runs(who)).items == ()
        assert (await world.store.list_conversations(who)).items == ()
        mine = await world.submit(principal=who, idempotency_key="k")
        assert (mine.created, mine.run.principal) == (True, who)
        await world.store.erase(mine.run.conversation_id, who)
    assert (await world.store.list_runs(world.ann)).items[0].principal == world.ann
