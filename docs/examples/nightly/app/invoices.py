"""Invoices of all tenants in one table, and the two tools, which see those of the run's tenant alone."""

import csv
from datetime import date
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, ValidationError

from amoxi_py import SyncToolContext, ToolError, singleton, tool

from .mail import Mail

INVOICES = Path("invoices.csv")


class Invoice(BaseModel):
    """An invoice that is not paid yet."""

    id: str
    customer: str
    amount: Decimal
    due: date
    reminded_on: date | None


@singleton
class Invoices:
    """Stands for the database of the books, as it was when the process started."""

    def __init__(self, mail: Mail) -> None:
        self.mail = mail
        self.rows: dict[str, list[dict[str, str]]] = {}
        with INVOICES.open(encoding="utf-8", newline="") as table:
            for row in csv.DictReader(table):
                self.rows.setdefault(row["tenant"], []).append(row)

    def of(self, tenant: str) -> list[Invoice]:
        """Return the open invoices of a tenant; a row that is no invoice is told, and nothing is left out."""
        rows = self.rows.get(tenant, [])
        reminded = self.mail.last_reminders(tenant)
        try:
            return [Invoice(id=row["invoice"], reminded_on=reminded.get(row["invoice"]), **row) for row in rows]
        except ValidationError as error:
            wrong = "; ".join(f"{one['loc'][0]} {one['input']!r}: {one['msg']}" for one in error.errors())
            raise ToolError(f"An invoice of {tenant} is wrong: {wrong}") from error


@singleton
class InvoiceTools:
    """The tools; whose invoices it is about is never an argument, so no model can mix it up."""

    def __init__(self, invoices: Invoices, mail: Mail) -> None:
        self.invoices = invoices
        self.mail = mail

    @tool(read_only=True)
    def list_open_invoices(self, ctx: SyncToolContext) -> list[Invoice]:
        """List the invoices that are not paid yet, and when a reminder went out last."""
        return self.invoices.of(_tenant(ctx))

    @tool(idempotent=True, retries=2)
    def send_reminder(self, invoice_id: str, ctx: SyncToolContext) -> str:
        """Send the customer a reminder of an invoice.

        Args:
            invoice_id: The number of an open invoice
        """
        tenant = _tenant(ctx)
        invoice = next((one for one in self.invoices.of(tenant) if one.id == invoice_id), None)
        if invoice is None:
            raise ToolError(f"There is no open invoice {invoice_id}.")
        self.mail.send_reminder(tenant, invoice.id, key=ctx.call_id)
        return f"{invoice.customer} is reminded of {invoice.amount}."


def _tenant(ctx: SyncToolContext) -> str:
    if ctx.principal.tenant is None:
        raise ToolError("The books are kept by tenant, and this run has none.")
    return ctx.principal.tenant
