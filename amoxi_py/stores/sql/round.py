"""Rows of many changes, gathered by kind and stored by one statement a kind."""

from __future__ import annotations

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunFailure
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.ports.store import Change
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis
from amoxi_py.stores.sql.transaction import Row

_END = 8


class Round:
    """At most one change of each run: rows are gathered by `add` and stored by `store`; events are only logged."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._calls: list[Row] = []
        self._approvals: list[Row] = []
        self._starts: list[Row] = []
        self._retried: list[Row] = []
        self._steps: list[Row] = []
        self._results: list[Row] = []
        self._expired: list[Row] = []
        self._without_deltas: list[int] = []
        self._runs: list[Row] = []
        self._instructions: list[Row] = []
        self._ends: list[Row] = []
        self._ended: set[int] = set()

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
        for one in change.results:
            self._results.append((run, one.turn, one.n, one.status.value, one.result))
        self._expired.extend((run, turn, n, self._batch.now) for turn, n in change.expired)
        if has_deltas and drops_deltas(change):
            self._without_deltas.append(run)

    def finish(self, change: Change, *, tell: bool = True) -> None:
        """Log the events of a change, unless nobody is to be told, and note what becomes of its run."""
        ended_seq = self._log(change) if tell else None
        progress = int(change.message is not None or bool(change.results) or bool(change.steps))
        used = change.usage
        usage = (None, None, None) if used is None else (used.requests, used.input_tokens, used.output_tokens)
        if change.instructions is not None:
            self._instructions.append((change.lease.run, change.instructions))
        row = (change.lease.run, change.number, progress, change.model_failures, *usage, self._batch.now)
        if change.end is None:
            self._runs.append(row)
            return
        failure = None if change.failure is None else _failure_json(change.failure)
        self._ends.append((*row, change.end, ended_seq, failure, change.result))
        self._ended.add(change.lease.conversation)

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
            ("settle_calls", self._results),
            ("expire_approvals", self._expired),
        ):
            if rows:
                self._batch.tx.run_all(name, rows)

    def store_runs(self) -> None:
        """Store what becomes of the runs, and let the next run of a conversation go on where one ended."""
        if self._runs:
            self._batch.tx.run_all("update_runs", self._runs)
        if self._instructions:
            self._batch.tx.run_all("keep_instructions", self._instructions)
        if self._ends:
            self._batch.tx.run_all("end_runs", self._ends)
            failed = [(row[0],) for row in self._ends if row[_END] == "failed"]
            if failed:  # one that is completed has no open call
                self._batch.tx.run_all("close_approvals", failed)
            wakes = [(conversation, self._batch.now) for conversation in self._ended]
            self._batch.tx.run_all("wake_next_runs", wakes)

    def _add_message(self, run: int, message: Message) -> None:
        status = None if message.status == "complete" else message.status
        files = encode_json(list(message.files)) if message.files else None
        created_at = millis(message.created_at)
        self._batch.add_message(run, (message.turn, message.id, message.text, status, files, created_at))
        for call in message.calls:
            tries = max(call.tries, int(call.status is CallStatus.STARTED))
            what = (call.tool, call.arguments, call.effect.value, call.status.value)
            self._calls.append((run, message.turn, call.n, *what, tries, call.failures, call.result))
            if call.approval is not None:
                asked = call.approval
                expires_at = None if asked.expires_at is None else millis(asked.expires_at)
                when = (asked.approver, millis(asked.created_at), expires_at)
                decided = (asked.decision, asked.by, asked.reason, asked.arguments)
                self._approvals.append((run, message.turn, call.n, *when, *decided))

    def _log(self, change: Change) -> int | None:
        lease, log = change.lease, self._batch.log
        conversation, run, run_id = lease.conversation, lease.run, lease.run_id
        ended_seq = None
        for event in change.events:
            seq = log(
                event.type,
                conversation=conversation,
                run=run,
                run_id=run_id,
                turn=event.turn,
                n=event.n,
                data=event.data,
                subject=event.subject,
            )
            if event.type.ends_run:
                ended_seq = seq
        return ended_seq


def drops_deltas(change: Change) -> bool:
    """Whether a change takes the place of what was streamed."""
    return change.message is not None or change.discard or change.end is not None


def _failure_json(failure: RunFailure) -> str:
    return encode_json({"code": failure.code, "message": clean_text(failure.message)})
