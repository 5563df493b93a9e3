"""The mail service: reminders go out once for each key, whoever asks again."""

import os
import threading
from datetime import UTC, date, datetime
from pathlib import Path

from amoxi_py import singleton

LEDGER = Path("data/reminders.log")


@singleton
class Mail:
    """Stands for a mail provider; like a real one it takes an idempotency key, and remembers what it has sent.

    A reminder is a line `<day> <tenant> <invoice> key=<call id>`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def send_reminder(self, tenant: str, invoice_id: str, key: str) -> None:
        """Send a reminder; the same key again sends nothing."""
        with self.lock:
            if any(line.endswith(f" key={key}") for line in self._lines()):
                return
            LEDGER.parent.mkdir(parents=True, exist_ok=True)
            with LEDGER.open("a", encoding="utf-8") as ledger:
                ledger.write(f"{datetime.now(UTC).date()} {tenant} {invoice_id} key={key}\n")
                ledger.flush()
                os.fsync(ledger.fileno())

    def last_reminders(self, tenant: str) -> dict[str, date]:
        """Return the day of the last reminder for each invoice of a tenant that had one."""
        with self.lock:
            sent = [line.split(" ") for line in self._lines() if f" {tenant} " in line]
        return {invoice: date.fromisoformat(day) for day, owner, invoice, _ in sent if owner == tenant}

    def _lines(self) -> list[str]:
        return LEDGER.read_text("utf-8").splitlines() if LEDGER.exists() else []
