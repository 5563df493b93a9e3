"""Files: whole or not at all, one's own, and gone with the last conversation that they are used in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from amoxi_py.domain.file import File
from amoxi_py.domain.ids import new_id
from amoxi_py.errors import LeaseLost, NotFound
from amoxi_py.ports.files import NewFile, StoredFile

pytestmark = pytest.mark.anyio


async def parts(*content: bytes, then: Exception | None = None) -> AsyncIterator[bytes]:
    for part in content:
        yield part
    if then is not None:
        raise then


def new_file(world: Any, **more: Any) -> NewFile:
    values = {"id": new_id("file"), "principal": world.ann, "name": "a.csv", "media_type": "text/csv"}
    return NewFile(**(values | more))


async def save(world: Any, *content: bytes, **more: Any) -> StoredFile:
    stored: StoredFile = await world.store.save_file(new_file(world, **more), parts(*content or (b"one", b"two")))
    return stored


async def test_a_file_is_read_in_pieces_by_its_owner_alone(world: Any) -> None:
    stored = await save(world)
    file = stored.file
    assert file == File(id=file.id, name="a.csv", media_type="text/csv", size=6)
    assert stored.created_at == world.clock.now()
    assert await world.store.get_file(file.id, world.ann) == stored
    assert await world.store.read_file(file.id, world.ann, 2, 3) == b"etw"
    assert await world.store.read_file(file.id, world.ann, 5, 100) == b"o"
    assert await world.store.read_file(file.id, world.ann, 6, 100) == b""
    assert await world.store.find_files([file.id, "file_none"], world.ann) == (file,)
    assert await world.store.find_files([file.id], world.bob) == ()
    for read in (
        world.store.get_file(file.id, world.bob),
        world.store.read_file(file.id, world.bob, 0, 1),
        world.store.delete_file(file.id, world.bob),
        world.store.get_file("file_none", world.ann),
    ):
        with pytest.raises(NotFound):
            await read


async def test_what_breaks_off_is_not_stored(world: Any) -> None:
    new = new_file(world)
    with pytest.raises(OSError, match="the line broke"):
        await world.store.save_file(new, parts(b"half", then=OSError("the line broke")))
    with pytest.raises(NotFound):
        await world.store.get_file(new.id, world.ann)


async def test_a_file_that_is_sent_again_stays_as_it_is(world: Any) -> None:
    new = new_file(world)
    first = await world.store.save_file(new, parts(b"first"))
    assert await world.store.save_file(new, parts(then=AssertionError("read again"))) == first
    async with world.other_process() as other:
        assert await other.store.save_file(new, parts(b"second")) == first
        assert await other.store.read_file(new.id, world.ann, 0, 10) == b"first"


async def test_a_tools_file_needs_the_lease_and_belongs_to_the_conversation(world: Any) -> None:
    lease = await world.start(await world.worker())
    saved = await save(world, lease=lease)
    again = await save(world, lease=lease)
    assert await world.store.files_of_run(lease) == (saved.file.id, again.file.id)
    run = await world.store.cancel(lease.run_id, world.ann)
    late = new_file(world, lease=lease)
    with pytest.raises(LeaseLost):
        await world.store.save_file(late, parts(b"late"))
    with pytest.raises(NotFound):
        await world.store.get_file(late.id, world.ann)
    await world.store.erase(run.conversation_id, world.ann)
    assert await world.store.find_files([saved.file.id, again.file.id], world.ann) == ()


async def test_a_message_with_a_file_that_is_not_ones_own_is_refused_whole(world: Any) -> None:
    mine, other = await save(world), await save(world, principal=world.bob)
    run = (await world.submit()).run
    for files in ((other.file.id,), (mine.file.id, "file_none")):
        for conversation in (None, run.conversation_id):
            with pytest.raises(NotFound, match="no file"):
                await world.submit("x", conversation=conversation, files=files)
    assert len((await world.store.list_runs(world.ann)).items) == 1
    assert (await world.store.get_run(run.id, world.ann)).status == "queued", "nothing was replaced"


async def test_an_erased_conversation_takes_the_files_with_it_that_are_used_in_no_other(world: Any) -> None:
    both, alone, unused = [await save(world) for _ in range(3)]
    first = (await world.submit(files=(both.file.id, alone.file.id))).run
    second = (await world.submit(files=(both.file.id,), idempotency_key="k")).run
    (message,) = await world.store.run_messages(first.id, world.ann)
    assert message.files == (both.file.id, alone.file.id)

    async def there() -> set[str]:
        found = await world.store.find_files([one.file.id for one in (both, alone, unused)], world.ann)
        for file in found:
            assert await world.store.read_file(file.id, world.ann, 0, 9) == b"onetwo"
        return {file.id for file in found}

    await world.store.erase(first.conversation_id, world.ann)
    assert await there() == {both.file.id, unused.file.id}
    await world.store.erase(second.conversation_id, world.ann)
    assert await there() == {unused.file.id}
    await world.store.delete_file(unused.file.id, world.ann)
    assert await there() == set()


async def test_a_file_that_is_used_nowhere_goes_after_a_day(world: Any) -> None:
    new = new_file(world)
    await world.store.save_file(new, parts(b"bytes"))
    await world.store._sweep_unused()
    assert await world.store.read_file(new.id, new.principal, 0, 9) == b"bytes"
    world.clock.move(25 * 3600)
    await world.store._sweep_unused()
    with pytest.raises(NotFound):
        await world.store.get_file(new.id, new.principal)
