"""What is admitted: the gate looks at all that is in flight, the limits at what one principal asks for and uses.

A transaction looks once, for all of its submissions, and counts on from there. What a principal has asked for and used
is added to one row of it at the end of the transaction, for all principals in one order, so that two servers never
wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from amoxi_py.domain.budget import BILLION
from amoxi_py.domain.limits import BUSY, DAILY_BUDGET_USED, TOO_MANY_REQUESTS, TOO_MANY_RUNS
from amoxi_py.errors import TooMany
from amoxi_py.ports.store import Submission
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.transaction import Transaction

MINUTE_MS = 60 * 1000
DAY_MS = 24 * 3600 * 1000
SOON_S = 1.0
"""When to come again for what may be over at any moment."""
LATEST_S = 3600.0
"""And for what is over at the end of the day, at most: somebody may raise the limit."""
FEW_PLACES = 512
"""How many free places are so few that transactions which take some of them go one after the other."""
_SWEPT_AT_ONCE = 500


class _Standing(Struct):
    """What counts for a principal now, with what this transaction has added."""

    in_flight: int = 0
    requests: int = 0
    runs: int = 0
    tokens: int = 0
    cost: int = 0


class Admission:
    """Says which submissions of one transaction are taken: first `refusal`, then `take` for one that is stored."""

    def __init__(self, batch: Batch, principals: Iterable[str], *, runs: bool = True) -> None:
        self._batch = batch
        self._limits = batch.limits
        gate = self._limits.in_flight if runs else 0
        self._free = _free_places(batch.tx, gate) if gate else None
        self._standings = _standings(batch, principals) if self._limits.of_principals else {}

    def refusal(self, principal: str, *, run: bool = True, replaces: bool = False) -> TooMany | None:
        """Return why a principal (its `owner_key`) gets nothing now, or None.

        Without `run` it asks for none; one that `replaces` a run in flight makes no more of them.
        """
        if run and self._free is not None and self._free <= 0:
            message = "the server is busy with as many runs as it takes at once; come again in a moment"
            return TooMany(message, code=BUSY, retry_after=SOON_S)
        standing = self._standings.get(principal)
        if standing is None:
            return None
        limits, now = self._limits, self._batch.now
        if limits.requests_per_minute and standing.requests >= limits.requests_per_minute:
            message = f"you have asked as often as you may in this minute ({limits.requests_per_minute} times)"
            return TooMany(message, code=TOO_MANY_REQUESTS, retry_after=_rest(now, MINUTE_MS))
        if not run:
            return None
        if limits.runs_at_once and standing.in_flight >= limits.runs_at_once and not replaces:
            message = (
                f"you have as many runs queued or running as you may at once ({limits.runs_at_once}); "
                "wait until one has ended, or cancel one"
            )
            return TooMany(message, code=TOO_MANY_RUNS, retry_after=SOON_S)
        used = self._used(standing)
        if used is not None:
            message = f"you have used today's budget of {used}; the next day begins at 00:00 UTC"
            return TooMany(message, code=DAILY_BUDGET_USED, retry_after=min(_rest(now, DAY_MS), LATEST_S))
        return None

    def take(self, principal: str, *, run: bool = True, replaces: bool = False) -> None:
        """Count what is stored for a principal; the arguments are those of `refusal`."""
        if run and self._free is not None:
            self._free -= 1
        standing = self._standings.get(principal)
        if standing is not None:
            standing.in_flight += run and not replaces
            standing.runs += run
            standing.requests += 1
        if self._limits.count_requests:
            self._batch.asked.append((principal, int(run)))

    def _used(self, standing: _Standing) -> str | None:
        limits = self._limits
        if limits.runs_per_day and standing.runs >= limits.runs_per_day:
            return "1 run" if limits.runs_per_day == 1 else f"{limits.runs_per_day} runs"
        if limits.tokens_per_day and standing.tokens >= limits.tokens_per_day:
            return f"{limits.tokens_per_day} tokens"
        if limits.cost_per_day and standing.cost >= limits.cost_per_day:
            return f"{limits.cost_per_day / BILLION:g} US dollars"
        return None


def admission_of(batch: Batch, submissions: Sequence[Submission]) -> Admission:
    """Look at all that bears on these submissions."""
    return Admission(batch, {one.principal.owner_key for one in submissions})


def name_of_limits(principal: str) -> str:
    """Return what a verb names that looks at a principal's limits, so that two servers do not do so at once."""
    return f"limits\0{principal}"


def count_request(batch: Batch, principal: str) -> None:
    """Count something that a principal asks for and that is no run; raise `TooMany`."""
    admission = Admission(batch, [principal], runs=False)
    refusal = admission.refusal(principal, run=False)
    if refusal is not None:
        raise refusal
    admission.take(principal, run=False)


def store_used(batch: Batch) -> None:
    """Add what was asked for and used to the rows of the principals: last of all, because these are locked then."""
    batch.read_usage()
    added: dict[str, list[int]] = {}
    for principal, run in batch.asked:
        row = added.setdefault(principal, [0, 0, 0, 0])
        row[0] += 1
        row[1] += run
    for principal, tokens, cost in batch.used:
        row = added.setdefault(principal, [0, 0, 0, 0])
        row[2] += tokens
        row[3] += cost
    if added:
        when = (batch.now // MINUTE_MS, batch.now // DAY_MS)
        batch.tx.run_all("add_used", [(principal, *when, *added[principal]) for principal in sorted(added)])
    if batch.sweeps_usage:  # after these: it waits for no row, and who has swept one would wait for theirs
        batch.tx.run("sweep_usage", day=batch.now // DAY_MS, limit=_SWEPT_AT_ONCE)


def has_old_usage(tx: Transaction, now: int) -> bool:
    """Whether there are rows of days that are over."""
    return bool(tx.rows("old_usage", day=now // DAY_MS))


def sweep_usage(batch: Batch) -> None:
    """Let `store_used` remove some rows of days that are over."""
    batch.sweeps_usage = True


def _free_places(tx: Transaction, limit: int) -> int:
    """Count no further than the limit. Where others write meanwhile, the last places are given by one at a time."""
    if tx.concurrent and limit > FEW_PLACES:
        free = limit - _in_flight(tx, limit)
        if not 0 < free <= FEW_PLACES:
            return free
    if tx.concurrent:
        tx.run("lock_gate")
    return limit - _in_flight(tx, limit)


def _in_flight(tx: Transaction, limit: int) -> int:
    count: int = tx.rows("count_in_flight", limit=limit)[0][0]
    return count


def _standings(batch: Batch, principals: Iterable[str]) -> dict[str, _Standing]:
    rows = batch.tx.rows(
        "standings",
        rows=json_rows(sorted(set(principals))),
        limit=batch.limits.runs_at_once,
        minute=batch.now // MINUTE_MS,
        day=batch.now // DAY_MS,
    )
    found = {
        principal: _Standing(in_flight=in_flight, requests=requests, runs=runs, tokens=tokens, cost=cost)
        for principal, in_flight, requests, runs, tokens, cost in rows
    }
    for principal, run in batch.asked:  # of this transaction, and not in a row yet
        if principal in found:
            found[principal].requests += 1
            found[principal].runs += run
    return found


def _rest(now: int, period: int) -> float:
    """Return the seconds until a period ends."""
    return (period - now % period) / 1000
