"""Steps whose effect is in the store's own database: the effect and its record are one commit, or neither is there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import psycopg
import pytest
from msgspec.structs import replace
from psycopg import sql
from psycopg.rows import dict_row

from amoxi_py.domain.run import Lease
from amoxi_py.domain.tool_call import CallStatus, StepRecord
from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.transactions import StepPlace, WorkFailed
from amoxi_py.stores.postgres.store import PostgresStore
from pgbouncer import pgbouncer
from postgres_server import GivenServer

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("fresh_data", ["postgres"], indirect=True)]
both_kinds = pytest.mark.parametrize("threaded", [False, True], ids=["async", "in a thread"])


class Shop:
    """A table of the app's own, and functions that work with it."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.table = f"sale_{uuid4().hex}"
        self.tries = 0
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE {self.table} (id int PRIMARY KEY, n int)")

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True, options="-c lock_timeout=10s") as connection:
            cursor = connection.execute(query.format(table=self.table))
            return cursor.fetchall() if cursor.description else []

    @property
    def sales(self) -> list[int]:
        return [n for (n,) in self.ask("SELECT n FROM {table} ORDER BY id")]

    def drop(self) -> None:
        self.ask("DROP TABLE {table}")

    async def run(self, connection: Any, query: str) -> list[Any]:
        """Run a statement on a connection of either kind."""
        query = query.format(table=self.table)
        if isinstance(connection, psycopg.AsyncConnection):
            cursor = await connection.execute(query)
            return await cursor.fetchall() if cursor.description else []

        def blocking() -> list[Any]:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []

        return await asyncio.to_thread(blocking)

    async def sell(self, connection: Any, number: int = 1) -> StepRecord:
        """Insert a row; whoever inserts it twice fails."""
        self.tries += 1
        try:
            await self.run(connection, f"INSERT INTO {{table}} VALUES ({number}, {self.tries})")
        except psycopg.Error as error:
            raise WorkFailed(error) from error
        return StepRecord(name="sell", value=f'"sold in try {self.tries}"')


@pytest.fixture
def shop(world: Any) -> Iterator[Shop]:
    shop = Shop(world.place._dsn)
    yield shop
    shop.drop()


async def place_of(world: Any, worker: Any = None) -> StepPlace:
    """Start a run with a call that has started, whose next step is `sell`."""
    lease: Lease = await world.start(worker or await world.worker())
    await world.write(world.reply(lease, 1, world.call(lease, 1, status=CallStatus.STARTED, tries=1)))
    return StepPlace(lease=lease, turn=1, n=0, name="sell")


async def recorded(world: Any, place: StepPlace) -> list[str]:
    rows = await world.store.load(place.lease)
    return [record.value for record in rows.steps.get((1, 0), ())]


@both_kinds
async def test_the_effect_and_its_record_are_one_commit(world: Any, shop: Shop, threaded: bool) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        kind = psycopg.Connection if threaded else psycopg.AsyncConnection
        assert type(connection) is kind
        record = await shop.sell(connection)
        assert (shop.sales, await recorded(world, place)) == ([], []), "nobody sees it before"
        return record

    record = await world.store.commit_step(place, work, threaded=threaded)
    assert (record.value, record.failed) == ('"sold in try 1"', False)
    assert (shop.sales, await recorded(world, place)) == ([1], ['"sold in try 1"'])


@both_kinds
async def test_what_work_that_fails_has_done_is_rolled_back(world: Any, shop: Shop, threaded: bool) -> None:
    place = await place_of(world)
    mistake = ValueError("no")

    async def work(connection: Any) -> StepRecord:
        await shop.sell(connection)
        raise WorkFailed(mistake)

    with pytest.raises(WorkFailed) as failed:
        await world.store.commit_step(place, work, threaded=threaded)
    assert failed.value.error is mistake
    assert (shop.tries, shop.sales, await recorded(world, place)) == (1, [], [])


