"""Webhooks of runs: kept by the run's owner, held by one process at a time, and never told twice by mistake."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.errors import Conflict, InvalidRequest, NotFound
from amoxi_py.ports.webhooks import HeldWebhook, Webhook

pytestmark = pytest.mark.anyio

SHOP = Principal(id="a2a:shop", name="shop", channel="a2a", tenant="t1", claims={"plan": "gold"})
DAY = 24 * 3600


async def kept(world: Any, id: str = "w1", content: str = "{}", **more: Any) -> Webhook:
    run = more.pop("run_id", None) or (await world.submit(principal=SHOP)).run.id
    webhook: Webhook = await world.store.keep_webhook(run, SHOP, id, content, limit=more.pop("limit", 10))
    return webhook


async def claimed(world: Any, holder: str = "h1", limit: int = 10) -> list[HeldWebhook]:
    return list(await world.store.claim_webhooks(holder, 30.0, limit))


async def held(world: Any, holder: str = "h1") -> HeldWebhook:
    (one,) = await claimed(world, holder)
    return one


async def found(world: Any, webhook: Webhook) -> Webhook:
    one: Webhook = await world.store.find_webhook(webhook.run_id, SHOP, webhook.id)
    return one


async def test_webhooks_of_a_run_are_its_owners_alone(world: Any) -> None:
    first = await kept(world, content='{"url":"https://a.example"}')
    others = [await kept(world, name, run_id=first.run_id) for name in ("w3", "w2")]
    assert first == Webhook(
        id="w1", run_id=first.run_id, content='{"url":"https://a.example"}', created_at=world.clock.now()
    )
    async with world.other_process() as other:
        assert await found(other, first) == first
        page = await other.store.list_webhooks(first.run_id, SHOP, limit=2)
        assert page.items == (first, others[0])
        rest = await other.store.list_webhooks(first.run_id, SHOP, limit=2, cursor=page.next_cursor)
        assert (rest.items, rest.next_cursor) == ((others[1],), None)
    for run_id, who in ((first.run_id, world.ann), ("run_none", SHOP)):
        for verb in (
            world.store.keep_webhook(run_id, who, "w1", "{}", limit=10),
            world.store.find_webhook(run_id, who, "w1"),
            world.store.list_webhooks(run_id, who),
            world.store.drop_webhook(run_id, who, "w1"),
        ):
            with pytest.raises(NotFound) as refused:
                await verb
            assert (refused.value.kind, refused.value.id) == ("run", run_id)
    with pytest.raises(NotFound) as refused:
        await world.store.find_webhook(first.run_id, SHOP, "w9")
    assert refused.value.kind == "webhook"
    with pytest.raises(InvalidRequest, match="not a cursor"):
        await world.store.list_webhooks(first.run_id, SHOP, cursor="bm9uZQ")


async def test_a_run_has_so_many_webhooks_and_no_more(world: Any) -> None:
    first = await kept(world, limit=2)
    await kept(world, "w2", run_id=first.run_id, limit=2)
    with pytest.raises(Conflict, match="2 webhooks") as refused:
        await kept(world, "w3", run_id=first.run_id, limit=2)
    assert refused.value.code == "too_many_webhooks"
    await kept(world, "w2", "[2]", run_id=first.run_id, limit=2)
    await world.store.drop_webhook(first.run_id, SHOP, "w1")
    await world.store.drop_webhook(first.run_id, SHOP, "w1")
    await kept(world, "w3", run_id=first.run_id, limit=2)
    assert [one.id for one in (await world.store.list_webhooks(first.run_id, SHOP)).items] == ["w2", "w3"]


async def test_processes_that_claim_at_once_never_have_the_same(world: Any) -> None:
    webhooks = [await kept(world, f"w{n}") for n in range(12)]
    got: list[HeldWebhook] = []

    async def claim(process: Any, holder: str) -> None:
        got.extend(await claimed(process, holder, limit=3))

    async with world.other_process() as other, anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(claim, world, f"mine-{n}")
            tasks.start_soon(claim, other, f"theirs-{n}")
    got += await claimed(world, "rest", limit=100)
    assert sorted(one.webhook.id for one in got) == sorted(one.id for one in webhooks)
    assert [one.principal for one in got] == [SHOP] * 12


async def test_who_waited_longest_is_claimed_first(world: Any) -> None:
    for n in range(3):
        await kept(world, f"w{n}")
        world.clock.move(1)
    assert [one.webhook.id for one in await claimed(world, limit=2)] == ["w0", "w1"]
    assert [one.webhook.id for one in await claimed(world, limit=2)] == ["w2"]


async def test_a_hold_that_is_renewed_lasts_and_another_ends(world: Any) -> None:
    first, second = await kept(world, "w1"), await kept(world, "w2")
    mine = {one.webhook.id: one for one in await claimed(world)}
    world.clock.move(29)
    assert await claimed(world, "h2") == []
    assert await world.store.renew_webhooks("h1", 30.0, keys=[mine["w1"].key]) == {mine["w1"].key}
    assert await world.store.renew_webhooks("h2", 30.0) == set()
    world.clock.move(1)
    theirs = await held(world, "h2")
    assert (theirs.webhook, theirs.fence) == (second, mine["w2"].fence + 1)
    assert await world.store.renew_webhooks("h1", 30.0) == {mine["w1"].key}
    assert not await world.store.note_delivery(mine["w2"], 7)
    assert not await world.store.put_off_webhook(mine["w2"], world.clock.now())
    assert await world.store.note_delivery(theirs, 3)
    assert (await found(world, second)).cursor == 3
    assert await found(world, first) == first


async def test_a_delivery_is_noted_and_a_failure_put_off(world: Any) -> None:
    webhook = await kept(world)
    one = await held(world)
    assert await world.store.note_delivery(one, 4)
    for failures in (1, 2):
        assert await world.store.put_off_webhook(one, world.clock.now() + 10)
        assert not await world.store.note_delivery(one, 9), "it was let go"
        now = await found(world, webhook)
        assert (now.cursor, now.failures, now.over) == (4, failures, False)
        world.clock.move(9.9)
        assert await claimed(world, "h2") == []
        world.clock.move(0.1)
        one = await held(world, "h2")
        assert one.webhook == now
    assert await world.store.note_delivery(one, 5)
    assert (await found(world, webhook)).failures == 0


@pytest.mark.parametrize("ended_by", ["delivery", "failure"])
async def test_one_that_is_over_is_claimed_no_more_and_swept_after_a_week(world: Any, ended_by: str) -> None:
    webhook, other = await kept(world), await kept(world, "w2")
    one = next(one for one in await claimed(world) if one.webhook == webhook)
    if ended_by == "delivery":
        assert await world.store.note_delivery(one, 8, over=True)
        assert not await world.store.put_off_webhook(one, world.clock.now())
    else:
        assert await world.store.put_off_webhook(one, world.clock.now(), over=True)
        assert not await world.store.note_delivery(one, 8)
    assert await world.store.renew_webhooks("h1", 1.0) != {one.key}
    assert (await found(world, webhook)).over
    world.clock.move(7 * DAY - 1)
    await world.store._sweep_unused()
    assert (await found(world, webhook)).over
    assert [one.webhook.id for one in await claimed(world, "h2")] == ["w2"]
    world.clock.move(1)
    await world.store._sweep_unused()
    with pytest.raises(NotFound):
        await found(world, webhook)
    assert not (await found(world, other)).over


async def test_new_content_begins_anew_and_the_old_hold_is_over(world: Any) -> None:
    webhook = await kept(world)
    one = await held(world)
    await world.store.note_delivery(one, 8, over=True)
    world.clock.move(1)
    again = await kept(world, content="[2]", run_id=webhook.run_id)
    assert again == await found(world, webhook)
    assert (again.content, again.cursor, again.over, again.created_at) == ("[2]", 0, False, world.clock.now())
    assert not await world.store.note_delivery(one, 9, over=True)
    two = await held(world, "h2")
    await kept(world, content="[3]", run_id=webhook.run_id)
    assert not await world.store.note_delivery(two, 9)
    assert not await world.store.put_off_webhook(two, world.clock.now())
    assert await world.store.renew_webhooks("h2", 30.0) == set()
    assert (await held(world, "h2")).webhook.content == "[3]"


async def test_what_a_holder_lets_go_is_anybodys_at_once(world: Any) -> None:
    webhooks = [await kept(world, f"w{n}") for n in range(2)]
    (mine,) = await claimed(world, "h1", limit=1)
    theirs = await held(world, "h2")
    await world.store.release_webhooks("h1")
    assert not await world.store.note_delivery(mine, 5)
    assert not await world.store.put_off_webhook(mine, world.clock.now())
    again = await held(world, "h3")
    assert (again.webhook, again.key) == (webhooks[0], mine.key)
    assert await world.store.note_delivery(theirs, 5)


async def lose_answer(world: Any) -> None:
    """Lose the answer of the next verb, and of no commit by which the writer looks for what others did."""
    await world.until(lambda: not getattr(world.store._writer, "_behind", False))
    world.lose_answer()


async def test_verbs_whose_answers_are_lost_are_done_once(world: Any) -> None:
    webhooks = [await kept(world, f"w{n}") for n in range(2)]
    await lose_answer(world)
    assert len(await claimed(world, limit=1)) == 1
    (one,) = await claimed(world, limit=5)
    assert one.webhook == webhooks[1]
    await lose_answer(world)
    assert await world.store.put_off_webhook(one, world.clock.now())
    assert (await found(world, webhooks[1])).failures == 1
    one = await held(world)
    await lose_answer(world)
    assert await world.store.note_delivery(one, 3, over=True)
    await lose_answer(world)
    await world.store.release_webhooks("h1")
    one = await held(world)
    await lose_answer(world)
    assert await world.store.put_off_webhook(one, world.clock.now(), over=True)
    assert (await found(world, webhooks[0])).failures == 1
    await lose_answer(world)
    await world.store.drop_webhook(webhooks[0].run_id, SHOP, "w0")
    await lose_answer(world)
    assert (await kept(world, "w9", run_id=webhooks[0].run_id)).id == "w9"


async def test_a_calendar_that_is_set_back_keeps_nobody_waiting(world: Any) -> None:
    await kept(world)
    await held(world)
    world.clock.move(-2 * DAY)
    one = await held(world, "h2")
    assert await world.store.put_off_webhook(one, world.clock.now() + 5 * DAY)
    world.clock.move(DAY - 1)
    assert await claimed(world, "h2") == []
    world.clock.move(1)
    await held(world, "h2")


async def test_webhooks_go_with_their_run(world: Any) -> None:
    webhook, other = await kept(world), await kept(world, "w2")
    mine = {one.webhook.id: one for one in await claimed(world)}
    conversation = (await world.store.get_run(webhook.run_id, SHOP)).conversation_id
    await world.store.erase(conversation, SHOP)
    assert not await world.store.note_delivery(mine["w1"], 5)
    assert await world.store.renew_webhooks("h1", 30.0) == {mine["w2"].key}
    assert await found(world, other) == other
    with pytest.raises(NotFound) as refused:
        await found(world, webhook)
    assert refused.value.kind == "run"


async def test_a_webhook_whose_run_an_older_version_erased_is_forgotten(world: Any) -> None:
    lease = await world.start(await world.worker(), principal=SHOP)
    webhook = await kept(world, run_id=lease.run_id)
    await world.change_rows("webhook", "run = -1")
    assert await claimed(world) == []
    await world.change_rows("webhook", f"run = {lease.run}")
    with pytest.raises(NotFound):
        await found(world, webhook)
