"""A cut log loses the last commits at the most and never stops the start; a damaged file stops it and says so."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import StoreDamaged, StoreUnavailable
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite import connection
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")
TURNS = 10


def message(conversation: str, number: int) -> Submission:
    return Submission(
        run_id=new_id("run"),
        message_id=new_id("msg"),
        conversation_id=conversation,
        new_conversation=number == 0,
        agent="a",
        principal=ANN,
        text=f"{number} of {conversation} " + "x" * 300,
        on_busy="queue",
    )


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a killed process leaves it: five conversations of ten messages, all in the log."""
    folder, left = tmp_path_factory.mktemp("live") / "ai", tmp_path_factory.mktemp("killed") / "ai"

    async def build() -> None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        for number in range(TURNS):
            for conversation in range(5):
                await store.submit(message(f"conv_{conversation}", number))
        shutil.copytree(folder, left)
        await store.close()

    asyncio.run(build())
    assert (left / "amoxi.db-wal").stat().st_size > 200_000
    return left


async def whole_messages(store: SqliteStore) -> int:
    """Count messages, and see that each conversation has all its first ones and nothing half."""
    count = 0
    for one in (await store.list_conversations(ANN)).items:
        page = await store.read_conversation(one.id, ANN, limit=100)
        texts = [message.text.split(" x")[0] for message in page.messages.items]
        assert texts == [f"{number} of {one.id}" for number in range(len(texts))]
        position = await store.find_log(ANN, conversation_id=one.id)
        assert len((await store.read_log(position, 0, 1000, 10**9)).events) == 2 * len(texts) == page.last_event_id
        count += len(texts)
    assert len((await store.list_runs(ANN, limit=100)).items) == count
    return count


def test_a_log_cut_or_emptied_anywhere_only_loses_the_last_commits(killed: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    size = (killed / "amoxi.db-wal").stat().st_size
    cuts = sorted([0, 1, 31, 32, size - 1, size, *(chance.randrange(size) for _ in range(194))])

    async def trial(place: int, cut: int) -> int:
        folder = tmp_path / str(place)
        shutil.copytree(killed, folder)
        if place % 2:
            (folder / "amoxi.db-shm").unlink(missing_ok=True)
        with (folder / "amoxi.db-wal").open("r+b") as log:
            log.truncate(cut)
        store = SqliteStore(folder, synchronous="OFF")
        await store.open(lambda events: None)
        count = await whole_messages(store)
        await store.submit(message("conv_new", 0))
        await store.close()
        if place % 5 == 0:
            again = SqliteStore(folder, synchronous="OFF")
            await again.open(lambda events: None)
            assert await whole_messages(again) == count + 1
            await again.close()
        shutil.rmtree(folder)
        return count

    async def all_trials() -> list[int]:
        return [await trial(place, cut) for place, cut in enumerate(cuts)]

    counts = asyncio.run(all_trials())
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 5 * TURNS)


def test_a_log_with_garbage_at_its_end_starts_too(killed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ai"
    shutil.copytree(killed, folder)
    log = folder / "amoxi.db-wal"
    log.write_bytes(log.read_bytes()[:-700] + random.Random(3).randbytes(2000))

    async def trial() -> int:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        try:
            return await whole_messages(store)
        finally:
            await store.close()

    assert asyncio.run(trial()) >= 5 * TURNS - 1


@pytest.mark.parametrize("how", ["header", "middle", "cut", "emptied", "text", "emptied with log", "missing with log"])
def test_a_damaged_file_stops_the_start_and_names_the_way_out(killed: Path, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "ai"
    shutil.copytree(killed, folder)
    if not how.endswith("log"):
        close_cleanly(folder)
    file = folder / "amoxi.db"
    content = file.read_bytes()
    if how == "missing with log":
        file.unlink()
    else:
        file.write_bytes(
            {
                "header": b"\0" * 100 + content[100:],
                "middle": content[:8192] + b"\xff" * 12288 + content[20480:],
                "cut": content[: len(content) // 2],
                "text": b"this is no database\n" * 1000,
            }.get(how, b"")
        )
    with pytest.raises(StoreDamaged) as stopped:
        asyncio.run(open_and_close(folder))
    assert str(file) in str(stopped.value)
    assert "move" in str(stopped.value)
    for end in ("", "-wal", "-shm"):
        (folder / f"amoxi.db{end}").unlink(missing_ok=True)
    asyncio.run(open_and_close(folder))


async def open_and_close(folder: Path) -> None:
    store = SqliteStore(folder)
    try:
        await store.open(lambda events: None)
    finally:
        await store.close()


def close_cleanly(folder: Path) -> None:
    asyncio.run(open_and_close(folder))


def test_a_folder_that_is_a_file_or_cannot_be_made_is_told_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "ai"):
        with pytest.raises(StoreUnavailable) as stopped:
            asyncio.run(open_and_close(folder))
        assert str(tmp_path / "file") in str(stopped.value)
        assert "readable and writable" in str(stopped.value)


def test_a_database_that_a_newer_version_has_added_to_is_used_and_the_log_says_so(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "ai"
    shutil.copytree(killed, folder)
    writer = connection.connect_to_write(folder / "amoxi.db", "FULL")
    writer.execute("INSERT INTO migration VALUES (9999, 'later', 0)")
    writer.execute("ALTER TABLE run ADD COLUMN later TEXT NOT NULL DEFAULT 'x'")
    writer.execute("CREATE TABLE later (key INTEGER PRIMARY KEY)")
    writer.close()

    async def use() -> None:
        store = SqliteStore(folder)
        await store.open(lambda events: None)
        count = await whole_messages(store)
        await store.submit(message("conv_new", 0))
        assert await whole_messages(store) == count + 1
        await store.close()

    asyncio.run(use())
    assert "newer version (migration 9999)" in caplog.text


def test_a_full_disk_is_told_loses_nothing_and_is_survived(
    tmp_path: Path, program: Any, outcome: Callable[[subprocess.Popen[str]], str]
) -> None:
    said, stored = outcome(program("fill", tmp_path / "ai", 4_000_000)).splitlines()
    assert "cannot be used now" in said
    assert str(tmp_path / "ai" / "amoxi.db") in said
    ids = stored.split()
    assert len(ids) > 10

    async def read() -> None:
        store = SqliteStore(tmp_path / "ai")
        await store.open(lambda events: None)
        for run_id in ids:
            await store.get_run(run_id, ANN)
        assert len((await store.list_runs(ANN, limit=5000)).items) == len(ids)
        await store.close()

    asyncio.run(read())