async def test_a_step_that_is_recorded_sets_the_crashes_of_its_run_to_zero(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    world.clock.move(31)
    (lease,) = await world.claim(await world.worker())
    assert (await world.store.load(lease)).crashes == 1
    await world.store.commit_step(replace(place, lease=lease), shop.sell, threaded=False)
    assert (await world.store.load(lease)).crashes == 0


@both_kinds
async def test_the_work_of_a_worker_that_lost_its_lease_meanwhile_is_rolled_back(
    world: Any, shop: Shop, threaded: bool
) -> None:
    place = await place_of(world)
    second = await world.worker(1000.0)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        world.clock.move(31)
        (taken,) = await world.claim(second)
        assert taken.run == place.lease.run
        return record

    with pytest.raises(LeaseLost):
        await world.store.commit_step(place, work, threaded=threaded)
    assert shop.sales == []


async def test_the_work_of_a_run_that_was_cancelled_meanwhile_is_rolled_back(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        await world.store.cancel(place.lease.run_id, world.ann)
        return record

    with pytest.raises(LeaseLost):
        await world.store.commit_step(place, work, threaded=False)
    assert shop.sales == []


async def test_work_whose_step_is_recorded_already_is_rolled_back_and_the_record_returned(
    world: Any, shop: Shop
) -> None:
    place = await place_of(world)
    first = await world.store.commit_step(place, shop.sell, threaded=False)

    async def again(connection: Any) -> StepRecord:
        return await shop.sell(connection, 2)

    assert await world.store.commit_step(place, again, threaded=False) == first
    assert (shop.tries, shop.sales) == (2, [1])


async def test_two_executions_of_one_call_that_overlap_leave_one_effect(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    working = 0

    def work(number: int) -> Callable[[Any], Any]:
        async def sell(connection: Any) -> StepRecord:
            nonlocal working
            record = await shop.sell(connection, number)
            working += 1
            await world.until(lambda: working == 2)
            return record

        return sell

    first, second = await asyncio.gather(
        *(world.store.commit_step(place, work(number), threaded=number == 1) for number in (1, 2))
    )
    assert first == second
    assert len(shop.sales) == 1
    assert await recorded(world, place) == [first.value]


@both_kinds
async def test_a_commit_whose_answer_was_lost_is_found_and_not_done_again(
    world: Any, shop: Shop, threaded: bool
) -> None:
    place = await place_of(world)
    world.lose_answer()
    record = await world.store.commit_step(place, shop.sell, threaded=threaded)
    assert record.value == '"sold in try 1"'
    assert (shop.tries, shop.sales) == (1, [1])


@both_kinds
async def test_work_whose_commit_was_lost_before_the_database_had_it_is_done_again(
    world: Any, shop: Shop, threaded: bool
) -> None:
    place = await place_of(world)
    world.place._doors[id(world.store)].lose_commit()
    record = await world.store.commit_step(place, shop.sell, threaded=threaded)
    assert record.value == '"sold in try 2"'
    assert (shop.tries, shop.sales) == (2, [2])


async def test_work_that_is_done_again_finds_that_its_run_was_lost_meanwhile(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    door = world.place._doors[id(world.store)]

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        door.lose_commit()
        return record

    async with world.other_process() as other:
        second = await other.worker(1000.0)

        async def take_over(connection: Any) -> StepRecord:
            if shop.tries == 1:  # the second try finds that it has lost the run
                world.clock.move(31)
                assert len(await other.claim(second)) == 1
            return await work(connection)

        with pytest.raises(LeaseLost):
            await world.store.commit_step(place, take_over, threaded=False)
    assert shop.sales == []


async def test_work_whose_connection_is_lost_is_done_again(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        if shop.tries < 2:
            await shop.sell(connection)
            shop.ask(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
            try:
                await shop.run(connection, "SELECT 1")
            except psycopg.Error as error:
                raise WorkFailed(error) from error
        return await shop.sell(connection)

    record = await world.store.commit_step(place, work, threaded=False)
    assert (record.value, shop.sales) == ('"sold in try 3"', [3])


async def test_what_work_had_locked_is_free_soon_after_its_connection_is_cut(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        if shop.tries == 1:
            asyncio.get_running_loop().call_later(0.1, world.place._doors[id(world.store)].cut)
            try:
                await shop.run(connection, "SELECT pg_sleep(60)")
            except psycopg.Error as error:
                raise WorkFailed(error) from error
        return record

    await asyncio.wait_for(world.store.commit_step(place, work, threaded=False), 20)
    assert (shop.tries, shop.sales) == (2, [2])


async def test_work_that_always_loses_its_connection_has_failed(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        shop.ask(f"SELECT pg_terminate_backend({connection.info.backend_pid})")
        return record

    with pytest.raises(WorkFailed):
        await world.store.commit_step(place, work, threaded=False)
    assert (shop.tries, shop.sales) == (5, [])


async def test_work_in_a_database_that_is_away_can_be_done_when_it_is_back(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    door = world.place._doors[id(world.store)]
    door.shut()
    with pytest.raises(StoreUnavailable):
        await world.store.commit_step(place, shop.sell, threaded=False)
    door.open()
    await world.store.commit_step(place, shop.sell, threaded=False)
    assert (shop.tries, shop.sales) == (1, [1])


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_work_that_cannot_be_put_in_an_order_with_others_is_done_again(
    world: Any, shop: Shop, level: str
) -> None:
    shop.ask("INSERT INTO {table} VALUES (1, 0)")
    places = [await place_of(world), await place_of(world)]
    reading = 0

    async def work(connection: Any) -> StepRecord:
        nonlocal reading
        shop.tries += 1
        await shop.run(connection, f"SET TRANSACTION ISOLATION LEVEL {level}")
        ((before,),) = await shop.run(connection, "SELECT n FROM {table} WHERE id = 1")
        reading += 1
        await world.until(lambda: reading >= 2)
        try:
            await shop.run(connection, f"UPDATE {{table}} SET n = {before + 1} WHERE id = 1")
        except psycopg.Error as error:
            wrapped = RuntimeError("as object mappers do")
            wrapped.__cause__ = error
            raise WorkFailed(wrapped) from wrapped
        return StepRecord(name="sell", value="1")

    async with anyio.create_task_group() as tasks:
        for place in places:
            tasks.start_soon(partial(world.store.commit_step, place, work, threaded=False))
    assert (shop.tries, shop.sales) == (3, [2])


async def test_an_isolation_that_sees_less_does_not_hide_a_takeover(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    second = await world.worker(1000.0)

    async def work(connection: Any) -> StepRecord:
        await shop.run(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        record = await shop.sell(connection)
        if shop.tries == 1:
            world.clock.move(31)
            assert len(await world.claim(second)) == 1
        return record

    with pytest.raises(LeaseLost):
        await world.store.commit_step(place, work, threaded=False)
    assert shop.sales == []


async def test_the_loser_of_a_deadlock_is_done_again(world: Any, shop: Shop) -> None:
    shop.ask("INSERT INTO {table} VALUES (1, 0), (2, 0)")
    places = [await place_of(world), await place_of(world)]
    holding: set[int] = set()

    def work(first: int, second: int) -> Callable[[Any], Any]:
        async def cross(connection: Any) -> StepRecord:
            shop.tries += 1
            try:
                await shop.run(connection, f"UPDATE {{table}} SET n = n + 1 WHERE id = {first}")
                holding.add(first)
                await world.until(lambda: len(holding) == 2)
                await shop.run(connection, f"UPDATE {{table}} SET n = n + 1 WHERE id = {second}")
            except psycopg.Error as error:
                raise WorkFailed(error) from error
            return StepRecord(name="sell", value="1")

        return cross

    async with anyio.create_task_group() as tasks:
        for place, order in zip(places, [(1, 2), (2, 1)], strict=True):
            tasks.start_soon(
                lambda place=place, order=order: world.store.commit_step(place, work(*order), threaded=True)
            )
    assert (shop.tries, shop.sales) == (3, [2, 2])


async def test_nothing_else_of_the_conversation_waits_for_the_work(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        await asyncio.wait_for(world.write(world.delta(place.lease, "msg_2", 0, "Selling...")), 60)
        return record

    await world.store.commit_step(place, work, threaded=False)
    assert shop.sales == [1]


ENDS = {
    "commit()": (lambda connection: connection.commit(), psycopg.ProgrammingError, "forbidden"),
    "rollback()": (lambda connection: connection.rollback(), psycopg.ProgrammingError, "forbidden"),
    "ROLLBACK": (lambda connection: connection.execute("ROLLBACK"), RuntimeError, "ended the transaction"),
    "COMMIT": (lambda connection: connection.execute("COMMIT"), RuntimeError, "ended the transaction"),
    "close()": (lambda connection: connection.close(), RuntimeError, "closed its connection"),
    "an error that was caught": (None, RuntimeError, "error was caught"),
}


@pytest.mark.parametrize("how", ENDS)
@both_kinds
async def test_work_that_ends_its_transaction_itself_is_refused(
    world: Any, shop: Shop, how: str, threaded: bool
) -> None:
    place = await place_of(world)
    end, kind, text = ENDS[how]

    async def work(connection: Any) -> StepRecord:
        await shop.run(connection, "SELECT 1")
        if end is None:
            with suppress(psycopg.errors.DivisionByZero):
                await shop.run(connection, "SELECT 1 / 0")
            return StepRecord(name="sell", value="1")
        try:
            ended = end(connection)
            if asyncio.iscoroutine(ended):
                await ended
        except psycopg.Error as error:
            raise WorkFailed(error) from error
        if "O" in how:
            await shop.run(connection, "SELECT 1")  # the driver begins another transaction
        return StepRecord(name="sell", value="1")

    with pytest.raises(WorkFailed, match=text) as failed:
        await world.store.commit_step(place, work, threaded=threaded)
    assert isinstance(failed.value.error, kind)
    assert await recorded(world, place) == []


async def test_work_may_have_savepoints(world: Any, shop: Shop) -> None:
    place = await place_of(world)

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        with suppress(psycopg.errors.UniqueViolation):
            async with connection.transaction():
                await shop.run(connection, "INSERT INTO {table} VALUES (1, 9)")
        return record

    await world.store.commit_step(place, work, threaded=False)
    assert shop.sales == [1]


async def test_a_constraint_that_is_checked_at_the_end_fails_the_work(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    shop.ask("ALTER TABLE {table} ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")

    async def work(connection: Any) -> StepRecord:
        await shop.run(connection, "INSERT INTO {table} VALUES (1, 1), (2, 1)")
        return StepRecord(name="sell", value="1")

    with pytest.raises(WorkFailed) as failed:
        await world.store.commit_step(place, work, threaded=False)
    assert isinstance(failed.value.error, psycopg.errors.UniqueViolation)
    assert (shop.sales, await recorded(world, place)) == ([], [])


async def test_what_work_sets_for_itself_does_not_keep_its_outcome_from_being_recorded(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    role = f"tenant_{uuid4().hex}"
    shop.ask(f"CREATE ROLE {role}")
    shop.ask(f"GRANT ALL ON {{table}} TO {role}")

    async def work(connection: psycopg.AsyncConnection[Any]) -> StepRecord:
        connection.row_factory = dict_row
        connection.cursor_factory = psycopg.AsyncRawCursor
        await connection.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)))
        await connection.execute("SET LOCAL statement_timeout = 1")
        await connection.execute("SET LOCAL search_path = nowhere, public")
        await connection.execute("SET LOCAL synchronous_commit = off")
        await connection.execute("SET LOCAL statement_timeout = '5s'")
        return await shop.sell(connection)

    await world.store.commit_step(place, work, threaded=False)
    assert shop.sales == [1]
    shop.ask(f"REVOKE ALL ON {{table}} FROM {role}")
    shop.ask(f"DROP ROLE {role}")


@both_kinds
async def test_work_that_is_cancelled_is_rolled_back_at_once(world: Any, shop: Shop, threaded: bool) -> None:
    place = await place_of(world)
    sold = asyncio.Event()

    async def work(connection: Any) -> StepRecord:
        record = await shop.sell(connection)
        sold.set()
        await shop.run(connection, "SELECT pg_sleep(60)")
        return record

    task = asyncio.create_task(world.store.commit_step(place, work, threaded=threaded))
    await sold.wait()
    begun = time.monotonic()
    task.cancel()
    await asyncio.wait({task}, timeout=60)
    assert task.cancelled()
    await world.until(lambda: connections_of(shop, "%pg_sleep(60)%") == 0)
    assert time.monotonic() - begun < 50
    await world.store.commit_step(place, shop.sell, threaded=threaded)
    assert shop.sales == [2]


def connections_of(shop: Shop, query: str) -> int:
    ((count,),) = shop.ask(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        f"AND pid <> pg_backend_pid() AND query LIKE '{query}'"
    )
    return int(count)


async def test_there_are_never_more_connections_than_the_budget_has_and_none_is_kept(world: Any, shop: Shop) -> None:
    store = PostgresStore(
        f"{world.place._dsn}?application_name=budget", schema=world.place._schema, clock=world.clock, connections=5
    )
    await store.open(lambda events: None)
    assert store.for_transactions == 1
    places = [await place_of(world) for _ in range(6)]
    at_once: list[int] = []
    working: set[int] = set()

    def connections() -> int:
        ((count,),) = shop.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'budget'")
        return int(count)

    async def work(connection: Any) -> StepRecord:
        working.add(connection.info.backend_pid)
        at_once.append(len(working))
        record = await shop.sell(connection, shop.tries)
        assert connections() <= 5
        await asyncio.sleep(0)
        working.discard(connection.info.backend_pid)
        return record

    idle = connections()
    waiting = [
        asyncio.create_task(store.commit_step(place, work, threaded=bool(number % 2)))
        for number, place in enumerate(places)
    ]
    waiting.pop().cancel()
    await asyncio.gather(*waiting)
    assert (len(shop.sales), max(at_once)) == (5, 1)
    await world.until(lambda: connections() <= idle + 1)  # one more may have been made to read
    await store.close()


async def test_the_same_holds_behind_a_pooler_that_lends_connections_for_a_transaction(
    world: Any, shop: Shop, postgres: GivenServer
) -> None:
    places = [await place_of(world) for _ in range(4)]
    with pgbouncer(postgres, default_pool_size=2) as pooler:
        store = PostgresStore(pooler.dsn(world.place._dsn), schema=world.place._schema, clock=world.clock)
        await store.open(lambda events: None)

        async def work(connection: Any) -> StepRecord:
            record = await shop.sell(connection, shop.tries)
            await shop.run(connection, "UPDATE {table} SET n = 1")
            return record

        for number, place in enumerate(places):
            await store.commit_step(place, work, threaded=bool(number % 2))
        assert shop.sales == [1, 1, 1, 1]

        async def fails(connection: Any) -> StepRecord:
            await shop.sell(connection, shop.tries)
            raise WorkFailed(ValueError("no"))

        with pytest.raises(WorkFailed):
            await store.commit_step(replace(places[0], name="second"), fails, threaded=False)
        await store.close()
    assert len(shop.sales) == 4


async def test_work_that_goes_on_when_the_store_is_closed_is_rolled_back(world: Any, shop: Shop) -> None:
    place = await place_of(world)
    async with world.other_process() as other:
        sold = asyncio.Event()

        async def work(connection: Any) -> StepRecord:
            record = await shop.sell(connection)
            sold.set()
            try:
                await shop.run(connection, "SELECT pg_sleep(60)")
            except psycopg.Error as error:
                raise WorkFailed(error) from error
            return record

        task = asyncio.create_task(other.store.commit_step(place, work, threaded=True))
        await sold.wait()
        await other.store.close()
        with pytest.raises((StoreUnavailable, WorkFailed)):
            await asyncio.wait_for(task, 60)
        await other.open()
    assert shop.sales == []
