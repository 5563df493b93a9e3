"""`ctx.transaction`: what a tool does in the app's own database happens exactly once, whenever its process dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

BANK = '''
import asyncio

from amoxi_py import StepError, SyncToolContext, ToolContext, agent, step, tool
from amoxi_py.testing import ScriptedModel, call

from .ledger import gate, gate_sync, note


@tool(idempotent=True)
async def pay(ctx: ToolContext) -> str:
    """Pay in."""
    paid = await ctx.transaction("pay", book, 5, ctx)
    note("paid", ctx, place=paid)
    await gate("after-commit")
    return f"payment {paid}"


async def book(connection, amount, ctx):
    cursor = await connection.execute(
        "INSERT INTO payment (call, amount) VALUES (%s, %s) RETURNING place", (ctx.call_id, amount)
    )
    (place,) = await cursor.fetchone()
    note("booked", ctx, place=place)
    await gate("before-commit")
    return place


@tool(idempotent=True)
def pay_sync(ctx: SyncToolContext) -> str:
    """Pay in."""
    paid = ctx.transaction("pay", book_sync, 5, ctx)
    note("paid", ctx, place=paid)
    gate_sync("after-commit")
    return f"payment {paid}"


def book_sync(connection, amount, ctx):
    (place,) = connection.execute(
        "INSERT INTO payment (call, amount) VALUES (%s, %s) RETURNING place", (ctx.call_id, amount)
    ).fetchone()
    note("booked", ctx, place=place)
    gate_sync("before-commit")
    return place


@tool(idempotent=True)
async def refuse(ctx: ToolContext) -> list[str]:
    """Pay what cannot be paid, and then what can."""
    said = []
    for name, amount in (("too much", -1), ("not storable", 0), ("at last", 3)):
        try:
            said.append(await ctx.transaction(name, try_to_book, amount, ctx))
        except StepError as error:
            said.append(error.type_name)
        except Exception as error:
            said.append(type(error).__name__)
    await gate("after-commit")
    return said


tries = 0


@step(retries=2)
async def try_to_book(connection, amount, ctx):
    global tries
    note("tried", ctx, amount=amount)
    await connection.execute("INSERT INTO payment (call, amount) VALUES (%s, %s)", (ctx.call_id, amount))
    if amount == 0:
        return object()
    if amount == 3:
        tries += 1
        if tries < 3:
            raise ConnectionError("not yet")
    return "paid"


@tool(idempotent=True, timeout=0.5, retries=1)
async def hurry(ctx: ToolContext) -> str:
    """Pay in time."""
    return str(await ctx.transaction("pay", book_slowly, 5, ctx))


async def book_slowly(connection, amount, ctx):
    note("booked", ctx)
    await connection.execute("INSERT INTO payment (call, amount) VALUES (%s, %s)", (ctx.call_id, amount))
    if ctx.attempt == 1:
        await connection.execute("SELECT pg_sleep(60)")
    return ctx.attempt


@tool(idempotent=True, timeout=0.5, retries=1)
def hurry_sync(ctx: SyncToolContext) -> str:
    """Pay in time."""
    return str(ctx.transaction("pay", book_slowly_sync, 5, ctx))


def book_slowly_sync(connection, amount, ctx):
    note("booked", ctx)
    connection.execute("INSERT INTO payment (call, amount) VALUES (%s, %s)", (ctx.call_id, amount))
    if ctx.attempt == 1:
        connection.execute("SELECT pg_sleep(60)")
    return ctx.attempt


TOOLS = [pay, pay_sync, refuse, hurry, hurry_sync]


@agent(tools=TOOLS, model=ScriptedModel({tool.__name__: [call(tool.__name__), "Done."] for tool in TOOLS}))
class Bank:
    """You pay."""
'''
on_postgres = pytest.mark.parametrize("store_kind", ["postgres"], indirect=True)
both_kinds = pytest.mark.parametrize("tool", ["pay", "pay_sync"])


@pytest.fixture
def payments(postgres_url: str) -> Iterator[Callable[[], list[tuple[Any, ...]]]]:
    """The rows of the app's table that are committed."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE payment (place serial PRIMARY KEY, call text, amount int CHECK (amount >= 0))")
        yield lambda: connection.execute("SELECT call, amount FROM payment ORDER BY place").fetchall()


