"""The bytes beside the database: once for each owner, never half, and nothing left behind by a crash."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.ports.files import NewFile
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


async def open_store(folder: Path) -> SqliteStore:
    store = SqliteStore(folder)
    await store.open(lambda events: None)
    return store


async def content(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def save(store: SqliteStore, *parts: bytes, principal: Principal = ANN) -> str:
    new = NewFile(id=new_id("file"), principal=principal, name="f", media_type="text/plain")
    return (await store.save_file(new, content(*parts))).file.id


def kept(folder: Path) -> list[bytes]:
    return sorted(file.read_bytes() for file in (folder / "files").rglob("*") if file.is_file())


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
    (orphan := tmp_path / "files" / "ab" / ("ab" + "0" * 62)).parent.mkdir()
    orphan.write_bytes(b"placed, but its row never came")
    await other.enroll("worker-1", 30.0)
    assert not orphan.exists()
    assert [path for path in (tmp_path / "files" / "incoming").rglob("*") if path.is_file()] != []
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
