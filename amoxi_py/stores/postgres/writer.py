"""Makes verbs durable in PostgreSQL: a transaction locks all its conversations in the order of their keys, then reads.

What a verb reads in order to change it, it reads by a later statement than the lock: in one statement, a worker that
lost its lease while it waited for the lock would still see itself as the owner. A transaction of writes alone is two
round trips: locks and fences, then rows and the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psycopg
from msgspec import Struct

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.limits import Limits
from amoxi_py.errors import StoreUnavailable
from amoxi_py.ports.changes import Change
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import Submission
from amoxi_py.stores.postgres.clock import DatabaseClock
from amoxi_py.stores.postgres.connection import Address, lock_number
from amoxi_py.stores.postgres.line import Line
from amoxi_py.stores.postgres.transaction import PostgresTransaction
from amoxi_py.stores.sql.admission import name_of_limits
from amoxi_py.stores.sql.batch import Batch, LeaseTime
from amoxi_py.stores.sql.log import read_events
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.submit import key_scope, places_of
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.verb import Answer, Touches, Verb, perform
from amoxi_py.stores.sql.writer import Deliver, VerbWriter


class News(Struct, frozen=True):
    """What a transaction added to a conversation's log: numbers from `first` to `last`, and their types as bits."""

    conversation: int
    first: int
    last: int
    types: int


_PATIENCE_TOGETHER = "1s"
_PATIENCE_ALONE = "4s"  # longer than a frozen client keeps its locks
_NO_PATIENCE = "50ms"
_HELD_UP_S = 5.0
_DOUBT_S = 30.0
_BAD_DATA = "22"

Ring = Callable[[Sequence[News], bool], None]
"""Tells other processes what was committed, and whether a run may be claimable that was not before."""


class Unreachable(StoreUnavailable):
    """No connection can be made now."""


