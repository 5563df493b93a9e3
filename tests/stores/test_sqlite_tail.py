"""What other processes commit is told in order; of too much of it only that it is there."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")
GAP = "gap"


async def progress(folder: Path, store: SqliteStore, run_id: str, count: int) -> None:
    """Let another process commit so many events of a run at once."""
    position = await store.find_log(ANN, run_id=run_id)
    first = position.last_seq + 1
    other = sqlite3.connect(folder / "amoxi.db")
    other.executemany(
        "INSERT INTO event (conversation, seq, run, type, data) VALUES (?, ?, ?, 8, ?)",
        ((position.conversation, first + n, position.run, '{"text":"x"}') for n in range(count)),
    )
    other.execute("UPDATE conversation SET last_seq = ?", (first + count - 1,))
    other.commit()
    other.close()


@pytest.mark.parametrize(("count", "passed_over"), [(1, False), (500, False), (4900, False), (6000, True)])
async def test_a_tail_is_told_whole_and_in_order_unless_it_is_too_long(
    tmp_path: Path, submission: Callable[..., Submission], count: int, passed_over: bool
) -> None:
    heard: list[Any] = []
    store = SqliteStore(tmp_path, synchronous="OFF")
    await store.open(lambda events: heard.extend(event.seq for event in events), lambda: heard.append(GAP))
    run = (await store.submit(submission())).run
    await progress(tmp_path, store, run.id, count)
    deadline = time.monotonic() + 60
    while heard[-1] != (GAP if passed_over else count + 2) and time.monotonic() < deadline:
        await asyncio.sleep(0.005)
    await store.cancel(run.id, ANN)
    told = [] if passed_over else list(range(3, count + 3))
    gap = [GAP] if passed_over else []
    assert heard == [1, 2, *told, *gap, count + 3]
    await store.close()


@pytest.mark.parametrize(("count", "passed_over"), [(1500, False), (20_000, True)])
async def test_what_a_verb_does_is_told_after_the_tail_or_the_gap_that_it_meets(
    tmp_path: Path, submission: Callable[..., Submission], count: int, passed_over: bool
) -> None:
    heard: list[Any] = []
    store = SqliteStore(tmp_path, synchronous="OFF")
    await store.open(lambda events: heard.extend(event.seq for event in events), lambda: heard.append(GAP))
    run = (await store.submit(submission())).run
    await progress(tmp_path, store, run.id, count)
    again = (await store.submit(submission("next", conversation_id=run.conversation_id, new_conversation=False))).run
    position = await store.find_log(ANN, run_id=again.id)
    own = list(range(position.last_seq - 2, position.last_seq + 1))
    assert heard == [1, 2, *([GAP] if passed_over else range(3, count + 3)), *own]
    await store.close()


async def test_without_a_listener_for_gaps_a_long_tail_does_no_harm(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = SqliteStore(tmp_path, synchronous="OFF")
    await store.open(lambda events: None)
    run = (await store.submit(submission())).run
    await progress(tmp_path, store, run.id, 6000)
    await store.cancel(run.id, ANN)
    position = await store.find_log(ANN, run_id=run.id)
    assert len((await store.read_log(position, 0, 10_000, 10**9)).events) == 6003
    await store.close()
