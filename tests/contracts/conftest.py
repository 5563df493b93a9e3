"""The store under test behind its port, with a clock that tests move and words for what a worker does."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import Event, EventType, NewEvent
from amoxi_py.domain.ids import call_id, child_message_id, child_run_id, new_id
from amoxi_py.domain.limits import NO_LIMITS, Limits
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Lease, RunFailure, RunRows
from amoxi_py.domain.tool_call import CallStatus, Effect, StepRecord, ToolCall
from amoxi_py.domain.wait import Wait, WaitOn
from amoxi_py.ports.changes import CallResult, Change, NewChild, NewStep, NewWait
from amoxi_py.ports.inputs import Answer, Signal, Verdict
from amoxi_py.ports.store import Store, Submission, Submitted, WorkerKey
from amoxi_py.stores.sqlite.store import SqliteStore
from cutting_proxy import CuttingProxy, Door, cutting_proxy
from postgres_server import GivenServer

ANN = Principal(
    id="user:ann",
    name="Ann",
    channel="web",
    tenant="t1",
    roles=frozenset({"sales"}),
    claims={"plan": "gold", "n": 2**70},
)
BOB = Principal(id="user:bob", channel="api")
FIN = Principal(id="user:fin", tenant="t1", roles=frozenset({"finance"}))
AGENT = "support-agent"


class MovableClock:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.time = 1_790_000_000.25

    def now(self) -> float:
        return self.time

    def running(self) -> float:
        return self.time - 1_700_000_000

    def move(self, seconds: float) -> None:
        self.time += seconds


class Place(Protocol):
    """Where data are that were empty at first, for as many stores as there are processes on them."""

    def store(self, clock: MovableClock, limits: Limits = NO_LIMITS) -> Store:
        """Make one more store on the data."""
        ...

    def lose_answer(self, store: Any) -> None:
        """The next commit of one of its stores lands, and its answer is lost."""
        ...

    def change_rows(self, table: str, changes: str) -> None:
        """Change all rows of a table that fit."""
        ...


class World:
    """A store, what its listener was told, and what workers and principals do with it."""

    ann, bob, fin, agent = ANN, BOB, FIN, AGENT

    def __init__(self, place: Place, clock: MovableClock | None = None, limits: Limits = NO_LIMITS) -> None:
        self.clock = clock or MovableClock()
        self.place = place
        self.limits = limits
        self.store = place.store(self.clock, limits)
        self.told: list[Event] = []
        self._numbers: dict[tuple[int, int], int] = {}
        self._claims = 0

    async def open(self) -> None:
        await self.store.open(self.told.extend)

    @asynccontextmanager
    async def other_process(self) -> AsyncIterator[World]:
        """A second store on the same data, as another process has it."""
        other = World(self.place, self.clock, self.limits)
        await other.open()
        try:
            yield other
        finally:
            await other.store.close()

    async def worker(self, lease_s: float = 30.0) -> WorkerKey:
        return await self.store.enroll(new_id("worker"), lease_s)

    async def submit(self, text: str = "hello", **more: Any) -> Submitted:
        return await self.store.submit(self.submission(text, **more))

    def submission(self, text: str = "hello", **more: Any) -> Submission:
        conversation = more.pop("conversation", None)
        values: dict[str, Any] = {
            "run_id": new_id("run"),
            "message_id": new_id("msg"),
            "conversation_id": conversation or new_id("conv"),
            "new_conversation": conversation is None,
            "agent": AGENT,
            "principal": ANN,
            "text": text,
        }
        return Submission(**(values | more))

    async def start(self, worker: WorkerKey, **more: Any) -> Lease:
        """Submit a message and claim its run in the same commit."""
        submitted = await self.submit(claim_by=worker, **more)
        assert submitted.rows is not None
        return submitted.rows.lease

    async def write(self, change: Change) -> None:
        await self.store.write(change)

    async def claim(self, worker: WorkerKey, limit: int = 100) -> list[Lease]:
        return [rows.lease for rows in await self.claim_rows(worker, limit)]

    async def claim_rows(self, worker: WorkerKey, limit: int = 100, **more: Any) -> tuple[RunRows, ...]:
        self._claims += 1
        return await self.store.claim(worker, self._claims, limit, **more)

    def call(self, lease: Lease, turn: int, n: int = 0, **more: Any) -> ToolCall:
        values: dict[str, Any] = {
            "id": call_id(lease.run_id, turn, n),
            "turn": turn,
            "n": n,
            "tool": "refund_order",
            "arguments": '{"order_id":"A-1001"}',
            "effect": Effect.IDEMPOTENT,
        }
        return ToolCall(**(values | more))

    def approval(self, **more: Any) -> Approval:
        return Approval(**({"created_at": self.clock.now()} | more))

    def change(self, lease: Lease, **more: Any) -> Change:
        """The next change under a lease; one that was refused is followed by one with a `number` of its own."""
        place = (lease.run, lease.fence)
        self._numbers[place] = more.pop("number", self._numbers.get(place, 0) + 1)
        return Change(lease=lease, number=self._numbers[place], **more)

    def reply(self, lease: Lease, turn: int, *calls: ToolCall, text: str = "", **more: Any) -> Change:
        message = Message(
            id=new_id("msg"),
            run_id=lease.run_id,
            turn=turn,
            role="assistant",
            text=text,
            calls=calls,
            created_at=self.clock.now(),
        )
        events = [NewEvent(type=EventType.MESSAGE_COMPLETED, turn=turn, subject=message)]
        events += [NewEvent(type=EventType.TOOL_CALLED, turn=turn, n=call.n, subject=call) for call in calls]
        events += [
            NewEvent(type=EventType.APPROVAL_REQUESTED, turn=turn, n=call.n, subject=call)
            for call in calls
            if call.approval is not None
        ]
        return self.change(lease, **({"message": message, "events": tuple(events)} | more))

    def result(self, lease: Lease, call: ToolCall, value: Any = "done", **more: Any) -> Change:
        status, result = more.pop("status", CallStatus.DONE), encode_json(value)
        settled = replace(call, status=status, result=result)
        event = NewEvent(type=EventType.TOOL_COMPLETED, turn=call.turn, n=call.n, subject=settled)
        one = CallResult(turn=call.turn, n=call.n, status=status, result=result)
        return self.change(lease, **({"results": (one,), "events": (event,)} | more))

    def step(self, lease: Lease, call: ToolCall, name: str, value: str, **more: Any) -> Change:
        record = StepRecord(name=name, value=value, failed=more.pop("failed", False))
        return self.change(lease, steps=(NewStep(turn=call.turn, n=call.n, record=record),), **more)

    def waits_for(
        self, lease: Lease, call: ToolCall, kind: WaitOn, name: str = "", *, k: int = 1, **more: Any
    ) -> Change:
        """What a call waits for from now on, with the event of a question."""
        schema, until = more.pop("schema", None), more.pop("until", None)
        wait = Wait(k=k, kind=kind, name=name, schema=schema, created_at=self.clock.now(), until=until)
        asked = NewEvent(type=EventType.QUESTION_ASKED, turn=call.turn, n=call.n, subject=replace(call, wait=wait))
        events = (asked,) if kind == "question" else ()
        new = NewWait(turn=call.turn, n=call.n, wait=wait)
        return self.change(lease, **({"waits": (new,), "events": events} | more))

    def child(self, call: ToolCall, agent: str = "researcher", text: str = "look it up") -> NewChild:
        """The run that a call asks for."""
        ids = {"run_id": child_run_id(call.id), "message_id": child_message_id(call.id)}
        return NewChild(turn=call.turn, n=call.n, agent=agent, text=text, **ids)

    def asks(self, lease: Lease, *calls: ToolCall, **more: Any) -> Change:
        """Calls that start now, with the run that each asks for."""
        starts = tuple((call.turn, call.n) for call in calls)
        return self.change(lease, starts=starts, children=tuple(self.child(call) for call in calls), **more)

    async def asking_parent(
        self, worker: WorkerKey, count: int = 1, *, lease: Lease | None = None, pause: bool = True, **more: Any
    ) -> tuple[Lease, list[ToolCall]]:
        """A run whose calls have asked for child runs, and which waits for them."""
        lease = lease or await self.start(worker, **more)
        calls = [self.call(lease, 1, n, tool="ask_researcher") for n in range(count)]
        await self.store.write(self.reply(lease, 1, *calls))
        await self.store.write(self.asks(lease, *calls))
        if pause:
            assert await self.store.pause(self.change(lease), None, ("child",))
        return lease, calls

    def for_parent(self, call: ToolCall, value: Any = "found", status: CallStatus = CallStatus.DONE) -> CallResult:
        return CallResult(turn=call.turn, n=call.n, status=status, result=encode_json(value))

    def fail_child(self, lease: Lease, call: ToolCall) -> Change:
        failure = RunFailure(code="model_failed", message="No answer.")
        event = NewEvent(type=EventType.RUN_FAILED, data=encode_json({"error": {"code": failure.code}}))
        result = self.for_parent(call, "it failed", CallStatus.FAILED)
        return self.change(lease, end="failed", failure=failure, for_parent=result, events=(event,))

    def answer(self, call: ToolCall, value: Any, *, k: int = 1, **more: Any) -> Answer:
        return Answer(**({"call_id": call.id, "k": k, "principal": ANN, "value": encode_json(value)} | more))

    def signal(self, lease: Lease, name: str, payload: Any = None, **more: Any) -> Signal:
        values: dict[str, Any] = {"id": new_id("sig"), "run_id": lease.run_id, "principal": ANN, "name": name}
        return Signal(**(values | {"payload": encode_json(payload)} | more))

    async def asking_run(self, worker: WorkerKey, question: str = "Which?", **more: Any) -> tuple[Lease, ToolCall]:
        """A run that waits for the answer to one question."""
        until = more.pop("until", None)
        lease = await self.start(worker, **more)
        call = self.call(lease, 1, status=CallStatus.STARTED)
        await self.store.write(self.reply(lease, 1, call))
        await self.store.write(self.waits_for(lease, call, "question", question, until=until))
        assert await self.store.pause(self.change(lease), until, ("question",))
        return lease, call

    def delta(self, lease: Lease, message_id: str, offset: int, text: str, **more: Any) -> Change:
        data = encode_json({"message_id": message_id, "offset": offset, "text": text})
        return self.change(lease, events=(NewEvent(type=EventType.MESSAGE_DELTA, data=data),), **more)

    def finish(self, lease: Lease, turn: int, text: str = "Done.", **more: Any) -> Change:
        change = self.reply(lease, turn, text=text, end="completed", **more)
        return replace(change, events=(*change.events, NewEvent(type=EventType.RUN_COMPLETED)))

    def fail(self, lease: Lease) -> Change:
        failure = RunFailure(code="model_failed", message="The model did not answer.")
        data = encode_json({"error": {"code": failure.code, "message": failure.message}})
        event = NewEvent(type=EventType.RUN_FAILED, data=data)
        return self.change(lease, end="failed", failure=failure, events=(event,))

    def verdict(self, call: ToolCall, lease: Lease, **more: Any) -> Verdict:
        values: dict[str, Any] = {"call_id": call.id, "run_id": lease.run_id, "principal": ANN, "decision": "approve"}
        return Verdict(**(values | more))

    async def waiting_run(self, worker: WorkerKey, *, approver: str = "owner", **more: Any) -> tuple[Lease, ToolCall]:
        """A run that waits for one approval."""
        expires_at = more.pop("expires_at", None)
        lease = await self.start(worker, **more)
        call = self.call(lease, 1, approval=self.approval(approver=approver, expires_at=expires_at))
        await self.store.write(self.reply(lease, 1, call))
        assert await self.store.pause(self.change(lease), expires_at, ("approval",))
        return lease, call

    async def log(self, lease: Lease, principal: Principal = ANN, *, page: int = 100, size: int = 10**6) -> list[Event]:
        """The stored log of a run's conversation."""
        run = await self.store.get_run(lease.run_id, principal)
        position = await self.store.find_log(principal, conversation_id=run.conversation_id)
        events: list[Event] = []
        more = True
        while more:
            read = await self.store.read_log(position, events[-1].seq if events else 0, page, size)
            assert read.events or not read.more, "a page that has more behind it takes its reader on"
            assert len(read.events) <= page
            events += read.events
            more = read.more
        return events

    def labels(self, lease: Lease) -> list[str]:
        """What the listener was told of a run."""
        return [event.type.label for event in self.told if event.run == lease.run]

    async def until(self, condition: Callable[[], bool] | Callable[[], Awaitable[bool]]) -> None:
        """Wait for something that another process or thread brings about."""
        with anyio.fail_after(60):
            while True:
                met = condition()
                if met if isinstance(met, bool) else await met:
                    return
                await anyio.sleep(0.005)

    def lose_answer(self) -> None:
        """The next commit of the store lands, and its answer is lost."""
        self.place.lose_answer(self.store)

    async def change_rows(self, table: str, changes: str) -> None:
        """What a program does that is not this version of the framework."""
        await anyio.to_thread.run_sync(self.place.change_rows, table, changes)


