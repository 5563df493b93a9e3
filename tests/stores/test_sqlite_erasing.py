"""What is left of an erased conversation: for minutes that its runs ended, then nothing, and no text at any time."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.ports.changes import Change, NewWait, Summary
from amoxi_py.ports.inputs import Answer, Signal
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")
OF_NO_WORDS = ["passage_words_data", "passage_words_config"]  # what FTS5 has of an index without any word
KEPT_AS_NUMBERS = ["event", "erased_run", "worker", "migration", "sqlite_sequence", *OF_NO_WORDS]


def rows(folder: Path, sql: str) -> list[Any]:
    database = sqlite3.connect(folder / "amoxi.db")
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


async def ask_and_answer(store: SqliteStore, lease: Lease, text: str) -> None:
    """Leave a text wherever a call that waits leaves one."""
    call = ToolCall(
        id=call_id(lease.run_id, 1, 0),
        turn=1,
        n=0,
        tool="ask",
        arguments=f'["{text}"]',
        effect=Effect.IDEMPOTENT,
        status=CallStatus.STARTED,
    )
    wait = Wait(k=1, kind="question", name=text, schema=f'{{"title":"{text}"}}', created_at=1.0)
    change = Change(
        lease=lease,
        number=1,
        message=Message(id="msg_9", run_id=lease.run_id, turn=1, role="assistant", text=text, calls=(call,), kept=text),
        waits=(NewWait(turn=1, n=0, wait=wait),),
        summary=Summary(run_id=lease.run_id, turn=0, text=text),
        events=(NewEvent(type=EventType.QUESTION_ASKED, turn=1, n=0, subject=replace(call, wait=wait)),),
    )
    await store.write(change)
    await store.answer(Answer(call_id=call.id, k=1, principal=ANN, value=f'"{text}"'))
    signal = Signal(id="sig_1", run_id=lease.run_id, principal=ANN, name="go", payload=f'"{text}"')
    await store.signal(signal)


async def test_nothing_personal_stays_and_after_minutes_nothing_at_all(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = SqliteStore(tmp_path, clock=clock)
    await store.open(lambda events: None)
    run = (await store.submit(submission("the private sentence"))).run
    failed = await store.submit(submission(claim_by=await store.enroll("worker_0", 1.0)))
    assert failed.rows is not None
    lease = failed.rows.lease
    await ask_and_answer(store, lease, "the private sentence")
    event = NewEvent(type=EventType.RUN_FAILED, data='{"error":{"message":"the private sentence"}}')
    await store.write(Change(lease=lease, number=2, end="failed", events=(event,)))
    await store.erase(run.conversation_id, ANN)
    await store.erase(failed.run.conversation_id, ANN)
    assert rows(tmp_path, "SELECT type, turn, n, data FROM event") == [(14, None, None, None), (15, None, None, None)]
    tables = [name for (name,) in rows(tmp_path, "SELECT name FROM sqlite_schema WHERE type = 'table'")]
    left = [name for name in tables if rows(tmp_path, f"SELECT 1 FROM {name}") and name not in KEPT_AS_NUMBERS]
    assert left == []
    clock.ahead = 301.0
    await store.erase((await store.submit(submission())).run.conversation_id, ANN)
    assert run.id not in [run_id for (run_id,) in rows(tmp_path, "SELECT id FROM erased_run")]
    assert len(rows(tmp_path, "SELECT 1 FROM event")) == 1
    clock.ahead = 602.0
    await store.enroll("worker_1", 30.0)
    assert rows(tmp_path, "SELECT 1 FROM erased_run UNION ALL SELECT 1 FROM event") == []
    await store.close()
    assert b"private sentence" not in (tmp_path / "amoxi.db").read_bytes()


async def test_what_was_erased_of_a_principal_is_in_no_file_of_an_open_store(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    run = (await store.submit(submission("the private sentence"))).run
    await store.erase(run.conversation_id, ANN)
    await store.forget_principal(ANN)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert [name for name, found in files.items() if b"private sentence" in found] == []
    await store.submit(submission("the next one"))
    await store.close()
    assert rows(tmp_path, "SELECT text FROM message") == [("the next one",)]


async def test_a_run_that_ended_long_before_leaves_nothing(
    tmp_path: Path, submission: Callable[..., Submission], clock: Any
) -> None:
    store = SqliteStore(tmp_path, clock=clock)
    await store.open(lambda events: None)
    run = (await store.submit(submission())).run
    await store.cancel(run.id, ANN)
    clock.ahead = 301.0
    await store.erase(run.conversation_id, ANN)
    assert rows(tmp_path, "SELECT 1 FROM erased_run UNION ALL SELECT 1 FROM event") == []
    await store.close()


async def test_a_big_erasure_gives_its_space_back_while_the_store_is_open(
    tmp_path: Path, submission: Callable[..., Submission]
) -> None:
    store = SqliteStore(tmp_path, synchronous="OFF")
    await store.open(lambda events: None)
    big = [(await store.submit(submission("x" * 1_000_000))).run for _ in range(20)]
    await store.submit(submission("keep me"))
    for run in big:
        await store.erase(run.conversation_id, ANN)
    deadline = time.monotonic() + 60
    while rows(tmp_path, "PRAGMA page_count")[0][0] > 1200 and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    assert rows(tmp_path, "PRAGMA page_count")[0][0] <= 1200
    assert len((await store.list_runs(ANN)).items) == 1
    await store.close()
    assert rows(tmp_path, "PRAGMA integrity_check") == [("ok",)]
