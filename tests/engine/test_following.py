"""What a reader follows comes in batches: of the log as few as can be, and none larger than a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import Event, EventType, NewEvent
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.hub import Hub
from amoxi_py.engine.streams import EventStream
from amoxi_py.ports.changes import Change
from amoxi_py.ports.store import Store, Submission
from amoxi_py.ports.views import LogPage, LogPosition, event_size
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
PAGE_SIZE = 256 * 1024
LINE = 60_000
T = TypeVar("T")


class CountedReads:
    """A store that counts how often its log is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read_log(self, position: LogPosition, after: int, limit: int, limit_size: int) -> LogPage:
        self.reads += 1
        return await self._store.read_log(position, after, limit, limit_size)


def bounded(story: Coroutine[Any, Any, T]) -> T:
    async def in_time() -> T:
        async with asyncio.timeout(20):
            return await story

    return asyncio.run(in_time())


async def a_run(store: Store, *lines: str) -> str:
    """A run that is executed, and the lines of progress that it told, each in a reply of its own."""
    worker = await store.enroll(new_id("worker"), 60)
    submission = Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=new_id("conv"),
        new_conversation=True,
        agent="talker",
        principal=ANN,
        text="hello",
        claim_by=worker,
    )
    rows = (await store.submit(submission)).rows
    assert rows is not None
    for number, line in enumerate(lines, 1):
        event = NewEvent(type=EventType.TOOL_PROGRESS, turn=number, n=0, data=encode_json({"text": line}))
        await store.write(Change(lease=rows.lease, number=number, events=(event,)))
    return submission.run_id


def test_a_small_log_is_read_once_before_its_tail_is_followed(tmp_path: Path) -> None:
    async def story() -> tuple[list[str], int]:
        hub = Hub()
        store = SqliteStore(tmp_path, synchronous="OFF")
        await store.open(hub.publish)
        run = await a_run(store, *["a line"] * 20)
        counted = CountedReads(store)
        told: list[str] = []
        stream = EventStream(counted, hub, await store.find_log(ANN, run_id=run), None)
        async with aclosing(aiter(stream)) as batches:
            async for batch in batches:
                told += [event.type.label for event in batch]
                if len(told) == 23:
                    asyncio.get_running_loop().create_task(store.cancel(run, ANN))
        await store.close()
        return told, counted.reads

    told, reads = bounded(story())
    assert told[:4] == ["run.queued", "message.completed", "run.started", "tool.progress"]
    assert (len(told), told[-1]) == (24, "run.cancelled")
    assert reads == 1


def test_a_large_log_comes_in_batches_of_bounded_size(tmp_path: Path) -> None:
    async def story() -> list[tuple[Event, ...]]:
        hub = Hub()
        store = SqliteStore(tmp_path, synchronous="OFF")
        await store.open(hub.publish)
        run = await a_run(store, *["x" * LINE] * 200)
        await store.cancel(run, ANN)
        told = [batch async for batch in EventStream(store, hub, await store.find_log(ANN, run_id=run), None)]
        await store.close()
        return told

    told = bounded(story())
    assert [event.seq for batch in told for event in batch] == list(range(1, 205))
    assert len(told) > 1
    assert max(sum(map(event_size, batch)) for batch in told) <= PAGE_SIZE
