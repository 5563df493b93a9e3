"""The mail service: reminders go out once for each key, whoever asks again."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TextIO

from amoxi_py import singleton

LEDGER = Path("data/reminders.log")


@singleton
class Mail:
    """Stands for a mail provider; like a real one it takes an idempotency key, and remembers what it has sent.

    A reminder is a line of JSON: the day, the tenant, the invoice and the key, which is the id of a call.
    """

    def send_reminder(self, tenant: str, invoice_id: str, key: str) -> None:
        """Send a reminder; the same key again sends nothing."""
        with locked_ledger() as ledger:
            if any(sent["key"] == key for sent in map(json.loads, ledger)):
                return
            day = datetime.now(UTC).date().isoformat()
            ledger.write(json.dumps({"day": day, "tenant": tenant, "invoice": invoice_id, "key": key}) + "\n")
            ledger.flush()
            os.fsync(ledger.fileno())

    def last_reminders(self, tenant: str) -> dict[str, date]:
        """Return the day of the last reminder for each invoice of a tenant that had one."""
        with locked_ledger() as ledger:
            sent = [one for one in map(json.loads, ledger) if one["tenant"] == tenant]
        return {one["invoice"]: date.fromisoformat(one["day"]) for one in sent}


@contextmanager
def locked_ledger() -> Iterator[TextIO]:
    """Open the ledger for one thread of one process: a script that is started twice sends nothing twice."""
    LEDGER.parent.mkdir(parents=True, exist_ok=True)
    with LEDGER.open("a+", encoding="utf-8") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)  # given back when the file is closed, or the process ends
        ledger.seek(0)
        yield ledger
