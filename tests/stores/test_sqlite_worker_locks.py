"""Lock files of workers: one for each worker that lives, none for those that are gone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amoxi_py.errors import LeaseLost
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.file_lock import FileLock
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio


def lock_files(folder: Path) -> set[str]:
    return {file.name for file in (folder / "workers").iterdir()}


def held_files(folder: Path) -> int:
    """How many of the lock files this process has open, where the system tells."""
    if not Path("/proc/self/fd").exists():
        return 0
    opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    return sum(path.startswith(str(folder / "workers")) for path in opened)


async def test_a_process_that_lost_its_lease_again_and_again_holds_one_file(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = SqliteStore(tmp_path, clock=clock)
    await store.open(lambda events: None)
    worker = await store.enroll("worker_0", 5.0)
    await store.submit(submission(claim_by=worker))
    held = held_files(tmp_path)
    for number in range(1, 6):
        clock.ahead += 6.0
        with pytest.raises(LeaseLost):
            store.renew(worker, 5.0)
        worker = await store.enroll(f"worker_{number}", 5.0)
        assert f"worker_{number - 1}.lock" in lock_files(tmp_path)
        assert len(await store.claim(worker, 1, 10)) == 1
    last = await store.enroll("worker_last", 5.0)
    assert lock_files(tmp_path) == {"worker_5.lock", "worker_last.lock"}
    assert held_files(tmp_path) <= held + 1
    await store.retire(worker)
    await store.retire(last)
    assert lock_files(tmp_path) == set()
    await store.close()


async def test_files_that_dead_processes_left_are_removed_and_held_or_new_ones_are_not(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    first = await store.enroll("worker_1", 30.0)
    for name in ("old", "held", "new"):
        (tmp_path / "workers" / f"{name}.lock").touch()
        if name != "new":
            os.utime(tmp_path / "workers" / f"{name}.lock", (1_700_000_000, 1_700_000_000))
    held = FileLock(tmp_path / "workers" / "held.lock")
    held.acquire()
    await store.enroll("worker_2", 30.0)
    assert lock_files(tmp_path) == {"worker_1.lock", "worker_2.lock", "held.lock", "new.lock"}
    held.close()
    await store.retire(first)
    await store.close()
