"""Whether this process can do its work: the store answers, and the worker, where it has one, is alive."""

from __future__ import annotations

import asyncio

from amoxi_py.engine.worker import Worker
from amoxi_py.errors import NotReady
from amoxi_py.ports.store import Store

_PATIENCE_S = 5.0
"""Probes are asked every few seconds; a store that takes longer than this is of no use to anybody who waits."""


async def check_ready(store: Store, worker: Worker | None, *, executes: bool) -> None:
    """Return when the store answers and the worker has its lease.

    Args:
        store: Open, so its tables are up to date.
        worker: Of this process, or None.
        executes: Whether this process is to have one.

    Raises:
        NotReady: the worker does not execute runs now, or the store takes too long.
        StoreUnavailable: the store cannot be reached.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await store.busy_runs()
    except TimeoutError:
        raise NotReady(f"the store has not answered for {_PATIENCE_S:.0f} s") from None
    problem = "it stops" if worker is None else worker.problem
    if executes and problem is not None:
        raise NotReady(f"the worker of this process executes nothing: {problem}")