class SqlitePlace:
    """A folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, clock: MovableClock, limits: Limits = NO_LIMITS) -> SqliteStore:
        return SqliteStore(self._folder, clock=clock, synchronous="OFF", limits=limits)

    def lose_answer(self, store: SqliteStore) -> None:
        writer = store._writer
        assert writer is not None
        writer._connection = _LosesOneAnswer(writer._connection)  # type: ignore[assignment]  # stands in for it

    def change_rows(self, table: str, changes: str) -> None:
        with closing(sqlite3.connect(self._folder / "amoxi.db", isolation_level=None)) as connection:
            connection.execute(f"UPDATE {table} SET {changes}")


class _LosesOneAnswer:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lost = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
        cursor = self._connection.execute(sql, *params)
        if sql == "COMMIT" and not self._lost:
            self._lost = True
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class PostgresPlace:
    """A schema; each store has a line of its own to the database, to be cut."""

    def __init__(self, dsn: str, schema: str, proxy: CuttingProxy) -> None:
        self._dsn = dsn
        self._schema = schema
        self._proxy = proxy
        self._doors: dict[int, Door] = {}

    def store(self, clock: MovableClock, limits: Limits = NO_LIMITS) -> Store:
        from amoxi_py.stores.postgres.store import PostgresStore  # half a second that SQLite's tests do not need

        door = self._proxy.door()
        store = PostgresStore(door.url(self._dsn), schema=self._schema, clock=clock, limits=limits)
        self._doors[id(store)] = door
        return store

    def lose_answer(self, store: Store) -> None:
        self._doors[id(store)].lose_answer()

    def change_rows(self, table: str, changes: str) -> None:
        with psycopg.connect(self._dsn) as connection:
            connection.execute(f"UPDATE {self._schema}.{table} SET {changes}".encode())

    def empty(self) -> None:
        """Leave nothing but the tables, when all stores are closed."""
        self.close()
        with psycopg.connect(self._dsn) as connection:
            named = sql.SQL("SELECT tablename FROM pg_tables WHERE schemaname = {} AND tablename <> 'migration'")
            tables = connection.execute(named.format(self._schema)).fetchall()
            places = sql.SQL(", ").join(sql.Identifier(self._schema, table) for (table,) in tables)
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY").format(places))

    def close(self) -> None:
        while self._doors:
            self._doors.popitem()[1].close()


class Schemas:
    """Places that are used again, because making all tables anew takes longer than most tests."""

    def __init__(self, dsn: str, proxy: CuttingProxy) -> None:
        self._dsn = dsn
        self._proxy = proxy
        self._numbers = count(1)
        self._used: list[PostgresPlace] = []

    def take(self) -> PostgresPlace:
        """Return an empty one."""
        if not self._used:
            return PostgresPlace(self._dsn, f"amoxi_{next(self._numbers)}", self._proxy)
        place = self._used.pop()
        place.empty()
        return place

    def give_back(self, place: PostgresPlace) -> None:
        """Take one back that no store uses any more."""
        place.close()
        self._used.append(place)


@pytest.fixture(scope="session")
def schemas(postgres: GivenServer) -> Iterator[Schemas]:
    """Gives empty schemas of one database."""
    dsn = postgres.fresh_database()
    with cutting_proxy(dsn) as proxy:
        yield Schemas(dsn, proxy)


@pytest.fixture(params=["sqlite", "postgres"])
def fresh_data(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Place]]:
    """Gives an empty place for stores; each dialect is a parameter."""
    if request.param == "sqlite":
        yield lambda: SqlitePlace(tmp_path_factory.mktemp("store") / "ai")
        return
    schemas: Schemas = request.getfixturevalue("schemas")
    places: list[PostgresPlace] = []

    def fresh() -> Place:
        places.append(schemas.take())
        return places[-1]

    yield fresh
    for place in places:
        schemas.give_back(place)


@pytest.fixture
async def world(fresh_data: Callable[[], Place]) -> AsyncIterator[World]:
    world = World(fresh_data())
    await world.open()
    yield world
    await world.store.close()


@pytest.fixture
async def world_with(fresh_data: Callable[[], Place]) -> AsyncIterator[Callable[..., Awaitable[World]]]:
    """Gives a world with limits."""
    worlds: list[World] = []

    async def make(**limits: int) -> World:
        worlds.append(World(fresh_data(), limits=Limits(**limits)))
        await worlds[-1].open()
        return worlds[-1]

    yield make
    for world in worlds:
        await world.store.close()


@pytest.fixture
def new_world(fresh_data: Callable[[], Place]) -> Callable[[], World]:
    """For tests that bring their own event loop, and need one world after another."""
    used: list[Place] = []

    def new() -> World:
        if used and isinstance(used[0], PostgresPlace):  # a schema of its own would take longer than most histories
            used[0].empty()
        else:
            used[:] = [fresh_data()]
        return World(used[0])

    return new


@pytest.fixture
def new_embedded_world(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], World]:
    """Worlds of the embedded store, one after another, whichever store is tested."""
    return lambda: World(SqlitePlace(tmp_path_factory.mktemp("embedded") / "ai"))
