"""The shop's orders: look one up, cancel one that is not shipped yet."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import SyncToolContext, ToolError, singleton, tool

from .files import add_line, alone_with, read_lines

CANCELLED = Path("data/cancelled.log")

OrderId = Annotated[str, Field(pattern=r"^A-\d{4}$", description="The order number, e.g. A-1001")]


class Order(BaseModel):
    """An order as a customer may see it."""

    id: str
    item: str
    status: str


@singleton
class Orders:
    """Stands for the shop's database: two orders, and a file with those that were cancelled."""

    def __init__(self) -> None:
        self.orders = [
            Order(id="A-1001", item="Trail backpack, 28 L", status="shipped"),
            Order(id="A-1002", item="Camping stove, 2 burners", status="not shipped yet"),
        ]

    def find(self, order_id: str) -> Order:
        """Return an order; the model is told when there is none."""
        for order in self.orders:
            if order.id == order_id:
                return order.model_copy(update={"status": "cancelled"}) if order_id in self._cancelled() else order
        raise ToolError(f"There is no order {order_id}.")

    def cancel(self, order_id: str, key: str) -> Order:
        """Cancel an order that is not shipped yet; the key tells which call did it."""
        with alone_with(CANCELLED):
            order = self.find(order_id)
            if order.status == "shipped":
                raise ToolError(f"Order {order_id} is shipped already, so it cannot be cancelled.")
            if order.status != "cancelled":
                add_line(CANCELLED, f"{order_id} key={key}")
            return self.find(order_id)

    def _cancelled(self) -> set[str]:
        return {line.split(" ")[0] for line in read_lines(CANCELLED)}


@singleton
class OrderTools:
    """Tools about orders; the shop's database comes by type."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    @tool(read_only=True)
    def lookup_order(self, order_id: OrderId) -> Order:
        """Look up an order: where it is, what was ordered, and whether it is shipped."""
        return self.orders.find(order_id)

    @tool(needs_approval=True)
    def cancel_order(self, order_id: OrderId, ctx: SyncToolContext) -> Order:
        """Cancel an order that is not shipped yet. A person has to approve it."""
        return self.orders.cancel(order_id, ctx.call_id)
