"""Steps whose effect is in this database: an app's function works in a transaction that records its outcome as well.

The conversation is locked only when the function has returned, for the few statements of the record, so that it holds
up nobody while it works. Each try has a connection of its own, and there are never more of them than there are places.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import psycopg

from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.domain.tool_call import StepRecord
from amoxi_py.errors import InvalidRequest, LeaseLost, StoreUnavailable
from amoxi_py.ports.transactions import StepPlace, Work, WorkFailed
from amoxi_py.stores.postgres.connection import Address
from amoxi_py.stores.postgres.lent import AsyncLent, Lent, ThreadLent
from amoxi_py.stores.postgres.line import Line

log = logging.getLogger("amoxi_py.stores")

_TRIES = RetryPolicy(tries=5, first=0.02, longest=0.5, jitter=1.0)
_LOOK_AGAIN_S = 0.25
PATIENCE = "10s"
_UNDONE = frozenset({"40001", "40P01"})
"""Serialization failure and deadlock: nothing of it was done, and another try may fare better."""
_LOCKED = "55P03"
_READ_ONLY = "25006"

Read = Callable[[Callable[[Line], Any]], Awaitable[Any]]


class _Undone(Exception):
    """A try came to nothing by what happened beside it; `error` is what the database said."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(" ".join(str(error).split()))
        self.error = error


class _InDoubt(Exception):
    """The answer to a commit was lost."""


class TransactionSteps:
    """The places for such transactions.

    Args:
        address: Of the database.
        places: How many there may be at a time.
        read: Does something with one of the store's other connections.
        now: The time in the place of the database's, or None.
    """

    def __init__(self, address: Address, places: int, read: Read, now: Callable[[], int | None]) -> None:
        self._address = address
        self._places = asyncio.Semaphore(places)
        self._read = read
        self._now = now
        self._lent: set[Lent] = set()
        self._closed = False

    async def commit(self, place: StepPlace, work: Work, *, threaded: bool) -> StepRecord:
        """Do `TransactionStore.commit_step`."""
        failures = 0
        while True:
            try:
                async with self._places:
                    return await self._try(place, work, threaded)
            except _Undone as undone:
                failures += 1
                pause = retry_delay(_TRIES, failures, chance=random.random())  # noqa: S311 - spreads tries of many
                if pause is None:
                    raise WorkFailed(undone.error) from undone.error
                log.info("transaction %r of run %s is done again: %s", place.name, place.lease.run_id, undone)
            await asyncio.sleep(pause)

    async def close(self) -> None:
        """Begin no more, and cut off what goes on."""
        self._closed = True
        await asyncio.gather(*(lent.cut() for lent in tuple(self._lent)))

    async def _try(self, place: StepPlace, work: Work, threaded: bool) -> StepRecord:
        self._check_open()
        lent = (ThreadLent if threaded else AsyncLent)(self._address.conninfo, secrets.token_hex(8))
        self._lent.add(lent)
        try:
            await self._begin(lent)
            record = await _done(lent, work)
            await _look(lent)
            found = await self._record(lent, place, record)
            if found is not None:
                return found
            await _commit(lent)
        except _InDoubt as doubt:
            lost = doubt.__cause__ or doubt
        else:
            return record
        finally:
            self._lent.discard(lent)
            await lent.end()
        landed = await self._landed(place)
        if landed is None:
            raise _Undone(lost)
        return landed

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"the store in {self._address} is not open")

    async def _begin(self, lent: Lent) -> None:
        try:
            await lent.begin()
        except psycopg.InterfaceError as error:  # an event loop that the driver does not work on
            raise InvalidRequest(f"ctx.transaction cannot have a connection: {error}") from error
        except (psycopg.Error, OSError) as error:
            raise self._address.error(error) from error

    async def _record(self, lent: Lent, place: StepPlace, record: StepRecord) -> StepRecord | None:
        """Write the outcome under the conversation's lock; return another one that was recorded before, or None."""
        lease, statements = place.lease, self._address.statements
        where = {"run": lease.run, "turn": place.turn, "n": place.n, "name": place.name}
        proof = {"run": lease.run, "worker": lease.worker, "fence": lease.fence}
        what = {"value": record.value, "failed": record.failed, "now": self._now()}
        try:
            await lent.ask("RESET ROLE; SET LOCAL statement_timeout = 0")
            await lent.ask(statements["begin_writing"], {"patience": PATIENCE})
            await lent.ask(statements["lock_conversations"], {"keys": [lease.conversation]})
            # Only a later statement than the lock sees what others did until then.
            inserted, _ = await lent.ask(statements["commit_step"], {**where, **proof, **what})
            if inserted:
                return None
            leased, _ = await lent.ask(statements["leased_run"], proof)
            if not leased:
                raise LeaseLost(lease.run_id)
            ((value, failed),), _ = await lent.ask(statements["recorded_step"], where)
            return StepRecord(name=place.name, value=value, failed=failed)
        except psycopg.Error as error:
            if lent.lost or error.sqlstate in _UNDONE or error.sqlstate == _LOCKED:
                raise _Undone(error) from error
            if error.sqlstate == _READ_ONLY:
                raise WorkFailed(error) from error
            raise self._address.error(error) from error

    async def _landed(self, place: StepPlace) -> StepRecord | None:
        """Return what is recorded when the commit whose answer was lost has ended, one way or the other."""
        while True:
            self._check_open()
            try:
                found: StepRecord | None = await self._read(partial(_find, self._address, place))
                return found
            except StoreUnavailable as error:
                log.warning("whether transaction %r was committed is looked for again: %s", place.name, error)
            await asyncio.sleep(_LOOK_AGAIN_S)


