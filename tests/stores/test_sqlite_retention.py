"""A worker's sweep deletes what is older than it is kept, once for all processes, and the file gets smaller."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from amoxi_py.domain.principal import Principal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")
DAY = 86_400.0


def pages(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "amoxi.db")) as database:
        count: int = database.execute("PRAGMA page_count").fetchone()[0]
        return count


async def until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(60):
        while not await condition():
            await anyio.sleep(0.005)


async def open_store(folder: Path, clock: Any, **more: Any) -> SqliteStore:
    store = SqliteStore(folder, clock=clock, synchronous="OFF", **more)
    await store.open(lambda events: None)
    return store


async def listed(store: SqliteStore) -> int:
    return len((await store.list_conversations(ANN, limit=200)).items)


async def test_a_worker_deletes_what_is_old_and_gives_the_space_back(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = await open_store(tmp_path, clock)
    for n in range(30):
        run = (await store.submit(submission("x" * 1_000_000, idempotency_key=f"k{n}"))).run
        await store.cancel(run.id, ANN)
        clock.ahead += 2 * DAY / 30
    await store.submit(submission("one that waits for a worker"))
    await store.close()
    assert pages(tmp_path) > 7000
    clock.ahead += 29 * DAY
    sweeping = await open_store(tmp_path, clock, keep_s=30 * DAY)
    await sweeping.enroll("worker_1", 30.0)

    async def half_is_left() -> bool:
        return await listed(sweeping) < 20 and pages(tmp_path) < 5000

    await until(half_is_left)
    assert await listed(sweeping) > 10, "what is younger is there"
    with closing(sqlite3.connect(tmp_path / "amoxi.db")) as database:
        assert database.execute("SELECT count(*) FROM idempotency_key").fetchall() == [(0,)]
    clock.ahead += 40 * DAY
    other = await open_store(tmp_path, clock, keep_s=30 * DAY)
    await other.enroll("worker_2", 30.0)

    async def the_open_one_is_left() -> bool:
        return await listed(other) == 1 and pages(tmp_path) < 1500

    await until(the_open_one_is_left)
    await sweeping.close()
    await other.close()


async def test_a_sweep_ends_though_the_writer_never_rests(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = await open_store(tmp_path, clock, keep_s=10.0)
    await store.cancel((await store.submit(submission("x" * 1_000_000))).run.id, ANN)
    clock.ahead = 20.0
    async with anyio.create_task_group() as busy:

        async def write() -> None:
            while True:
                await store.secret("name", "value")

        for _ in range(3):
            busy.start_soon(write)
        with anyio.fail_after(20):
            await store._sweep_unused()
        busy.cancel_scope.cancel()
    assert await listed(store) == 0
    await store.close()


async def test_without_the_setting_nothing_is_deleted(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = await open_store(tmp_path, clock)
    await store.cancel((await store.submit(submission())).run.id, ANN)
    clock.ahead = 1000 * DAY
    await store._sweep_unused()
    assert await listed(store) == 1
    await store.close()


async def test_of_several_processes_one_does_it_and_the_others_look_again_later(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    first, second = [await open_store(tmp_path, clock, keep_s=10.0) for _ in range(2)]
    await first._sweep_unused()
    await first.cancel((await first.submit(submission())).run.id, ANN)
    clock.ahead = 20.0
    await second._sweep_unused()
    assert await listed(second) == 1
    clock.ahead = 3600.0
    await second._sweep_unused()
    assert await listed(second) == 0
    await first.close()
    await second.close()
