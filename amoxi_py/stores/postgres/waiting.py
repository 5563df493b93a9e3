"""Waiting for sockets, however many files are open."""

from __future__ import annotations

import select
from collections.abc import Sequence

if hasattr(select, "poll"):

    def wait_for(readable: Sequence[int], writable: Sequence[int] = (), timeout: float | None = None) -> set[int]:
        """Return which of these can be read or written, none after `timeout` seconds."""
        waiting = select.poll()
        for descriptor in readable:
            waiting.register(descriptor, select.POLLIN | (select.POLLOUT if descriptor in writable else 0))
        found = waiting.poll(None if timeout is None else timeout * 1000)
        return {descriptor for descriptor, _ in found}

else:  # Windows

    def wait_for(readable: Sequence[int], writable: Sequence[int] = (), timeout: float | None = None) -> set[int]:
        """Return which of these can be read or written, none after `timeout` seconds."""
        can_read, can_write, _ = select.select(readable, writable, (), timeout)
        return {*can_read, *can_write}
