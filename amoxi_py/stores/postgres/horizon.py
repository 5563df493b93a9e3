"""Up to which key all events are there: keys are given before commits, so a greater one may be visible first."""

from __future__ import annotations

import time

from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.statements import in_schema

_LONGEST_S = 5.0
_FIRST_PAUSE_S = 0.002


def settled_to(address: Address, line: Line) -> int:
    """Return a key up to which no event is still to be committed; waits a moment for who is committing, and blocks.

    An event's key is given while its transaction holds a lock on the table, which everybody can see. So whatever has a
    key up to the last one given belongs to a transaction that has ended, or to one that holds the lock now.
    """
    tx = address.transaction(line)
    events = in_schema("@event", address.schema)
    ((last,),) = tx.rows("last_event_key")
    committing = {holder for (holder,) in tx.rows("committing_events", events=events)}
    pause, until = _FIRST_PAUSE_S, time.monotonic() + _LONGEST_S
    while committing and time.monotonic() < until:
        time.sleep(pause)
        pause = min(2 * pause, 0.05)
        committing &= {holder for (holder,) in tx.rows("committing_events", events=events)}
    return -1 if committing else int(last)
