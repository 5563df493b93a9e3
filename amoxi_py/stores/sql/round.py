"""Rows of many changes, gathered by kind and stored by one statement a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import astuple

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunFailure
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.ports.changes import CallResult, Change, NewWait
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.children import Kin, settle_parents, start_children, told_of
from amoxi_py.stores.sql.log import wait_reference
from amoxi_py.stores.sql.rows import call_row, json_rows
from amoxi_py.stores.sql.times import millis, millis_up, seconds
from amoxi_py.stores.sql.transaction import Row
from amoxi_py.stores.sql.waits import take_kept_signal

_END = 11
_NOT_USED = (None,) * 6


class Round:
    """At most one change of each tree of runs: rows are gathered by `add` and stored later; events are only logged."""

    def __init__(self, batch: Batch, kin: Mapping[int, Kin]) -> None:
        self._batch = batch
        self._kin = kin
        self._asking: list[Change] = []
        self._for_parents: list[tuple[int, Kin, CallResult | None]] = []
        self._calls: list[Row] = []
        self._approvals: list[Row] = []
        self._starts: list[Row] = []
        self._retried: list[Row] = []
        self._steps: list[Row] = []
        self._waits: list[Row] = []
        self._results: list[Row] = []
        self._expired: list[Row] = []
        self._without_deltas: list[int] = []
        self._runs: list[Row] = []
        self._instructions: list[Row] = []
        self._summaries: list[Row] = []
        self._ends: list[Row] = []
        self._ended: dict[int, int] = {}

    def add(self, change: Change, *, has_deltas: bool) -> None:
        """Gather the rows of a change, all but its events. `has_deltas` is whether any of the run may be stored."""
        run = change.lease.run
        if change.message is not None:
            self._add_message(run, change.message)
        self._starts.extend((run, turn, n, 0) for turn, n in change.starts)
        self._starts.extend((run, turn, n, 1) for turn, n in change.retries)
        self._retried.extend((run, turn, n) for turn, n in change.retries)
        for step in change.steps:
            record = step.record
            self._steps.append((run, step.turn, step.n, record.name, record.value, int(record.failed)))
        for waiting in change.waits:
            self._add_wait(run, waiting)
        for child in change.children:
            wait = Wait(k=1, kind="child", name=child.run_id, created_at=seconds(self._batch.now))
            self._add_wait(run, NewWait(turn=child.turn, n=child.n, wait=wait))
        for one in change.results:
            self._results.append((run, one.turn, one.n, one.status.value, one.result))
        self._expired.extend((run, turn, n, self._batch.now) for turn, n in change.expired)
        if has_deltas and drops_deltas(change):
            self._without_deltas.append(run)

    def finish(self, change: Change) -> None:
        """Log the events of a change, and note what becomes of its run."""
        ended_seq = self._log(change)
        if change.children:
            self._asking.append(change)
        progress = int(change.message is not None or any((change.results, change.steps, change.waits)))
        used = change.usage
        usage = _NOT_USED if used is None else astuple(used)
        if change.instructions is not None:
            self._instructions.append((change.lease.run, change.instructions))
        if change.summary is not None:
            told = change.summary
            place = (change.lease.conversation, told.run_id, told.turn)
            self._summaries.append((*place, clean_text(told.text), self._batch.now))
        row = (change.lease.run, change.number, progress, change.model_failures, *usage, self._batch.now)
        if change.end is None:
            self._runs.append(row)
            return
        self._batch.note_end(change.lease.run)
        failure = None if change.failure is None else _failure_json(change.failure)
        self._ends.append((*row, change.end, ended_seq, failure, change.result))
        kin = self._kin.get(change.lease.run)
        if kin is None:
            self._ended.setdefault(change.lease.conversation, self._batch.now)
        else:
            self._for_parents.append((change.lease.conversation, kin, change.for_parent))

    def hold(self, conversation: int, until: int) -> None:
        """Let the next run of a conversation wait for workers that may be busy with what ran below the one before."""
        self._batch.tx.run("hold_conversation", conversation=conversation, until=until)
        self._ended[conversation] = until

    def store_content(self) -> None:
        """Store everything but what becomes of the runs."""
        if self._without_deltas:
            self._batch.flush()  # a delta of the same batch must be there to be dropped
            self._batch.tx.run("drop_deltas", rows=json_rows(self._without_deltas))
        for name, rows in (
            ("insert_calls", self._calls),
            ("insert_approvals", self._approvals),
            ("forget_failed_steps", self._retried),
            ("start_calls", self._starts),
            ("insert_steps", self._steps),
            ("insert_waits", self._waits),
            ("count_waits", [wait[:4] for wait in self._waits]),
            ("settle_calls", self._results),
            ("expire_approvals", self._expired),
        ):
            if rows:
                self._batch.tx.run_all(name, rows)
        for run, turn, n, k, kind, name, *_ in self._waits:
            if kind == "signal":
                kin = self._kin.get(run)
                take_kept_signal(self._batch, run, turn, n, k, name, root=None if kin is None else kin.root)

    def store_runs(self) -> None:
        """Store what becomes of the runs, and let the next run of a conversation go on where one ended."""
        if self._runs:
            self._batch.tx.run_all("update_runs", self._runs)
        if self._instructions:
            self._batch.tx.run_all("keep_instructions", self._instructions)
        if self._summaries:
            self._batch.tx.run_all("insert_summaries", self._summaries)
        if self._ends:
            self._batch.tx.run_all("end_runs", self._ends)
            failed = [(row[0],) for row in self._ends if row[_END] == "failed"]
            if failed:  # one that is completed has no open call
                self._batch.tx.run_all("close_approvals", failed)
            if self._ended:
                self._batch.tx.run_all("wake_next_runs", list(self._ended.items()))
        start_children(self._batch, self._asking)
        settle_parents(self._batch, self._for_parents)

    def _add_message(self, run: int, message: Message) -> None:
        status = None if message.status == "complete" else message.status
        files = encode_json(list(message.files)) if message.files else None
        created_at = millis(message.created_at)
        self._batch.add_message(run, (message.turn, message.id, message.text, status, files, created_at, message.kept))
        for call in message.calls:
            self._calls.append(call_row(run, call))
            if call.approval is not None:
                asked = call.approval
                expires_at = None if asked.expires_at is None else millis(asked.expires_at)
                when = (asked.approver, millis(asked.created_at), expires_at)
                decided = (asked.decision, asked.by, asked.reason, asked.arguments)
                self._approvals.append((run, message.turn, call.n, *when, *decided))

    def _add_wait(self, run: int, new: NewWait) -> None:
        wait = new.wait
        until = None if wait.until is None else millis_up(wait.until)
        what = (wait.kind, wait.name, wait.schema)
        self._waits.append((run, new.turn, new.n, wait.k, *what, millis(wait.created_at), until))

    def _log(self, change: Change) -> int | None:
        lease, log = change.lease, self._batch.log
        kin = self._kin.get(lease.run)
        ended_seq = None
        for event in change.events:
            seq = log(
                event.type,
                conversation=lease.conversation,
                **told_of(lease.run, lease.run_id, kin, event.told_as),
                turn=event.turn,
                n=event.n,
                **(_asked(event) if event.type is EventType.QUESTION_ASKED else {"data": event.data}),
                subject=event.subject,
            )
            if event.type.ends_run:
                ended_seq = seq
        return ended_seq


def _asked(event: NewEvent) -> dict[str, Any]:
    """Return what is stored with a question's event, which is not told: the question is in a row of its own."""
    wait = event.subject.wait if isinstance(event.subject, ToolCall) else None
    return {"data": None if wait is None else wait_reference(wait), "told_data": {}}


def drops_deltas(change: Change) -> bool:
    """Whether a change takes the place of what was streamed."""
    return change.message is not None or change.discard or change.end is not None


def _failure_json(failure: RunFailure) -> str:
    return encode_json({"code": failure.code, "message": clean_text(failure.message)})
