"""One try of a tool's code, kept from the event loop and from us, whatever it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from amoxi_py.engine.context import CallToolContext
from amoxi_py.engine.exits import cancelled_from_outside

_SOON = 1.0


class Returned(Struct, frozen=True):
    """The code gave a value."""

    value: Any


class Raised(Struct, frozen=True):
    """The code ended by an error."""

    error: BaseException


class TimedOut(Struct, frozen=True):
    """The code was told to stop after so many seconds, and may go on in `task`."""

    seconds: float
    context: CallToolContext
    task: asyncio.Task[Any]

    async def ends(self) -> bool:
        """Return whether the code of the try ends soon, now that it was told to stop."""
        try:
            async with asyncio.timeout(_SOON):
                await asyncio.wait((self.task,))
                while self.context.stopped:
                    await asyncio.wait(tuple(self.context.stopped))
        except TimeoutError:
            return False
        return True


Outcome = Returned | Raised | TimedOut


async def guarded(
    context: CallToolContext,
    start: Callable[[], Awaitable[Any]],
    timeout: float | None,
    lingering: set[asyncio.Future[Any]],
) -> Outcome:
    """Run a tool's code; what does not end when it is told to is in `lingering`.

    Only a timeout needs a task of its own: when the run is interrupted, the whole call is left behind.
    """
    if timeout is None:
        outcome = await _outcome_of(start)
        context.closed = True
        return outcome
    task = asyncio.get_running_loop().create_task(_outcome_of(start))
    try:
        done, _ = await asyncio.wait((task,), timeout=timeout)
    except asyncio.CancelledError:
        _abandon(context, task, lingering)
        raise
    if done:
        context.closed = True
        return Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
    _abandon(context, task, lingering)
    return TimedOut(timeout, context, task)


def _abandon(context: CallToolContext, task: asyncio.Task[Outcome], lingering: set[asyncio.Future[Any]]) -> None:
    context.close()
    task.cancel()
    lingering.add(task)
    task.add_done_callback(lingering.discard)


async def _outcome_of(start: Callable[[], Awaitable[Any]]) -> Outcome:
    try:
        return Returned(await start())
    except BaseException as error:
        if cancelled_from_outside(error):
            raise
        return Raised(error)
