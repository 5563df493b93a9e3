"""Several processes on one folder: they start together, queue for the file, hear each other, and see who died."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.migrate import LOCK
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")


async def test_eight_processes_start_on_a_fresh_folder_at_once_twenty_times(tmp_path: Path, program: Any) -> None:
    processes = [program("start_often", tmp_path / "unused", tmp_path) for _ in range(8)]

    async def all_say(word: str) -> None:
        for process in processes:
            line = await asyncio.to_thread(process.stdout.readline)
            assert line.strip() == word, process.communicate(timeout=30)[1]

    await all_say("ready")
    for trial in range(20):
        for process in processes:
            process.stdin.write(f"{trial}\n")
            process.stdin.flush()
        await all_say("done")
        store = SqliteStore(tmp_path / str(trial))
        await store.open(lambda events: None)
        assert len((await store.list_runs(ANN, limit=100)).items) == 8
        await store.close()


async def test_two_processes_that_write_in_one_conversation_both_hear_all_in_order(
    tmp_path: Path, program: Any, submission: Any
) -> None:
    heard: list[Any] = []
    store = SqliteStore(tmp_path / "ai")
    await store.open(heard.extend)
    first = await store.submit(submission("first"))
    conversation = first.run.conversation_id
    other = program("talk", tmp_path / "ai", conversation, 100)
    assert (await asyncio.to_thread(other.stdout.readline)).strip() == "open"
    other.stdin.write("go\n")
    other.stdin.flush()
    for number in range(100):
        await store.submit(
            submission(str(number), conversation_id=conversation, new_conversation=False, on_busy="queue")
        )
    deadline = time.monotonic() + 60
    while len(heard) < 2 * 201 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    out, err = await asyncio.to_thread(other.communicate, "end\n", 30)
    assert other.returncode == 0, err
    mine = [f"{event.seq}:{event.run_id}" for event in heard]
    theirs = out.split()
    assert [int(one.split(":")[0]) for one in mine] == list(range(1, 403))
    assert theirs == mine[-len(theirs) :]
    assert len(theirs) >= 400
    await store.close()


async def test_a_killed_process_is_seen_at_once_however_long_its_lease_is(tmp_path: Path, program: Any) -> None:
    holder = program("hold", tmp_path / "ai")
    run_id = (await asyncio.to_thread(holder.stdout.readline)).strip()
    store = SqliteStore(tmp_path / "ai")
    await store.open(lambda events: None)
    worker = await store.enroll(new_id("worker"), 30.0)
    for number in range(3):
        assert await store.claim(worker, number, 10) == ()
        await asyncio.sleep(0.25)  # looks only a few times a second
    os.kill(holder.pid, signal.SIGKILL)
    await asyncio.to_thread(holder.wait)
    claimed, number, deadline = (), 3, time.monotonic() + 60
    while not claimed and time.monotonic() < deadline:
        claimed = await store.claim(worker, number, 10)
        number += 1
        await asyncio.sleep(0.02)
    assert [(rows.lease.run_id, rows.attempt, rows.crashes) for rows in claimed] == [(run_id, 2, 1)]
    assert len(list((tmp_path / "ai" / "workers").iterdir())) == 1
    await store.close()


async def freeze_between_commits(process: int, path: Path) -> None:
    """Stop a process while it does not write: in a transaction it would keep everybody from writing."""
    lock = FileLock(path)
    while True:
        os.kill(process, signal.SIGSTOP)
        os.waitid(os.P_PID, process, os.WSTOPPED)
        if lock.try_acquire():
            break
        os.kill(process, signal.SIGCONT)
        await asyncio.sleep(0.001)
    lock.release()
    lock.close()


async def test_a_frozen_process_keeps_its_runs_until_its_lease_expires(tmp_path: Path, program: Any) -> None:
    class Later:
        ahead = 0.0

        def now(self) -> float:
            return time.time() + self.ahead

        def running(self) -> float:
            return time.clock_gettime(time.CLOCK_BOOTTIME) + self.ahead

    holder = program("hold", tmp_path / "ai")
    run_id = (await asyncio.to_thread(holder.stdout.readline)).strip()
    await freeze_between_commits(holder.pid, tmp_path / "ai" / LOCK)
    store = SqliteStore(tmp_path / "ai", clock=Later())
    await store.open(lambda events: None)
    worker = await store.enroll(new_id("worker"), 10_000.0)
    assert await store.claim(worker, 1, 10) == ()
    Later.ahead = 3601.0
    assert [rows.lease.run_id for rows in await store.claim(worker, 2, 10)] == [run_id]
    await store.close()


async def test_a_long_reader_blocks_no_writer(tmp_path: Path, submission: Any) -> None:
    store = SqliteStore(tmp_path / "ai", synchronous="OFF")
    await store.open(lambda events: None)
    await store.submit(submission("first"))
    reader = sqlite3.connect(tmp_path / "ai" / "amoxi.db", isolation_level=None)
    reader.execute("BEGIN")
    before = reader.execute("SELECT count(*) FROM run").fetchone()
    for _ in range(60):
        await asyncio.gather(*(store.submit(submission("x" * 4000)) for _ in range(64)))
    assert (tmp_path / "ai" / "amoxi.db-wal").stat().st_size > 8 * 1024 * 1024
    assert reader.execute("SELECT count(*) FROM run").fetchone() == before == (1,)
    reader.execute("COMMIT")
    reader.close()
    for _ in range(40):
        await asyncio.gather(*(store.submit(submission("x" * 4000)) for _ in range(64)))
    assert (tmp_path / "ai" / "amoxi.db-wal").stat().st_size < 24 * 1024 * 1024
    assert await store.busy_runs() == 1 + 100 * 64
    await store.close()


async def test_a_store_that_was_closed_has_finished_what_it_accepted(tmp_path: Path, submission: Any) -> None:
    store = SqliteStore(tmp_path / "ai")
    await store.open(lambda events: None)
    accepted = [asyncio.ensure_future(store.submit(submission(str(n)))) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    assert len({submitted.run.id for submitted in await asyncio.gather(*accepted)}) == 50
    assert not (tmp_path / "ai" / "amoxi.db-wal").exists()
