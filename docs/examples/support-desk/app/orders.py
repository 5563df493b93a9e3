"""Orders; everybody sees their own, and another's is not there."""

from typing import Annotated

from pydantic import BaseModel, Field

from amoxi_py import Principal, SyncToolContext, ToolError, singleton, tool

OrderId = Annotated[str, Field(pattern=r"^A-\d{4}$", description="The order number, e.g. A-1001")]


class Order(BaseModel):
    """An order as its customer may see it."""

    id: str
    item: str
    cents: int


@singleton
class Orders:
    """Stands for the shop's database: each order with the principal whose it is."""

    def __init__(self) -> None:
        self.rows = {
            "A-1001": ("user:ann", Order(id="A-1001", item="Trail backpack, 28 L", cents=8900)),
            "A-1002": ("user:bob", Order(id="A-1002", item="Camping stove, 2 burners", cents=5400)),
        }

    def find(self, order_id: str, customer: Principal) -> Order:
        """Return an order of this customer."""
        owner, order = self.rows.get(order_id, (None, None))
        if order is None or owner != customer.id:
            raise ToolError(f"You have no order {order_id}.")
        return order


@singleton
class OrderTools:
    """Tools about orders."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders

    @tool(read_only=True)
    def lookup_order(self, order_id: OrderId, ctx: SyncToolContext) -> Order:
        """Look up an order: what was ordered, and what it cost."""
        return self.orders.find(order_id, ctx.principal)
