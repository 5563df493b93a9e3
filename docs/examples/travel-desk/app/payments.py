"""The payment provider: invoices that are open, closed or paid.

    TRAVEL_WEBHOOK_SECRET=... python -m app.payments P-1 http://localhost:8080/webhooks/payments

plays the person who pays, and then the provider, which tells the app.
"""

import json
import os
import sys
import urllib.request
from pathlib import Path

from amoxi_py import singleton

from .ledger import open_ledger
from .signature import SIGNATURE, sign

INVOICES = Path("data/invoices.log")


@singleton
class Payments:
    """Stands for a payment provider. An invoice is paid or closed, never both."""

    def open(self, hold: str, run_id: str, cents: int) -> str:
        """Open the invoice of a hold and return its number; it is opened once.

        The run's id goes along, as such providers let it: the provider tells it again when the invoice is paid.
        """
        invoice = f"P-{hold.removeprefix('H-')}"
        line = f"open {invoice} {hold} {run_id} {cents}"
        with open_ledger(INVOICES) as (lines, ledger):
            if line not in lines:
                ledger.write(f"{line}\n")
        return invoice

    def close(self, invoice: str) -> bool:
        """Let nobody pay any more; False when it is paid already."""
        with open_ledger(INVOICES) as (lines, ledger):
            if f"paid {invoice}" in lines:
                return False
            if f"closed {invoice}" not in lines:
                ledger.write(f"closed {invoice}\n")
            return True

    def pay(self, invoice: str) -> dict[str, str | int]:
        """Pay an invoice, as the person does, and return what the app is told of it."""
        with open_ledger(INVOICES) as (lines, ledger):
            if f"closed {invoice}" in lines:
                raise ValueError(f"{invoice} is closed")
            _, _, hold, run_id, cents = next(line for line in lines if line.startswith(f"open {invoice} ")).split(" ")
            if f"paid {invoice}" not in lines:
                ledger.write(f"paid {invoice}\n")
        return {"id": f"evt-{invoice}", "invoice": invoice, "hold": hold, "run_id": run_id, "cents": int(cents)}


if __name__ == "__main__":
    body = json.dumps(Payments().pay(sys.argv[1])).encode()
    headers = {"content-type": "application/json", SIGNATURE: sign(body, os.environ["TRAVEL_WEBHOOK_SECRET"])}
    request = urllib.request.Request(sys.argv[2], body, headers)  # noqa: S310 - the address of one's own app
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        sys.stdout.buffer.write(answer.read() + b"\n")
