"""The app of the crash tests: tools of every effect, with a ledger that is synced at the moment of each effect."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from evidence import table_of

from amoxi_py import Done, NotDone, RunEvent, ToolContext, Unknown, agent, on, singleton, tool
from amoxi_py.errors import InvalidRequest


class Ledger:
    """One line per effect: the call, what was done, the process."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.jsonl"

    def add(self, call_id: str, what: str) -> None:
        line = json.dumps({"call": call_id, "what": what, "pid": os.getpid()}) + "\n"
        file = os.open(self.path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        try:
            os.write(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]


@singleton
class ShopTools:
    """Every kind of tool."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool(read_only=True)
    async def lookup(self, order: str, ctx: ToolContext) -> dict[str, str]:
        """Look an order up.

        Args:
            order: Its number
        """
        self.ledger.add(ctx.call_id, "lookup")
        return {"order": order, "status": "shipped"}

    @tool(idempotent=True)
    async def refund(self, order: str, ctx: ToolContext) -> dict[str, str]:
        """Refund an order.

        Args:
            order: Its number
        """
        refund_id = await ctx.step("refund", self._effect, ctx.call_id, "refund-money")
        ctx.progress("sending the receipt")
        await ctx.step("mail", self._effect, ctx.call_id, "refund-mail")
        with suppress(InvalidRequest):  # the file store has no database to lend
            await ctx.transaction("book", self._book, ctx.call_id)
        receipt = await ctx.save_file("receipt.txt", b"receipt")
        return {"refund": refund_id, "order": order, "receipt": receipt.id}

    @tool
    async def charge(self, order: str, ctx: ToolContext) -> str:
        """Charge an order again; nobody may do that twice.

        Args:
            order: Its number
        """
        self.ledger.add(ctx.call_id, "charge")
        return "charged"

    @tool(needs_approval=True)
    async def cancel_order(self, order: str, ctx: ToolContext) -> str:
        """Cancel an order.

        Args:
            order: Its number
        """
        self.ledger.add(ctx.call_id, "cancel")
        return "cancelled"

    async def _look_for_ship(self, order: str, ctx: ToolContext) -> Done | NotDone | Unknown:
        done = any(line["call"] == ctx.call_id and line["what"] == "ship" for line in self.ledger.lines())
        return Done("shipped") if done else NotDone()

    @tool(reconcile="_look_for_ship")
    async def ship(self, order: str, ctx: ToolContext) -> str:
        """Ship an order; whether it was done can be looked up.

        Args:
            order: Its number
        """
        self.ledger.add(ctx.call_id, "ship")
        return "shipped"

    @tool(idempotent=True)
    async def deliver(self, order: str, ctx: ToolContext) -> str:
        """Deliver an order that is paid.

        Args:
            order: Its number
        """
        address = await ctx.ask("Which address?")
        await ctx.step("label", self._effect, ctx.call_id, "label")
        paid = await ctx.wait_for("paid")
        await ctx.sleep(0.001)
        self.ledger.add(ctx.call_id, "deliver")
        return f"to {address}, paid {paid}"

    @tool(idempotent=True)
    async def hang(self, order: str, ctx: ToolContext) -> str:
        """Wait until the run is cancelled.

        Args:
            order: Its number
        """
        await ctx.signal.wait()
        return "cancelled"

    async def _book(self, connection: Any, call_id: str) -> str:
        await connection.execute(f"INSERT INTO {table_of(Path.cwd())} VALUES (%s)", (call_id,))
        return call_id

    def _effect(self, call_id: str, what: str) -> str:
        self.ledger.add(call_id, what)
        return f"{what}:{call_id}"


@singleton
class PackingTools:
    """What is done below the run of the shop."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @tool(idempotent=True)
    async def pack(self, order: str, ctx: ToolContext) -> str:
        """Pack an order.

        Args:
            order: Its number
        """
        return await ctx.step("pack", self._pack, ctx.call_id)

    def _pack(self, call_id: str) -> str:
        self.ledger.add(call_id, "pack")
        return "packed"


@agent(tools=[PackingTools], expose=False)
class HelperAgent:
    """You pack."""


@agent(tools=[ShopTools], agents=[HelperAgent])
class ShopAgent:
    """You run a shop."""


@on("run.cancelled")
async def tell_of_cancelled(event: RunEvent, ledger: Ledger) -> None:
    """Take note that a run was cancelled."""
    ledger.add(event.run_id, "told")
