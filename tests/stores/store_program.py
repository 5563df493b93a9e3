"""What tests let other processes do with a store: `store_program.py <what> <folder> [...]`."""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from typing import Any

from amoxi_py.domain.event import Event
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

ANN = Principal(id="user:ann")


def message(text: str, **more: Any) -> Submission:
    values = {
        "run_id": new_id("run"),
        "message_id": new_id("msg"),
        "conversation_id": new_id("conv"),
        "new_conversation": True,
        "agent": "a",
        "principal": ANN,
        "text": text,
    }
    return Submission(**(values | more))


async def start_often(_: SqliteStore, parent: str) -> None:
    """For each name that is read: open a store in that folder, store one message, close it, and say so."""
    print("ready")
    while name := (await asyncio.to_thread(sys.stdin.readline)).strip():
        store = SqliteStore(Path(parent) / name)
        await store.open(lambda events: None)
        await store.submit(message("hello"))
        await store.close()
        print("done")


async def talk(store: SqliteStore, conversation: str, count: str) -> None:
    """Queue messages in a conversation, and print every event that the listener hears in it."""
    heard: list[Event] = []
    await store.open(heard.extend)
    print("open")
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(int(count)):
        await store.submit(message(str(number), conversation_id=conversation, new_conversation=False, on_busy="queue"))
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.sleep(0.1)
    await store.close()
    print(" ".join(f"{event.seq}:{event.data['run_id']}" for event in heard))


async def hold(store: SqliteStore) -> None:
    """Claim a run under a long lease and wait to be killed."""
    await store.open(lambda events: None)
    worker = await store.enroll(new_id("worker"), 3600.0)
    submitted = await store.submit(message("long work", claim_by=worker))
    print(submitted.run.id)
    await asyncio.sleep(60)


async def fill(store: SqliteStore, limit: str) -> None:
    """Store messages on a disk that becomes full, then read, then make room and store one more."""
    await store.open(lambda events: None)
    stored: list[str] = []
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        for _ in range(2000):
            submitted = await store.submit(message("x" * 2000))
            stored.append(submitted.run.id)
    except StoreUnavailable as error:
        print(error)
    for run_id in stored:
        await store.get_run(run_id, ANN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    stored.append((await store.submit(message("room again"))).run.id)
    await store.close()
    print(" ".join(stored))


if __name__ == "__main__":
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    what = {"start_often": start_often, "talk": talk, "hold": hold, "fill": fill}[sys.argv[1]]
    asyncio.run(what(SqliteStore(Path(sys.argv[2])), *sys.argv[3:]))
