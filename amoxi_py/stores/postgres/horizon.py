"""Up to which key all events are there: keys are given before commits, so a greater one may be visible first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.statements import in_schema

_LONGEST_S = 5.0
_FIRST_PAUSE_S = 0.002
_LONGEST_PAUSE_S = 0.05

Do = Callable[[Callable[[Line], Any]], Awaitable[Any]]
"""Does something with a line, in a thread."""


async def settled_to(address: Address, do: Do) -> int:
    """Return a key up to which no event is still to be committed; waits a moment for who is committing.

    An event's key is given while its transaction holds a lock on the table, which everybody can see. So whatever has a
    key up to the last one given belongs to a transaction that has ended, or to one that holds the lock now. While one
    of these does not end, it is -1.
    """
    last, committing = await do(partial(_last_and_committing, address))
    pause, until = _FIRST_PAUSE_S, time.monotonic() + _LONGEST_S
    while committing and time.monotonic() < until:
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
        committing &= await do(partial(_committing, address))
    return -1 if committing else last


def _last_and_committing(address: Address, line: Line) -> tuple[int, set[str]]:
    ((last,),) = address.transaction(line).rows("last_event_key")
    return last, _committing(address, line)


def _committing(address: Address, line: Line) -> set[str]:
    events = in_schema("@event", address.schema)
    return {holder for (holder,) in address.transaction(line).rows("committing_events", events=events)}