@pytest.mark.crash
@on_postgres
@both_kinds
@pytest.mark.parametrize("killed", ["before the commit", "after the commit"])
def test_a_payment_of_a_killed_process_is_in_the_database_once(
    field_app: Any, start: Any, client: Any, until: Any, lease_s: float, payments: Any, tool: str, killed: str
) -> None:
    folder = field_app(BANK)
    if killed == "after the commit":
        folder.open_gate("before-commit")
    server = start(folder)
    run = client(server).submit("bank", tool)
    until(lambda: folder.ledger("paid" if killed == "after the commit" else "booked"))
    assert len(payments()) == (killed == "after the commit")
    server.kill9()
    folder.open_gate("before-commit")
    folder.open_gate("after-commit")
    again = start(folder)
    ended = client(again).until_status(run["id"], "completed", timeout=lease_s + 20)
    assert ended["output"] == "Done."
    ((call, amount),) = payments()
    assert amount == 5
    booked = folder.ledger("booked")
    assert len(booked) == (1 if killed == "after the commit" else 2)
    assert {line["call"] for line in booked} == {call}
    told = folder.ledger("paid")
    assert {line["place"] for line in told} == {booked[-1]["place"]}, "the recorded value comes back"


@pytest.mark.crash
@on_postgres
def test_a_transaction_that_fails_has_done_nothing_and_fails_again_when_the_call_runs_again(
    field_app: Any, start: Any, client: Any, until: Any, payments: Any
) -> None:
    folder = field_app(BANK)
    server = start(folder)
    run = client(server).submit("bank", "refuse")
    until(lambda: len(folder.ledger("tried", amount=3)) == 3)
    until(lambda: len(payments()) == 1)
    server.kill9()
    folder.open_gate("after-commit")
    again = client(start(folder))
    again.until_status(run["id"], "completed")
    [completed] = [event for event in again.events(run["id"]) if event.type == "tool.completed"]
    assert completed.data["result"] == ["CheckViolation", "ValueNotStorable", "paid"]
    assert [line["amount"] for line in folder.ledger("tried")] == [-1, -1, -1, 0, 3, 3, 3]
    assert [amount for _call, amount in payments()] == [3]


@pytest.mark.crash
@on_postgres
@pytest.mark.parametrize("tool", ["hurry", "hurry_sync"])
def test_a_transaction_in_a_tool_whose_time_is_up_is_rolled_back(
    field_app: Any, start: Any, client: Any, payments: Any, tool: str
) -> None:
    folder = field_app(BANK)
    api = client(start(folder))
    run = api.submit("bank", tool)
    api.until_status(run["id"], "completed")
    [completed] = [event for event in api.events(run["id"]) if event.type == "tool.completed"]
    assert completed.data["result"] == "2"
    assert len(folder.ledger("booked")) == 2
    assert len(payments()) == 1


@pytest.mark.crash
@on_postgres
@both_kinds
def test_a_transaction_of_a_run_that_is_cancelled_is_rolled_back(
    field_app: Any, start: Any, client: Any, until: Any, payments: Any, tool: str
) -> None:
    folder = field_app(BANK)
    api = client(start(folder))
    run = api.submit("bank", tool)
    until(lambda: folder.ledger("booked"))
    assert api.post_path(f"/runs/{run['id']}/cancel").json()["status"] == "cancelled"
    folder.open_gate("before-commit")
    folder.open_gate("after-commit")
    after = api.submit("bank", "pay")  # it waits for the database, if anything is still held there
    api.until_status(after["id"], "completed")
    assert len(payments()) == 1
    assert len(folder.ledger("paid")) == 1


@pytest.mark.crash
def test_a_transaction_on_the_file_store_says_what_it_needs(field_app: Any, start: Any, client: Any) -> None:
    folder = field_app(BANK)
    server = start(folder)
    api = client(server)
    run = api.submit("bank", "pay")
    api.until_status(run["id"], "completed")
    assert folder.ledger() == []
    server.wait_log("set 'ai.store.type' to 'postgres'")