class PostgresWriter(VerbWriter):
    """The writer on a connection of its own, made anew when it is lost.

    `ring` tells other processes of each commit; `made_due` this one of runs that have become due without an event.
    """

    def __init__(
        self,
        address: Address,
        clock: Clock,
        database_clock: DatabaseClock,
        deliver: Deliver,
        ring: Ring,
        made_due: Callable[[], None],
        limits: Limits,
    ) -> None:
        super().__init__(deliver)
        self._limits = limits
        self._address = address
        self._clock = None if clock is database_clock else clock
        self._database_clock = database_clock
        self._ring = ring
        self._made_due = made_due
        self._line: Line | None = None
        self._doubtful: list[News] = []  # what a commit added, or did not: its answer was lost
        self._doubtful_until: float | None = None
        self._held_up: dict[int, float] = {}  # conversations that somebody keeps locked, and until when

    def connect(self) -> None:
        """Connect now; raise what stands in the way."""
        if self._line is None or not self._address.fits(self._line):
            self._drop()
            self._line = self._address.line()

    def _transact(self, verbs: list[Verb]) -> list[Answer]:
        try:
            self.connect()
        except (psycopg.Error, OSError) as error:
            raise Unreachable(str(self._address.error(error))) from error
        line = self._line
        assert line is not None
        if self._doubtful:
            self._read_back(line)
        tx = self._address.transaction(line)
        batch: Batch | None = None
        try:
            with line.transaction():
                now = self._begin(tx, verbs)
                batch = Batch(tx, now, LeaseTime(now), self._limits)
                answers = perform(batch, verbs)
        except BaseException:
            if batch is not None:
                self._doubtful.extend(_news(batch.told))
            raise
        self.commits += 1
        self._told.extend(batch.told)
        self.measures.committed(batch.told)
        news = _news(batch.told)
        due = tx.made_due
        if due:
            self._made_due()
        if news or due:
            self._ring(news, due or _makes_due(batch.told))
        return answers

    def _begin(self, tx: PostgresTransaction, verbs: Sequence[Verb]) -> int:
        """Take all locks, ask for what is read first, and return the time of the transaction."""
        tx.run("begin_writing", patience=self._patience(verbs))
        locks = _Locks(self._limits)
        for verb in verbs:
            locks.add(verb)
        locks.take(tx, self._address.schema)
        tx.ask("now")
        if all(isinstance(verb, Change) or _is_new(verb) for verb in verbs):  # nothing else is done before these
            _ask_ahead(tx, verbs)
        now: int = tx.rows("now")[0][0]
        self._database_clock.follow(now)
        if self._clock is not None:
            now = millis(self._clock.now())
        for worker in {verb.claim_by.key for verb in verbs if isinstance(verb, Submission) and verb.claim_by}:
            tx.ask("living_worker", key=worker, lease_now=now, boot=None)  # answered with the next rows
        return now

    def _read_back(self, line: Line) -> None:
        """Tell what landed although the answer to its commit was lost."""
        tx = self._address.transaction(line)
        ranges = [(one.conversation, one.first, one.last) for one in self._doubtful]
        with line.transaction():
            tx.run("begin_writing", patience=_PATIENCE_ALONE)
            tx.run("lock_conversations", keys=[conversation for conversation, _, _ in ranges])
            landed = read_events(tx, tx.rows("events_between", rows=json_rows(ranges), types=None))
        found = {event.conversation for event in landed}
        still = [one for one in self._doubtful if one.first == 1 and one.conversation not in found]
        if still and self._doubtful_until is None:  # a new conversation cannot be locked before it is there
            self._doubtful_until = time.monotonic() + _DOUBT_S
        if not still or (self._doubtful_until is not None and time.monotonic() > self._doubtful_until):
            still, self._doubtful_until = [], None
        self._doubtful = still
        self._told.extend(landed)
        self.measures.committed(landed)
        if landed:
            self._ring(_news(landed), True)

    def _patience(self, verbs: Sequence[Verb]) -> str:
        """How long to wait for locks: others wait behind this, so all of a batch less than one alone."""
        if len(verbs) > 1:
            return _PATIENCE_TOGETHER
        held_up = self._held_up.get(_conversation_of(verbs[0]), 0.0) > time.monotonic()
        return _NO_PATIENCE if held_up else _PATIENCE_ALONE

    def _transact_alone(self, verb: Verb) -> list[Answer]:
        try:
            return self._transact([verb])
        except psycopg.errors.LockNotAvailable:
            now = time.monotonic()
            self._held_up = {one: until for one, until in self._held_up.items() if until > now}
            self._held_up[_conversation_of(verb)] = now + _HELD_UP_S
            raise

    def _failure(self, error: Exception) -> Exception:
        if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith(_BAD_DATA):
            return error  # a mistake, and sending it again would not help
        if isinstance(error, psycopg.Error | OSError):
            return self._address.error(error)
        return error

    def _worth_trying_alone(self, failure: Exception) -> bool:
        return not isinstance(failure, Unreachable)

    def _idle(self) -> None:
        """Nothing: others tell by their bell."""

    def _drop(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()

    def _close(self) -> None:
        self._drop()


class _Locks:
    """What the verbs of a transaction lock, in one order for all processes: names first, then conversations."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._names: set[str] = set()
        self._keys: set[int] = set()
        self._ids: set[str] = set()
        self._runs: set[str] = set()
        self._workers: set[int] = set()

    def add(self, verb: Verb) -> None:
        """Take note of what a verb writes to."""
        if isinstance(verb, Change):
            self._keys.add(verb.lease.conversation)
        elif isinstance(verb, Submission):
            if not verb.new_conversation:
                self._ids.add(verb.conversation_id)
            if verb.begins:  # before it is there, its name is all that can be locked
                self._names.add("\0".join(("conversation", verb.conversation_id)))
            if self._limits.of_principals:
                self._names.add(name_of_limits(verb.principal.owner_key))
            if verb.idempotency_key is not None:
                self._names.add("\0".join(("key", verb.principal.owner_key, key_scope(verb), verb.idempotency_key)))
        else:
            self._add(verb.touches)

    def _add(self, touches: Touches) -> None:
        self._names.update(touches.names)
        self._keys.update(touches.conversations)
        self._ids.update(touches.conversation_ids)
        self._runs.update(touches.run_ids)
        if touches.worker is not None:
            self._workers.add(touches.worker)

    def take(self, tx: PostgresTransaction, schema: str) -> None:
        """Lock; nothing is waited for yet."""
        if self._names:
            tx.run("lock_names", names=sorted(lock_number(schema, name) for name in self._names))
        if self._ids or self._runs or self._workers:
            tx.run(
                "lock_conversations_of",
                keys=list(self._keys),
                ids=list(self._ids),
                runs=list(self._runs),
                workers=list(self._workers),
            )
        elif self._keys:
            tx.run("lock_conversations", keys=list(self._keys))


def _conversation_of(verb: Verb) -> int:
    """Return the conversation that a verb says it writes to, by its key; -1 when it has another name for it."""
    if isinstance(verb, Change):
        return verb.lease.conversation
    return -1 if isinstance(verb, Submission) or not verb.touches.conversations else verb.touches.conversations[0]


def _is_new(verb: Verb) -> bool:
    return isinstance(verb, Submission) and verb.new_conversation


def _ask_ahead(tx: PostgresTransaction, verbs: Sequence[Verb]) -> None:
    """Send the first reads of the transaction with its locks."""
    submissions = [verb for verb in verbs if isinstance(verb, Submission)]
    if submissions:
        tx.ask("known_submissions", rows=places_of(submissions))
    runs = dict.fromkeys(verb.lease.run for verb in verbs if isinstance(verb, Change))
    if runs:
        tx.ask("runs_to_change", rows=json_rows(runs))


def _news(events: Sequence[Event]) -> list[News]:
    found: dict[int, tuple[int, int, int]] = {}
    for event in events:
        bit = 1 << event.type
        known = found.get(event.conversation)
        if known is None:
            found[event.conversation] = (event.seq, event.seq, bit)
        else:
            found[event.conversation] = (known[0], event.seq, known[2] | bit)
    return [News(conversation, *range_) for conversation, range_ in found.items()]


def _makes_due(events: Sequence[Event]) -> bool:
    queued: set[int] = set()
    for event in events:
        if event.type is EventType.RUN_QUEUED:
            queued.add(event.run)
        elif event.type is EventType.RUN_STARTED:
            queued.discard(event.run)
    return bool(queued)
