"""Renews a worker's lease on a connection of its own, so that nothing that this process writes can hold it up."""

from __future__ import annotations

import threading

import psycopg

from amoxi_py.errors import LeaseLost, StoreUnavailable
from amoxi_py.ports.store import WorkerKey
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.sql.times import millis_up

_PATIENCE = "2s"


class LeaseRenewal:
    """The connection, made when it is needed; all methods block."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._closed = False

    def renew(self, worker: WorkerKey, lease_s: float, now: int | None) -> None:
        """Extend a lease that has not expired at `now`, or by the database's clock."""
        with self._lock:
            if self._closed:
                raise StoreUnavailable(f"the store in {self._address} is not open")
            try:
                renewed = self._renew_again(worker, millis_up(lease_s), now)
            except (psycopg.Error, OSError) as error:
                self._drop()
                raise self._address.error(error) from error
        if not renewed:
            raise LeaseLost(worker.id)

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            self._closed = True
            self._drop()

    def _renew_again(self, worker: WorkerKey, lease: int, now: int | None) -> bool:
        """Renew, once more where the line was found to be lost."""
        try:
            return self._renew(worker, lease, now)
        except (psycopg.Error, OSError):
            if self._line is not None and self._address.fits(self._line):
                raise
            return self._renew(worker, lease, now)

    def _renew(self, worker: WorkerKey, lease: int, now: int | None) -> bool:
        line = self._line
        if line is None or not self._address.fits(line):
            self._drop()
            line = self._line = self._address.line()
        tx = self._address.transaction(line)
        with line.transaction():
            tx.run("begin_writing", patience=_PATIENCE)
            tx.run("lock_worker", key=worker.key)  # whether it has expired is asked after the wait
            return bool(tx.rows("renew_worker", key=worker.key, lease=lease, now=now))

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
