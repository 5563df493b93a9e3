"""Refunds: a customer asks, somebody with the role `staff` decides, and the money goes out once."""

import hashlib
import os
import threading
from pathlib import Path

from pydantic import BaseModel

from amoxi_py import ToolContext, ToolError, singleton, tool

from .orders import OrderId, Orders

LEDGER = Path("data/refunds.log")


class Refund(BaseModel):
    """What the customer is told."""

    refund_id: str
    cents: int


@singleton
class Payments:
    """Stands for a payment provider: it pays once per idempotency key, and an order once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def refund(self, order_id: str, cents: int, key: str) -> str | None:
        """Pay the money back and return the refund's id, or None when another key has paid for this order."""
        refund_id = "R-" + hashlib.sha256(key.encode()).hexdigest()[:8]
        with self.lock:
            for line in LEDGER.read_text("utf-8").splitlines() if LEDGER.exists() else ():
                if line.endswith(f" key={key}"):
                    return refund_id
                if line.split(" ")[1] == order_id:
                    return None
            LEDGER.parent.mkdir(parents=True, exist_ok=True)
            with LEDGER.open("a", encoding="utf-8") as ledger:
                ledger.write(f"{refund_id} {order_id} {cents} key={key}\n")
                ledger.flush()
                os.fsync(ledger.fileno())
        return refund_id


@singleton
class RefundTools:
    """The tool that gives money back."""

    def __init__(self, payments: Payments, orders: Orders) -> None:
        self.payments = payments
        self.orders = orders

    @tool(idempotent=True, needs_approval=True, approver="role:staff")
    async def refund_order(self, order_id: OrderId, ctx: ToolContext) -> Refund:
        """Refund an order. Our staff have to approve it."""
        order = self.orders.find(order_id, ctx.principal)
        refund_id = await ctx.step("refund", self.payments.refund, order.id, order.cents, ctx.call_id)
        if refund_id is None:
            raise ToolError(f"Order {order_id} was refunded before.")
        return Refund(refund_id=refund_id, cents=order.cents)
