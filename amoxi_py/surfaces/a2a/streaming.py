"""Following a task: first the task as the log tells it by now, then what comes, until it ends or it asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from a2a.types import a2a_pb2 as wire

from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.engine.streams import EventStream
from amoxi_py.surfaces.a2a.fold import Fold, Told, Update
from amoxi_py.surfaces.a2a.tasks import FINAL, SETTLED, Tasks, state_of, status_of
from amoxi_py.surfaces.closing import end_task

T = TypeVar("T")
LOOKS_AGAIN_S = 2.0


async def task_events(
    engine: Engine,
    tasks: Tasks,
    principal: Principal,
    run_id: str,
    base: str,
    *,
    until: Collection[wire.TaskState] = FINAL,
    history_length: int | None = None,
) -> AsyncGenerator[Update, None]:
    """Give a task as it is, then what happens to it, until it is in a state of `until` or has ended.

    Raises:
        NotFound: no such task of this principal.
    """
    fold, stream = await _begin(engine, tasks, principal, run_id, base, for_snapshot=True)
    await _catch_up(fold, stream)
    yield await fold.snapshot(history_length)
    async with aclosing(_follow(fold, stream, until)) as told:
        async for _, update in told:
            yield update


async def numbered_events(
    engine: Engine, tasks: Tasks, principal: Principal, run_id: str, base: str, after: int | None
) -> AsyncGenerator[Told, None]:
    """Give what happens to a task after a number of its log, until it has ended, each with its own number.

    With None it is first the task as it is. Going on after a number that was given repeats nothing and leaves nothing
    out, but that pieces of a text which is whole by now are given as the whole.

    Raises:
        NotFound: no such task of this principal.
    """
    fold, stream = await _begin(engine, tasks, principal, run_id, base, for_snapshot=after is None)
    if after is None:
        seq = await _catch_up(fold, stream)
        yield seq, await fold.snapshot(None)
    else:
        async with aclosing(stream.past()) as batches:
            async for batch in batches:
                for event in batch:
                    if event.seq <= after:
                        await fold.skip(event)
                        continue
                    for told in await fold.take(event):
                        yield told
                del batch
    async with aclosing(_follow(fold, stream, FINAL)) as rest:
        async for told in rest:
            yield told


async def settled(engine: Engine, tasks: Tasks, principal: Principal, run_id: str) -> None:
    """Return when a task has ended, or goes on no further without somebody outside; raise `NotFound`."""
    fold, stream = await _begin(engine, tasks, principal, run_id, "", for_snapshot=False)
    await _catch_up(fold, stream)
    if fold.state in SETTLED:
        return
    async with aclosing(aiter(stream)) as batches:
        async for batch in batches:
            for event in batch:
                await fold.skip(event)
                if fold.state in SETTLED:
                    return
            del batch


async def held_up(tasks: Tasks, principal: Principal, run_id: str) -> wire.TaskStatusUpdateEvent:
    """Return what the reader of a task is told that cannot begin before an earlier one is answered.

    It is looked at from time to time, and does not return for a task that has begun.
    """
    while True:
        await asyncio.sleep(LOOKS_AGAIN_S)
        run = await tasks.find(run_id, principal)
        if state_of(run) != wire.TASK_STATE_SUBMITTED:
            await asyncio.get_running_loop().create_future()
        note = await tasks.held_up_by(run, principal)
        if note is not None:
            place = await tasks.place_of(run)
            status = status_of(place, run, wire.TASK_STATE_SUBMITTED, note=note, stamped=True)
            return wire.TaskStatusUpdateEvent(task_id=place.task_id, context_id=place.context_id, status=status)


async def until_ended(items: AsyncGenerator[T, None], *ends: Coroutine[Any, Any, T | None]) -> AsyncGenerator[T, None]:
    """Give what an iterator gives until one of the ends returns, and then what that returns, if it is anything.

    The first thing of the iterator, which says what it is about, is given in any case.
    """
    ending = [asyncio.create_task(end) for end in ends]
    try:
        async with aclosing(items):
            async for first in items:
                yield first
                break
            while True:
                item = asyncio.ensure_future(anext(items))
                try:
                    await asyncio.wait({item, *ending}, return_when=asyncio.FIRST_COMPLETED)
                    if item.done():
                        value = item.result()
                    else:
                        last = next(end for end in ending if end.done()).result()
                        if last is not None:
                            yield last
                        return
                except StopAsyncIteration:
                    return
                finally:
                    await end_task(item)
                yield value
    finally:
        for end in ending:
            await end_task(end)


async def _begin(
    engine: Engine, tasks: Tasks, principal: Principal, run_id: str, base: str, *, for_snapshot: bool
) -> tuple[Fold, EventStream]:
    run = await tasks.find(run_id, principal)
    place = await tasks.place_of(run)
    fold = Fold(engine, tasks, run, place, principal, base, for_snapshot=for_snapshot)
    return fold, await engine.follow(principal, run_id=run_id)


async def _catch_up(fold: Fold, stream: EventStream) -> int:
    """Let a fold take what the log holds by now; return the number of the last event."""
    seq = 0
    async with aclosing(stream.past()) as batches:
        async for batch in batches:
            for event in batch:
                await fold.skip(event)
            seq = batch[-1].seq
            del batch
    return seq


async def _follow(fold: Fold, stream: EventStream, until: Collection[wire.TaskState]) -> AsyncGenerator[Told, None]:
    if fold.state in until or fold.state in FINAL:
        return
    async with aclosing(aiter(stream)) as batches:
        async for batch in batches:
            for event in batch:
                for told in await fold.take(event):
                    yield told
                if fold.state in until or fold.state in FINAL:
                    return
            del batch
