"""The bytes beside the database: once for each owner, never half, and nothing left behind by a crash."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease
from amoxi_py.errors import NotFound
from amoxi_py.ports.files import NewFile
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.migrate import LOCK
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

ANN = Principal(id="user:ann")
DYING = """
import asyncio, os, signal, sys
from pathlib import Path
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.files import NewFile
from amoxi_py.stores.sqlite.store import SqliteStore

async def parts():
    yield b"half"
    os._exit(7)

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open(lambda events: None)
    new = NewFile(id="file_dying", principal=Principal(id="user:ann"), name="f", media_type="text/plain")
    await store.save_file(new, parts())

asyncio.run(main())
"""


async def open_store(folder: Path, **more: Any) -> SqliteStore:
    store = SqliteStore(folder, **more)
    await store.open(lambda events: None)
    return store


async def content(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def save(store: SqliteStore, *parts: bytes, lease: Lease | None = None) -> str:
    new = NewFile(id=new_id("file"), principal=ANN, name="f", media_type="text/plain", lease=lease)
    return (await store.save_file(new, content(*parts))).file.id


def kept(folder: Path) -> list[bytes]:
    return sorted(file.read_bytes() for file in (folder / "files").rglob("*") if file.is_file())


def orphan(folder: Path, name: str) -> Path:
    """Bytes that were placed, and whose row never came."""
    (path := folder / "files" / name / (name + "0" * 62)).parent.mkdir(parents=True)
    path.write_bytes(b"orphan")
    return path


def on_their_way(folder: Path) -> list[Path]:
    incoming = folder / "files" / "incoming"
    return [path for path in incoming.rglob("*") if path.is_file() and path.suffix != ".lock"]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.001)


async def test_what_a_dead_process_left_is_swept_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    dead = subprocess.run([sys.executable, "-c", DYING, str(tmp_path)], check=False, timeout=60)
    assert dead.returncode == 7
    assert kept(tmp_path) != []
    living, other = await open_store(tmp_path), await open_store(tmp_path)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"first, "
        begun.set()
        await go_on.wait()
        yield b"then this"

    new = NewFile(id="file_slow", principal=ANN, name="f", media_type="text/plain")
    writing = asyncio.create_task(living.save_file(new, slowly()))
    await begun.wait()
    left = orphan(tmp_path, "ab")
    await other.enroll("worker-1", 30.0)
    await until(lambda: not left.exists())
    assert on_their_way(tmp_path) != []
    go_on.set()
    await writing
    assert await other.read_file("file_slow", ANN, 0, 100) == b"first, then this"
    await living.close()
    await other.close()
    assert kept(tmp_path) == [b"first, then this"], "half of a file, its lock and its folder are gone"


async def test_bytes_that_are_saved_while_they_are_deleted_stay(tmp_path: Path) -> None:
    one, two = await open_store(tmp_path), await open_store(tmp_path)
    old = [await save(one, b"same")]
    for _ in range(20):
        saved, *_ = await asyncio.gather(save(two, b"same"), *(one.delete_file(file, ANN) for file in old))
        assert await one.read_file(saved, ANN, 0, 9) == b"same"
        old = [saved]
    await one.delete_file(old[0], ANN)
    await one.close()
    await two.close()
    assert kept(tmp_path) == []


async def test_a_worker_does_not_wait_for_the_sweep_and_each_hour_has_one(tmp_path: Path) -> None:
    often, seldom = await open_store(tmp_path, sweep_every_s=0.01), await open_store(tmp_path)
    first = orphan(tmp_path, "aa")
    await seldom.enroll("worker-1", 30.0)
    assert first.exists(), "its lease counts already, and there may be many files"
    await until(lambda: not first.exists())
    second = orphan(tmp_path, "bb")
    await seldom.enroll("worker-1", 30.0)
    await seldom.delete_file(await save(seldom, b"x"), ANN)
    assert second.exists(), "one that is enrolled again sweeps no second time"
    await often.enroll("worker-2", 30.0)
    await until(lambda: not second.exists())
    third = orphan(tmp_path, "cc")
    await until(lambda: not third.exists())
    await often.close()
    await seldom.close()


async def test_a_file_that_is_used_nowhere_goes_after_a_day(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = await open_store(tmp_path, clock=clock, sweep_every_s=0.01)
    unused, sent = await save(store, b"unused"), await save(store, b"sent")
    worker = await store.enroll("worker-1", 10**6)
    rows = (await store.submit(submission(files=(sent,), claim_by=worker))).rows
    assert rows is not None
    saved = await save(store, b"saved by a tool", lease=rows.lease)
    clock.ahead = 23 * 3600
    young = await save(store, b"young")
    late = orphan(tmp_path, "aa")
    await until(lambda: not late.exists())
    assert len(await store.find_files([unused, sent, saved, young], ANN)) == 4
    clock.ahead = 25 * 3600
    await until(lambda: b"unused" not in kept(tmp_path))
    assert {file.id for file in await store.find_files([unused, sent, saved, young], ANN)} == {sent, saved, young}
    with pytest.raises(NotFound):
        await store.submit(submission(files=(unused,)))
    await store.close()
    assert kept(tmp_path) == [b"saved by a tool", b"sent", b"young"]


async def test_a_save_that_is_cancelled_at_its_beginning_leaves_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    await save(store, b"kept")
    for _ in range(10):
        saving = asyncio.create_task(save(store, b"cancelled"))
        with anyio.fail_after(60):
            while not on_their_way(tmp_path) and not saving.done():
                await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
        await until(lambda: on_their_way(tmp_path) == [])
    await store.close()
    assert kept(tmp_path) == [b"kept"]


async def test_files_are_read_while_others_wait_for_a_process_that_is_stopped_in_a_commit(tmp_path: Path) -> None:
    one, two = await open_store(tmp_path), await open_store(tmp_path)
    file = await save(one, b"bytes")
    stopped = FileLock(tmp_path / LOCK)
    stopped.acquire()
    saving = [asyncio.create_task(save(two, b"more")) for _ in range(40)]
    with anyio.fail_after(60):
        for _ in range(100):
            assert await two.read_file(file, ANN, 0, 9) == b"bytes"
    assert not any(task.done() for task in saving)
    stopped.close()
    await asyncio.gather(*saving)
    await one.close()
    await two.close()
