"""Refunds: money that must go out exactly once, whatever happens to this process."""

import asyncio
import hashlib
import os
from pathlib import Path

from pydantic import BaseModel

from amoxi_py import ToolContext, singleton, tool

from .files import add_line, alone_with, read_lines
from .orders import OrderId, Orders

LEDGER = Path("data/refunds.log")
RECEIPT_SECONDS = float(os.environ.get("RECEIPT_SECONDS", "4"))


class Refund(BaseModel):
    """What the customer is told."""

    refund_id: str
    emailed: bool


@singleton
class Payments:
    """Stands for a payment provider; like a real one it takes an idempotency key and pays once per key."""

    def refund(self, order_id: str, key: str) -> str:
        """Pay the money back and return the refund's id; the same key again returns the same refund."""
        with alone_with(LEDGER):
            for line in read_lines(LEDGER):
                if line.endswith(f" key={key}"):
                    return line.split(" ")[0]
            refund_id = "R-" + hashlib.sha256(key.encode()).hexdigest()[:8]
            add_line(LEDGER, f"{refund_id} {order_id} key={key}")
            return refund_id


@singleton
class RefundTools:
    """The tool that gives money back, in two recorded steps."""

    def __init__(self, payments: Payments, orders: Orders) -> None:
        self.payments = payments
        self.orders = orders

    @tool(idempotent=True)
    async def refund_order(self, order_id: OrderId, ctx: ToolContext) -> Refund:
        """Refund an order and email the customer a receipt."""
        self.orders.find(order_id)
        refund_id = await ctx.step("refund", self.payments.refund, order_id, ctx.call_id)
        ctx.progress("Refund done, sending the receipt...")
        await ctx.step("email", self.send_receipt, refund_id)
        return Refund(refund_id=refund_id, emailed=True)

    async def send_receipt(self, refund_id: str) -> None:
        """Send the receipt. A mail server takes a while; this is the moment to pull the plug."""
        await asyncio.sleep(RECEIPT_SECONDS)
