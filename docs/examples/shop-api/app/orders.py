"""The shop's rules about orders, which know neither routes nor agents: each works in the session that it is given."""

from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from .carrier import Carrier, Refused
from .database import AddressChange, Order


class OrderProblem(Exception):
    """What stands in the way, in words for who asked."""


class OrderView(BaseModel):
    """An order as its shop's people see it."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    item: str
    cents: int
    address: str


async def orders_of(session: AsyncSession, tenant: str | None) -> list[OrderView]:
    """Return the orders of a tenant."""
    rows = await session.scalars(select(Order).where(Order.tenant == tenant).order_by(Order.id))
    return [OrderView.model_validate(row) for row in rows]


async def sales_of(session: AsyncSession, tenant: str | None) -> int:
    """Return what all orders of a tenant come to, in cents."""
    return await session.scalar(select(func.sum(Order.cents)).where(Order.tenant == tenant)) or 0


async def send_elsewhere(
    session: AsyncSession, carrier: Carrier, tenant: str | None, order_id: str, address: str, *, by: str, key: str
) -> OrderView:
    """Give an order of a tenant another address. A key does it once, in the same commit as the change itself.

    The carrier is told before the commit: when it refuses, raising makes the session forget what was written; when
    the process dies before the commit, the next try tells it again under the same key.
    """
    order = await session.scalar(select(Order).where(Order.id == order_id, Order.tenant == tenant))
    if order is None:
        raise OrderProblem(f"There is no order {order_id}.")
    if await session.get(AddressChange, key) is None:
        order.address = address
        session.add(AddressChange(key=key, order_id=order_id, address=address, by=by))
        await session.flush()
        try:
            await carrier.redirect(order_id, address, key)
        except Refused as refused:
            raise OrderProblem(str(refused)) from refused
    return OrderView.model_validate(order)
