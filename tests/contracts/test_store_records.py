"""Small records of surfaces: found until they expire, taken by one, forgotten by the group."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from amoxi_py.ports.records import Record

pytestmark = pytest.mark.anyio


def record(world: Any, key: str = "k", **more: Any) -> Record:
    values: dict[str, Any] = {"kind": "code", "key": key, "content": '{"n":1}', "expires_at": world.clock.now() + 60}
    return Record(**(values | more))


async def test_what_one_process_keeps_is_found_by_all_until_it_expires(world: Any) -> None:
    kept = record(world, group="g")
    forever = record(world, "always", expires_at=None)
    await world.store.keep_record(kept)
    await world.store.keep_record(forever)
    async with world.other_process() as other:
        assert await other.store.find_record("code", "k") == kept
        assert await other.store.find_record("token", "k") is None
        assert await other.store.find_record("code", "K") is None
        world.clock.move(60)
        assert await other.store.find_record("code", "k") is None
        assert await other.store.take_record("code", "k") is None
        assert await other.store.find_records("code", "g") == ()
        assert await other.store.find_record("code", "always") == forever


async def test_a_record_takes_the_place_of_the_one_before_it(world: Any) -> None:
    await world.store.keep_record(record(world, group="g"))
    await world.store.take_record("code", "k")
    later = record(world, content="[2]", expires_at=None)
    await world.store.keep_record(later)
    assert await world.store.find_record("code", "k") == later
    assert await world.store.find_records("code", "g") == ()


async def test_of_all_who_take_a_record_one_gets_it(world: Any) -> None:
    kept = record(world)
    await world.store.keep_record(kept)
    got: list[Record | None] = []

    async def take(store: Any) -> None:
        got.append(await store.take_record("code", "k"))

    async with world.other_process() as other, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(take, world.store)
            tasks.start_soon(take, other.store)
    assert [one for one in got if one is not None] == [kept]
    assert await world.store.find_record("code", "k") is None
    assert await world.store.take_record("code", "k") is None


async def test_a_take_whose_answer_is_lost_has_the_record(world: Any) -> None:
    for expires_at in (None, world.clock.now() + 5):
        kept = record(world, expires_at=expires_at, group="g")
        await world.store.keep_record(kept)
        world.lose_answer()
        assert await world.store.take_record("code", "k") == kept
        assert await world.store.take_record("code", "k") is None
    world.lose_answer()
    await world.store.keep_record(kept)
    world.lose_answer()
    assert await world.store.forget_records("code", "g") == 1


async def test_a_group_is_listed_in_order_and_forgotten_alone(world: Any) -> None:
    mine = [record(world, key, group="mine") for key in ("a", "b", "c")]
    for one in reversed(mine):
        await world.store.keep_record(one)
    for other in (
        record(world, "d", group="other"),
        record(world, "e"),
        record(world, "a", kind="token", group="mine"),
    ):
        await world.store.keep_record(other)
    assert list(await world.store.find_records("code", "mine")) == mine
    assert list(await world.store.find_records("code", "mine", limit=2)) == mine[:2]
    await world.store.take_record("code", "a")
    assert await world.store.forget_records("code", "mine") == 2
    assert await world.store.forget_records("code", "mine") == 0
    assert await world.store.find_record("code", "b") is None
    for kind, key in (("code", "d"), ("code", "e"), ("token", "a")):
        assert await world.store.find_record(kind, key) is not None


async def test_what_has_expired_is_removed(world: Any) -> None:
    async with anyio.create_task_group() as tasks:
        for n in range(501):
            tasks.start_soon(world.store.keep_record, record(world, f"old-{n}", group="old"))
    await world.store.keep_record(record(world, "taken", expires_at=None, group="old"))
    await world.store.take_record("code", "taken")
    await world.store.keep_record(record(world, "new", expires_at=world.clock.now() + 10_000, group="new"))
    world.clock.move(3601)
    await world.store._sweep_unused()
    for key in ("old-0", "old-500", "taken"):  # a clock that is set back finds nothing of them
        world.clock.move(-3601)
        assert await world.store.find_record("code", key) is None
        world.clock.move(3601)
    assert await world.store.find_record("code", "new") is not None


async def test_a_record_that_was_taken_is_gone_after_an_hour_however_long_it_would_have_held(world: Any) -> None:
    long = record(world, "long", expires_at=world.clock.now() + 1_000_000, group="g")
    short = record(world, "short", expires_at=world.clock.now() + 60)
    for one in (long, short):
        await world.store.keep_record(one)
        assert await world.store.take_record("code", one.key) == one
    world.clock.move(3601)
    await world.store._sweep_unused()
    await world.change_rows("record", "taken_by = NULL, expires_at = NULL")
    for key in ("long", "short"):
        assert await world.store.find_record("code", key) is None


async def test_what_belongs_to_a_conversation_or_a_run_is_erased_with_it(world: Any) -> None:
    run = (await world.submit()).run
    other = (await world.submit()).run
    for key, group in (("of run", run.id), ("of conversation", run.conversation_id), ("of another", other.id)):
        await world.store.keep_record(record(world, key, group=group, expires_at=None))
    await world.store.erase(run.conversation_id, world.ann)
    assert await world.store.find_record("code", "of run") is None
    assert await world.store.find_record("code", "of conversation") is None
    assert await world.store.find_record("code", "of another") is not None
