"""What workers add to their runs: many changes by a few statements, each under its proof.

The changes of one transaction go in rounds: a round has one change of a run at the most, so that the order of a run's
changes is kept, and within a round each kind of row is one statement.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunStatus
from amoxi_py.errors import AmoxiError, Conflict, LeaseLost, StoreUnavailable
from amoxi_py.ports.store import Change
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.round import Round, drops_deltas
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis_up, seconds


def write(batch: Batch, changes: Sequence[Change]) -> list[AmoxiError | float | None]:
    """Store changes, in order; return for each when it was stored, None when it was before, or why it was refused."""
    states = _load_states(batch, changes)
    answers: list[AmoxiError | float | None] = []
    stored_at = seconds(batch.now)
    rounds: list[list[tuple[Change, bool]]] = []
    place_of: dict[int, int] = {}
    for change in changes:
        run = change.lease.run
        state = states.get(run)
        refusal = _refusal(state, change)
        if state is None or refusal is not None or change.number <= state.changes:
            answers.append(refusal)
            continue
        answers.append(stored_at)
        place = place_of.get(run, 0)
        place_of[run] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append((_cleaned(change, batch.now), state.has_deltas))
        state.follow(change)
    for one in rounds:
        _store(batch, one)
    return answers


def pause(batch: Batch, change: Change, until: float | None, kinds: tuple[str, ...]) -> bool:
    """Store a change and let its run wait, unless what it waits for is there already."""
    run = change.lease.run
    state = _load_states(batch, [change]).get(run)
    refusal = _refusal(state, change)
    if refusal is not None:
        raise refusal
    assert state is not None
    if change.number <= state.changes:
        return state.status != RunStatus.RUNNING
    only = Round(batch)
    clean = _cleaned(change, batch.now)
    only.add(clean, has_deltas=state.has_deltas)
    only.store_content()
    waits = not batch.tx.rows("decided_open_calls", run=run)
    only.finish(clean, tell=waits)
    only.store_runs()
    if waits:
        wake_at = None if until is None else millis_up(until)
        batch.tx.run("pause_run", run=run, until=wake_at, kinds=encode_json(list(kinds)))
        batch.log(
            EventType.RUN_WAITING,
            conversation=change.lease.conversation,
            run=run,
            run_id=change.lease.run_id,
            data=encode_json({"waiting_for": list(kinds)}),
        )
    return waits


def _store(batch: Batch, changes: Sequence[tuple[Change, bool]]) -> None:
    one = Round(batch)
    for change, has_deltas in changes:
        one.add(change, has_deltas=has_deltas)
    one.store_content()
    for change, _ in changes:
        one.finish(change)
    one.store_runs()


class _State:
    """How a run stands while the changes of a batch are looked at one after the other."""

    __slots__ = ("changes", "decided", "fence", "has_deltas", "status", "worker")

    def __init__(self, status: str, worker: int | None, fence: int, changes: int, has_deltas: bool) -> None:
        self.status = status
        self.worker = worker
        self.fence = fence
        self.changes = changes
        self.has_deltas = has_deltas
        self.decided: set[tuple[int, int]] = set()  # calls that a person has decided about, of those said to expire

    def follow(self, change: Change) -> None:
        """Stand as the run stands after a change."""
        self.changes = change.number
        if change.end is not None:
            self.status = change.end
        self.has_deltas = any(event.type is EventType.MESSAGE_DELTA for event in change.events) or (
            self.has_deltas and not drops_deltas(change)
        )

    def proves(self, change: Change) -> bool:
        """Whether no other claim followed the change's."""
        return self.fence == change.lease.fence and self.worker == change.lease.worker


def _refusal(state: _State | None, change: Change) -> AmoxiError | None:
    """Say why a change that was not stored already may not be stored."""
    run_id = change.lease.run_id
    if state is None or not state.proves(change):
        return LeaseLost(run_id)
    if change.number <= state.changes:
        return None
    if state.status != RunStatus.RUNNING:
        return LeaseLost(run_id)
    if change.number > state.changes + 1:
        return StoreUnavailable(
            f"change {change.number} of run {run_id!r} cannot be stored before change {state.changes + 1}; "
            "send that one again first"
        )
    if not state.decided.isdisjoint(change.expired):
        return Conflict(f"an approval of run {run_id!r} was decided before it expired", code="already_decided")
    return None


def _load_states(batch: Batch, changes: Sequence[Change]) -> dict[int, _State]:
    runs = {change.lease.run: change.lease.conversation for change in changes}
    states = {}
    for run, status, worker, fence, number, last_seq, has_deltas in batch.tx.rows(
        "runs_to_change", rows=json_rows(runs)
    ):
        batch.knows_last_seq(runs[run], last_seq)
        states[run] = _State(status, worker, fence, number, bool(has_deltas) or run in batch.streamed)
    expired = [(change.lease.run, turn, n) for change in changes for turn, n in change.expired]
    if expired:
        for run, turn, n in batch.tx.rows("calls_decided_by_people", rows=json_rows(expired)):
            states[run].decided.add((turn, n))
    return states


def _cleaned(change: Change, now: int) -> Change:
    """Return the change with storable texts in its message, so that what is told is what is stored."""
    message = change.message
    if message is None:
        return change
    clean = _clean_message(message, now)
    if clean is message:
        return change
    calls = {call.n: call for call in clean.calls}
    events = tuple(
        event
        if event.turn != clean.turn
        else replace(event, subject=clean if event.n is None else calls.get(event.n, event.subject))
        for event in change.events
    )
    return replace(change, message=clean, events=events)


def _clean_message(message: Message, now: int) -> Message:
    text = clean_text(message.text)
    calls = message.calls
    if any(clean_text(call.tool) != call.tool or clean_text(call.arguments) != call.arguments for call in calls):
        calls = tuple(replace(call, tool=clean_text(call.tool), arguments=clean_text(call.arguments)) for call in calls)
    if text == message.text and calls is message.calls and message.created_at:
        return message
    return replace(message, text=text, calls=calls, created_at=message.created_at or seconds(now))
