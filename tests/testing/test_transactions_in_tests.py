"""A tool with `ctx.transaction` in a test of the app: on a connection that the test gives, else the way out is told."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from amoxi_py import StepError, SyncToolContext, ToolContext, agent, step, tool
from amoxi_py.errors import InvalidRequest
from amoxi_py.testing import ScriptedModel, call, run_agent, tool_context


class StandIn:
    """Takes statements in place of a database."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def execute(self, statement: str) -> None:
        self.asked.append(statement)

    def execute_now(self, statement: str) -> None:
        self.asked.append(statement)


@step(retries=1)
async def insert(connection: Any, *, amount: int) -> int:
    await connection.execute(f"INSERT {amount}")
    if amount < 0:
        raise ValueError("too little")
    return amount


def insert_now(connection: Any, amount: int) -> int:
    connection.execute_now(f"INSERT {amount}")
    return amount


@tool(idempotent=True)
async def pay(amount: int, ctx: ToolContext) -> int:
    """Pay."""
    paid: int = await ctx.transaction("pay", insert, amount=amount)
    return paid


@tool(idempotent=True)
def pay_now(amount: int, ctx: SyncToolContext) -> int:
    """Pay."""
    paid: int = ctx.transaction("pay", insert_now, amount)
    return paid


@agent(tools=[pay])
class Cashier:
    """You pay."""


def test_a_transaction_works_on_what_the_test_gives_and_is_recorded_as_a_step() -> None:
    database = StandIn()
    ctx = tool_context(connection=database)
    assert asyncio.run(pay(3, ctx)) == 3
    assert (database.asked, ctx.steps_done) == (["INSERT 3"], {"pay": 3})
    assert asyncio.run(pay(3, ctx.again())) == 3
    assert database.asked == ["INSERT 3"]


def test_the_same_holds_for_a_sync_tool() -> None:
    database = StandIn()
    ctx = tool_context(sync=True, connection=database)
    assert (pay_now(3, ctx), pay_now(3, ctx.again())) == (3, 3)
    assert (database.asked, ctx.steps_done) == (["INSERT 3"], {"pay": 3})


def test_a_transaction_that_raises_is_tried_as_its_options_say_and_then_failed() -> None:
    database = StandIn()
    ctx = tool_context(connection=database)
    for _ in range(2):
        with pytest.raises(StepError, match="ValueError: too little"):
            asyncio.run(pay(-1, ctx))
        ctx = ctx.again()
    assert database.asked == ["INSERT -1"] * 2
    assert ctx.step_records["pay"].failed


def test_names_are_those_of_steps() -> None:
    async def twice(ctx: ToolContext) -> None:
        await ctx.step("pay", str, 1)
        await ctx.transaction("pay", insert, amount=1)

    with pytest.raises(ValueError, match="used before in this call"):
        asyncio.run(twice(tool_context(connection=StandIn())))


def test_one_inside_another_is_refused() -> None:
    """It would wait for a second of the few connections while it keeps the first."""

    async def outer(connection: Any, ctx: ToolContext) -> int:
        return await ctx.transaction("inner", insert, amount=1)

    async def nested(ctx: ToolContext) -> int:
        with pytest.raises(StepError, match="'inner' is asked for inside another one"):
            await ctx.transaction("outer", outer, ctx)
        return await ctx.transaction("after", insert, amount=2)

    def outer_now(connection: Any, ctx: SyncToolContext) -> int:
        return ctx.transaction("inner", insert_now, 1)

    database = StandIn()
    assert asyncio.run(nested(tool_context(connection=database))) == 2
    sync = tool_context(sync=True, connection=database)
    with pytest.raises(StepError, match="'inner' is asked for inside another one"):
        sync.transaction("outer", outer_now, sync)
    assert sync.transaction("after", insert_now, 3) == 3
    assert database.asked == ["INSERT 2", "INSERT 3"]


def test_a_function_of_the_other_kind_is_refused() -> None:
    async def wrong(ctx: ToolContext) -> None:
        await ctx.transaction("pay", insert_now, 1)  # type: ignore[arg-type]  # this is the mistake

    with pytest.raises(StepError, match="TypeError: transaction 'pay': in an async tool the function is an async one"):
        asyncio.run(wrong(tool_context(connection=StandIn())))
    with pytest.raises(TypeError, match="in a sync tool the function is a sync one too"):
        tool_context(sync=True, connection=StandIn()).transaction("pay", insert, amount=1)


def test_a_real_connection_is_committed_or_not_by_the_test(postgres_url: str) -> None:
    async def sell(connection: Any) -> int:
        await connection.execute("CREATE TABLE sale AS SELECT 1 AS n")
        cursor = await connection.execute("SELECT n FROM sale")
        return int((await cursor.fetchone())[0])

    async def play() -> int:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            found: int = await tool_context(connection=connection).transaction("sell", sell)
            await connection.rollback()
            return found

    assert asyncio.run(play()) == 1
    with psycopg.connect(postgres_url) as connection, pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM sale")


def test_without_a_connection_the_way_out_is_told() -> None:
    with pytest.raises(InvalidRequest, match=r"tool_context\(connection=\.\.\.\)"):
        asyncio.run(pay(1, tool_context()))


def test_an_agent_on_the_store_of_a_test_tells_in_the_log_what_it_needs(caplog: pytest.LogCaptureFixture) -> None:
    result = run_agent(Cashier, "pay", model=ScriptedModel([call("pay", amount=1), "Sorry."]))
    assert result.call("pay").result == "The tool failed."
    assert "tool_context(connection=...)" in caplog.text
