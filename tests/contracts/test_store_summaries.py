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


async def test_what_is_known_of_a_history_is_not_read_again_unless_a_newer_summary_stands_for_it(world: Any) -> None:
    worker = await world.worker()
    first = await world.start(worker, text="ask 0")
    conversation = (await world.store.get_run(first.run_id, world.ann)).conversation_id
    await world.store.write(world.finish(first, 1, text="done 0"))
    second = await world.start(worker, text="ask 1", conversation=conversation)
    whole = await world.store.history(second)
    assert (whole.follows, [one.text for one in whole.messages]) == (False, ["ask 0", "done 0"])
    nothing = await world.store.history(second, whole.mark)
    assert (nothing.follows, nothing.messages, nothing.mark) == (True, (), whole.mark)
    async with world.other_process() as other:
        await other.store.cancel(second.run_id, world.ann)
    await world.store.release(second)
    third = await world.start(worker, text="ask 2", conversation=conversation)
    rest = await world.store.history(third, whole.mark)
    assert (rest.follows, [one.text for one in rest.messages]) == (True, ["ask 1"])
    await world.store.write(world.change(third, summary=Summary(run_id=first.run_id, turn=0, text="sum")))
    again = await world.store.history(third, rest.mark)
    assert (again.follows, [one.text for one in again.messages], again.summary.text) == (
        False,
        ["done 0", "ask 1"],
        "sum",
    )
    assert (await world.store.history(third, again.mark)).follows
    await world.store.write(world.change(third, summary=Summary(run_id=third.run_id, turn=0, text="all")))
    in_it = await world.store.history(third, again.mark)
    await world.store.write(world.finish(third, 1, text="done 2"))
    last = await world.start(worker, conversation=conversation)
    after = await world.store.history(last, in_it.mark)
    assert (after.follows, [one.text for one in after.messages]) == (False, ["done 2"]), "and not what it stands for"
    await world.store.erase(conversation, world.ann)
    with pytest.raises(LeaseLost):
        await world.store.history(last, after.mark)
