"""The embedded store's writer gives up its memory for pages of the file when a load is over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite import writer
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
FORGET, LISTEN = "PRAGMA shrink_memory", "PRAGMA data_version"


async def test_pages_are_forgotten_once_after_many_commits(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_FORGET_AFTER_COMMITS", 5)
    store = SqliteStore(tmp_path, clock=clock, synchronous="OFF")
    await store.open(lambda events: None)
    said: list[str] = []
    store._writer._connection.set_trace_callback(said.append)

    async def rest() -> None:
        """Wait until the writer has been idle for longer than it takes to forget."""
        seen = len(said)
        with anyio.fail_after(60):
            while said[seen:].count(LISTEN) < 40:
                await anyio.sleep(0.005)

    for n in range(3):
        await store.submit(submission(f"question {n}"))
    await rest()
    assert FORGET not in said

    for n in range(3):
        await store.submit(submission(f"question {n}"))
    await rest()
    await rest()
    assert said.count(FORGET) == 1
    run = (await store.submit(submission("what comes after it is stored"))).run
    assert (await store.cancel(run.id, run.principal)).status == "cancelled"
    await store.close()
