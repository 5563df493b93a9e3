"""What takes the place of old messages when a model is asked, and what else is kept for a model's sake."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from amoxi_py.domain.usage import Usage
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.changes import Summary

pytestmark = pytest.mark.anyio


async def test_history_begins_after_the_newest_summary_of_the_conversation(world: Any) -> None:
    worker = await world.worker()
    leases: list[Any] = []
    conversation = None
    for number in range(4):
        lease = await world.start(worker, text=f"ask {number}", conversation=conversation)
        conversation = (await world.store.get_run(lease.run_id, world.ann)).conversation_id
        leases.append(lease)
        if number == 2:
            before = await world.store.history(lease)
            for of, turn, text in ((0, 1, "old"), (1, 0, "new\x00")):
                summary = Summary(run_id=leases[of].run_id, turn=turn, text=text)
                await world.store.write(world.change(lease, summary=summary))
        call = world.call(lease, 1)
        await world.store.write(world.reply(lease, 1, call))
        await world.store.write(world.result(lease, call))
        await world.store.write(world.finish(lease, 2, text=f"done {number}"))
    assert [one.text for one in before.messages] == ["ask 0", "", "done 0", "ask 1", "", "done 1"]
    assert before.summary is None
    last = await world.start(worker, conversation=conversation)
    history = await world.store.history(last)
    assert [one.text for one in history.messages] == ["", "done 1", "ask 2", "", "done 2", "ask 3", "", "done 3"]
    assert history.messages[0].calls[0].result == '"done"'
    assert history.summary == Summary(run_id=leases[1].run_id, turn=0, text="new\ufffd")
    page = await world.store.read_conversation(conversation, world.ann, limit=100)
    assert len(page.messages.items) == 13, "readers have all of it"
    await world.store.write(world.reply(last, 1, world.call(last, 1)))
    await world.store.write(world.change(last, summary=Summary(run_id=last.run_id, turn=1, text="all")))
    history = await world.store.history(last)
    assert (history.messages, history.summary.text) == ((), "all")


async def test_a_summary_is_of_its_own_conversation_and_goes_with_it(world: Any) -> None:
    worker = await world.worker()
    one, other = await world.start(worker), await world.start(worker)
    await world.store.write(world.change(one, summary=Summary(run_id=other.run_id, turn=0, text="foreign")))
    await world.store.write(world.change(one, summary=Summary(run_id=one.run_id, turn=0, text="mine")))
    assert (await world.store.history(one)).summary.text == "mine"
    assert (await world.store.history(other)).summary is None
    conversation = (await world.store.get_run(one.run_id, world.ann)).conversation_id
    await world.store.erase(conversation, world.ann)
    with pytest.raises(LeaseLost):
        await world.store.write(world.change(one, summary=Summary(run_id=one.run_id, turn=0, text="late")))


async def test_what_a_model_wants_back_and_all_that_a_run_has_used_are_kept(world: Any) -> None:
    worker = await world.worker(lease_s=5)
    lease = await world.start(worker)
    started = world.clock.now()
    used = Usage(requests=2, input_tokens=50, output_tokens=7, cached_tokens=30, written_tokens=9, cost=2**40)
    reply = world.reply(lease, 1, text="hm", usage=used)
    await world.store.write(replace(reply, message=replace(reply.message, kept='[{"signature":"x"}]')))
    assert (await world.store.get_run(lease.run_id, world.ann)).usage == used
    world.clock.move(6)
    (rows,) = await world.store.claim(await world.worker(), 1, 10)
    assert (rows.usage, rows.created_at) == (used, started)
    assert [one.kept for one in rows.messages] == [None, '[{"signature":"x"}]']
    more = replace(used, requests=3)
    conversation = rows.conversation_id
    await world.store.write(world.finish(rows.lease, 2, usage=more))
    assert (await world.store.get_run(lease.run_id, world.ann)).usage == more
    history = await world.store.history(await world.start(await world.worker(), conversation=conversation))
    assert [one.kept for one in history.messages] == [None, '[{"signature":"x"}]', None]