async def _done(lent: Lent, work: Work) -> StepRecord:
    try:
        return await work(lent.connection)
    except WorkFailed as failed:
        if lent.lost or _sqlstate(failed.error) in _UNDONE:
            raise _Undone(failed.error) from failed
        raise


async def _look(lent: Lent) -> None:
    """Find out whether the transaction is there as it was begun, and what it put off for the end."""
    try:
        await lent.look()
        await lent.ask("SET CONSTRAINTS ALL IMMEDIATE")
    except (psycopg.Error, RuntimeError) as error:
        if lent.lost or _sqlstate(error) in _UNDONE:
            raise _Undone(error) from error
        raise WorkFailed(error) from error


async def _commit(lent: Lent) -> None:
    try:
        _, said = await lent.ask("COMMIT")
    except psycopg.Error as error:
        if lent.lost:
            raise _InDoubt from error
        if _sqlstate(error) in _UNDONE:
            raise _Undone(error) from error
        raise WorkFailed(error) from error
    if said != "COMMIT":
        raise WorkFailed(RuntimeError(f"the database answered {said!r} to the commit"))


def _find(address: Address, place: StepPlace, line: Line) -> StepRecord | None:
    lease = place.lease
    tx = address.transaction(line)
    with line.transaction():
        tx.run("begin_writing", patience=PATIENCE)
        tx.run("lock_conversations", keys=[lease.conversation])
        rows = tx.rows("recorded_step", run=lease.run, turn=place.turn, n=place.n, name=place.name)
        leased = tx.rows("leased_run", run=lease.run, worker=lease.worker, fence=lease.fence)
    if rows:
        ((value, failed),) = rows
        return StepRecord(name=place.name, value=value, failed=failed)
    if not leased:
        raise LeaseLost(lease.run_id)
    return None


def _sqlstate(error: BaseException | None) -> str | None:
    """Return the database's code of an error, or of what it was made of, as object mappers wrap them."""
    for _ in range(8):
        if error is None:
            break
        code = getattr(error, "sqlstate", None)
        if isinstance(code, str):
            return code
        error = error.__cause__ or error.__context__
    return None
