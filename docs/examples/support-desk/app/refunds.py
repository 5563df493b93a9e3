"""Refunds: a customer asks, somebody with the role `staff` decides, and the money goes out once."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

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

    def refund(self, order_id: str, cents: int, key: str) -> str:
        """Pay the money back and return the refund's id; the model is told when another key has paid for this order."""
        refund_id = "R-" + hashlib.sha256(key.encode()).hexdigest()[:8]
        with locked_ledger() as ledger:
            for line in ledger:
                if line.endswith(f" key={key}\n"):
                    return refund_id
                if line.split(" ")[1] == order_id:
                    raise ToolError(f"Order {order_id} was refunded before.")
            ledger.write(f"{refund_id} {order_id} {cents} key={key}\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        return refund_id


@contextmanager
def locked_ledger() -> Iterator[TextIO]:
    """Open the ledger for one thread of one process: `amoxi start` runs several, which may pay at the same time."""
    LEDGER.parent.mkdir(parents=True, exist_ok=True)
    with LEDGER.open("a+", encoding="utf-8") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)  # given back when the file is closed, or the process ends
        ledger.seek(0)
        yield ledger


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
        return Refund(refund_id=refund_id, cents=order.cents)
