"""What the agents add to the shop: a session for each call of a tool, the tools, and the agent itself."""

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncSession

from amoxi_py import Inject, Principal, ToolContext, ToolError, agent, provides, tool

from .carrier import Carrier
from .database import sessions
from .orders import OrderProblem, OrderView, orders_of, sales_of, send_elsewhere

OrderId = Annotated[str, Field(pattern=r"^[AB]-\d{4}$", description="The order number, e.g. A-1001")]


@provides(scope="call")
async def session_of_a_call() -> AsyncIterator[AsyncSession]:
    """Commit when the tool has returned; roll back when it raised, timed out or was cancelled; close in any case."""
    async with sessions.begin() as session:
        yield session


@tool(read_only=True)
async def find_orders(db: Annotated[AsyncSession, Inject], ctx: ToolContext) -> list[OrderView]:
    """Find the orders of the shop, with their items, prices and addresses."""
    return await orders_of(db, ctx.principal.tenant)


@tool(idempotent=True, timeout=2)
async def change_address(
    order_id: OrderId,
    address: Annotated[str, Field(min_length=5, max_length=200)],
    db: Annotated[AsyncSession, Inject],
    carrier: Annotated[Carrier, Inject],
    ctx: ToolContext,
) -> OrderView:
    """Change the address that an order goes to."""
    # The commit comes before this call's record. When the process dies between the two, the call runs again under the
    # same call id, which is in the database beside the change by then: so `idempotent=True` is no wish but holds.
    tenant, by = ctx.principal.tenant, ctx.principal.id
    try:
        return await send_elsewhere(db, carrier, tenant, order_id, address, by=by, key=ctx.call_id)
    except OrderProblem as problem:
        raise ToolError(str(problem)) from problem


def is_manager(principal: Principal) -> bool:
    """Whether somebody may see what the shop earns; for others the tool does not exist."""
    return "manager" in principal.roles


@tool(read_only=True, allow=is_manager)
async def total_sales(db: Annotated[AsyncSession, Inject], ctx: ToolContext) -> str:
    """Tell the total sales of the shop."""
    return f"{await sales_of(db, ctx.principal.tenant) / 100:.2f}"


@agent(tools=[find_orders, change_address, total_sales], description="Knows the shop's orders.")
class ShopAssistant:
    """You help the people of a shop with its orders. Look at the orders before you say anything about them."""
