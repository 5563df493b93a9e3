"""Words of a newer version in the database: readers pass over them, or take them in the careful way."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import NotFound
from amoxi_py.ports.changes import Change, NewWait
from amoxi_py.ports.inputs import Answer
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio
ANN = Principal(id="user:ann")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path)
    await store.open(lambda events: None)
    yield store
    await store.close()


@pytest.fixture
def newer(tmp_path: Path, store: SqliteStore) -> sqlite3.Connection:
    """The same database in the hands of another version."""
    return sqlite3.connect(tmp_path / "amoxi.db", isolation_level=None)


async def test_an_event_of_an_unknown_type_is_passed_over(
    store: SqliteStore, newer: sqlite3.Connection, submission: Callable[[], Submission]
) -> None:
    submitted = await store.submit(submission())
    position = await store.find_log(ANN, run_id=submitted.run.id)
    for seq in range(3, 6):
        newer.execute(
            "INSERT INTO event (conversation, seq, run, type) VALUES (?, ?, ?, 99)",
            (position.conversation, seq, position.run),
        )
    newer.execute("UPDATE conversation SET last_seq = 5")
    await store.cancel(submitted.run.id, ANN)
    assert [event.seq for event in (await store.read_log(position, 0, 100, 10**6)).events] == [1, 2, 6]
    assert [event.seq for event in (await store.read_log(position, 2, 1, 10**6)).events] == [6]


async def test_a_run_of_an_unknown_status_waits_and_can_be_cancelled(
    store: SqliteStore, newer: sqlite3.Connection, submission: Callable[[], Submission]
) -> None:
    submitted = await store.submit(submission())
    newer.execute("UPDATE run SET status = 'held', wake_at = NULL")
    assert (await store.get_run(submitted.run.id, ANN)).status is RunStatus.WAITING
    assert [run.status for run in (await store.list_runs(ANN)).items] == [RunStatus.WAITING]
    assert await store.claim(await store.enroll("worker_1", 30.0), 1, 10) == ()
    assert (await store.cancel(submitted.run.id, ANN)).status is RunStatus.CANCELLED


async def test_a_run_that_ended_in_an_unknown_way_counts_as_failed_and_stays(
    store: SqliteStore, newer: sqlite3.Connection, submission: Callable[[], Submission]
) -> None:
    submitted = await store.submit(submission())
    newer.execute("UPDATE run SET status = 'given_up', wake_at = NULL, ended_seq = 2")
    assert (await store.get_run(submitted.run.id, ANN)).status is RunStatus.FAILED
    assert (await store.cancel(submitted.run.id, ANN)).status is RunStatus.FAILED
    assert newer.execute("SELECT status FROM run").fetchall() == [("given_up",)]


async def test_a_wait_of_an_unknown_kind_is_waited_for_and_takes_no_answer(
    store: SqliteStore, newer: sqlite3.Connection, submission: Callable[..., Submission]
) -> None:
    submitted = await store.submit(submission(claim_by=await store.enroll("worker_1", 30.0)))
    assert submitted.rows is not None
    lease = submitted.rows.lease
    call = ToolCall(
        id=f"call_{lease.run_id[4:]}_1_0",
        turn=1,
        n=0,
        tool="ask",
        arguments="{}",
        effect=Effect.IDEMPOTENT,
        status=CallStatus.STARTED,
    )
    reply = Message(id="msg_1", run_id=lease.run_id, turn=1, role="assistant", text="", calls=(call,))
    wait = NewWait(turn=1, n=0, wait=Wait(k=1, kind="question", name="?", created_at=1.0))
    await store.write(Change(lease=lease, number=1, message=reply, waits=(wait,)))
    newer.execute("UPDATE wait SET kind = 'webhook'")
    assert await store.pause(Change(lease=lease, number=2), None, ("question",))
    assert [one.kind for one in (await store.get_run(lease.run_id, ANN)).waiting_for] == ["webhook"]
    with pytest.raises(NotFound):
        await store.answer(Answer(call_id=call.id, k=1, principal=ANN, value="1"))
