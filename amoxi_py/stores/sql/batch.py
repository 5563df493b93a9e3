"""The work of one transaction: one clock, the numbers of each conversation's log, and rows that go in together.

Messages and events are held back and stored by one statement each; whoever reads rows of a run calls `flush` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.limits import NO_LIMITS, Limits
from amoxi_py.domain.message import Message
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.transaction import Transaction


class LeaseTime(Struct, frozen=True):
    """The time that leases are counted in: milliseconds of a clock, and the boot that the clock belongs to."""

    now: int
    boot: str | None = None


class Batch:
    """Everything that one transaction does.

    Attributes:
        tx: Its statements.
        now: The time in milliseconds since 1970, the same for all of the batch.
        lease: The time for leases.
        told: The events so far, for the listener, once the transaction is durable.
        streamed: Runs of which pieces of a reply were logged in it: nobody may look for these in the rows alone.
        limits: What is admitted.
        asked: By what principals (`owner_key`) something was asked for in it, and whether it was a run (1) or not (0).
        ended: Runs that ended in it, of which nobody has read yet what they have used.
        used: What runs that ended in it have used: principal, tokens, cost.
        sweeps_usage: Whether it also removes some of what was counted on days that are over.
    """

    def __init__(self, tx: Transaction, now: int, lease: LeaseTime, limits: Limits = NO_LIMITS) -> None:
        self.tx = tx
        self.now = now
        self.lease = lease
        self.told: list[Event] = []
        self.streamed: set[int] = set()
        self.limits = limits
        self.asked: list[tuple[str, int]] = []
        self.ended: list[int] = []
        self.used: list[tuple[Any, ...]] = []
        self.sweeps_usage = False
        self._last_seqs: dict[int, int] = {}
        self._logged: set[int] = set()
        self._messages: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._living: dict[int, bool] = {}

    def knows_last_seq(self, conversation: int, last_seq: int) -> None:
        """Take note of a conversation's last number, as it is stored; its own count of this batch goes before it."""
        self._last_seqs.setdefault(conversation, last_seq)

    def last_seq(self, conversation: int) -> int:
        """Return the last number given out in a conversation that `knows_last_seq` was called for."""
        return self._last_seqs[conversation]

    def log(
        self,
        type: EventType,
        *,
        conversation: int,
        run: int,
        run_id: str,
        turn: int | None = None,
        n: int | None = None,
        data: str | None = None,
        told_data: Mapping[str, Any] | None = None,
        subject: Message | ToolCall | None = None,
        hidden: bool = False,
        source: int | None = None,
    ) -> int:
        """Add an event to a conversation's log and return its number.

        `data` is stored; `told_data` is what readers are told instead, when other rows hold it. `hidden` and `source`
        are as in `Event`.
        """
        seq = self._last_seqs[conversation] + 1
        self._last_seqs[conversation] = seq
        self._logged.add(conversation)
        self._events.append((conversation, seq, run, int(type), turn, n, data, int(hidden) or None, source))
        if type is EventType.MESSAGE_DELTA:
            self.streamed.add(run)
        self.told.append(
            Event(
                conversation=conversation,
                seq=seq,
                run=run,
                run_id=run_id,
                type=type,
                stored=data if told_data is None else told_data,
                subject=subject,
                source=source,
                hidden=hidden,
            )
        )
        return seq

    def note_end(self, run: int) -> None:
        """Take note of a run that has ended, if it counts what it has used."""
        if self.limits.count_usage:
            self.ended.append(run)

    def read_usage(self) -> None:
        """Read what the runs have used that have ended; also to be called before their rows go."""
        if self.ended:
            ended, self.ended = self.ended, []
            self.used.extend(self.tx.rows("usage_of_runs", rows=json_rows(ended)))

    def add_message(self, run: int, message: tuple[Any, ...]) -> None:
        """Store a message: turn, id, text, status, files as JSON, milliseconds, what its model wants back."""
        self._messages.append((run, *message))

    def worker_lives(self, worker: int) -> bool:
        """Whether a worker's lease is current."""
        lives = self._living.get(worker)
        if lives is None:
            rows = self.tx.rows("living_worker", key=worker, lease_now=self.lease.now, boot=self.lease.boot)
            lives = self._living[worker] = bool(rows)
        return lives

    def forget_workers(self) -> None:
        """Look anew at the next question: workers changed in this batch."""
        self._living.clear()

    def forget_conversation(self, conversation: int) -> None:
        """Give no more numbers in a conversation that is deleted."""
        self._last_seqs.pop(conversation, None)
        self._logged.discard(conversation)

    def flush(self) -> None:
        """Store what was held back."""
        if self._messages:
            self.tx.run_all("insert_messages", self._messages)
            self._messages.clear()
        if self._events:
            self.tx.run_all("insert_events", self._events)
            self._events.clear()

    def finish(self) -> None:
        """Store all that is left; nothing may be added after it."""
        self.flush()
        if self._logged:
            last_seqs = [(conversation, self._last_seqs[conversation], self.now) for conversation in self._logged]
            self.tx.run_all("update_conversations", last_seqs)
