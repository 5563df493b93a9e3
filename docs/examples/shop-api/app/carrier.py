"""The carrier that brings the parcels, here a file; a real one is asked over HTTP, and takes a key in the same way."""

import asyncio
import fcntl
from pathlib import Path

from amoxi_py import singleton

LEDGER = Path("data/carrier.log")
ON_THE_ROAD = ("A-1002",)


class Refused(Exception):
    """The carrier does not do it."""


@singleton
class Carrier:
    """Takes new addresses of parcels; the same key again is the same request."""

    async def redirect(self, order_id: str, address: str, key: str) -> None:
        """Bring the order's parcel to another address."""
        if order_id in ON_THE_ROAD:
            raise Refused(f"The parcel of {order_id} is on the road, and its address is fixed.")
        await asyncio.to_thread(_note, key, f"{order_id} {address}")


def _note(key: str, what: str) -> None:
    LEDGER.parent.mkdir(parents=True, exist_ok=True)
    with LEDGER.open("a+", encoding="utf-8") as ledger:
        fcntl.flock(ledger, fcntl.LOCK_EX)  # given back when the file is closed, or the process ends
        ledger.seek(0)
        if not any(line.startswith(f"{key} ") for line in ledger):
            ledger.write(f"{key} {what}\n")
