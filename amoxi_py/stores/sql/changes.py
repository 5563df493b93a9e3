"""What workers add to their runs: many changes by a few statements, each under its proof.

The changes of one transaction go in rounds: a round has one change of a run, with all below it, at the most, so that
the order of a tree's changes is kept, and within a round each kind of row is one statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import RunStatus
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.errors import AmoxiError, Conflict, LeaseLost, StoreUnavailable
from amoxi_py.ports.changes import Change
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cancel import HOLD_MS, end_below
from amoxi_py.stores.sql.children import Kin, read_kin, settle_untold, told_of
from amoxi_py.stores.sql.round import Round, drops_deltas
from amoxi_py.stores.sql.rows import json_rows
from amoxi_py.stores.sql.times import millis_up, seconds

_FOR_MODEL = ("model",)
_OVER = ("decided_open_calls", "waits_over_by_value", "child_that_ended")


def write(batch: Batch, changes: Sequence[Change]) -> list[AmoxiError | float | None]:
    """Store changes, in order; return for each when it was stored, None when it was before, or why it was refused."""
    answers: list[AmoxiError | float | None] = []
    while len(answers) < len(changes):
        answers += _write_some(batch, changes[len(answers) :])
    return answers


def _write_some(batch: Batch, changes: Sequence[Change]) -> list[AmoxiError | float | None]:
    """Store changes up to the next one that the end of another run of its tree bears on."""
    states = _load_states(batch, changes)
    answers: list[AmoxiError | float | None] = []
    stored_at = seconds(batch.now)
    ended: set[int] = set()
    rounds: list[list[tuple[Change, bool]]] = []
    place_of: dict[int, int] = {}
    for change in changes:
        run = change.lease.run
        state = states.get(run)
        tree = run if state is None or state.kin is None else state.kin.root
        if tree in ended:
            break
        refusal = _refusal(state, change)
        if state is None or refusal is not None or change.number <= state.changes:
            answers.append(refusal)
            continue
        answers.append(stored_at)
        if change.end is not None:
            ended.add(tree)
        place = place_of.get(tree, 0)
        place_of[tree] = place + 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append((_cleaned(change, batch.now), state.has_deltas))
        state.follow(change)
    kin = _kin_of(states)
    for one in rounds:
        _store(batch, one, kin)
    return answers


def pause(batch: Batch, change: Change, until: float | None, kinds: tuple[str, ...]) -> bool:
    """Store a change and let its run wait, unless what it waits for is there already.

    A run that waits for its model waits for none of its calls, so what has come for those does not matter then.
    """
    run = change.lease.run
    state = _load_states(batch, [change]).get(run)
    refusal = _refusal(state, change)
    if refusal is not None:
        raise refusal
    assert state is not None
    if change.number <= state.changes:
        return state.status != RunStatus.RUNNING
    only = Round(batch, _kin_of({run: state}))
    clean = _cleaned(change, batch.now)
    only.add(clean, has_deltas=state.has_deltas)
    only.store_content()
    if "child" in kinds:
        settle_untold(batch, change.lease, state.kin)
    waits = kinds == _FOR_MODEL or not any(batch.tx.rows(over, run=run) for over in _OVER)
    only.finish(clean)
    only.store_runs()
    if not waits:
        batch.tx.run("heard_of_children", run=run)
    else:
        wake_at = None if until is None else millis_up(until)
        batch.tx.run("pause_run", run=run, until=wake_at, kinds=encode_json(list(kinds)))
        batch.log(
            EventType.RUN_WAITING,
            conversation=change.lease.conversation,
            **told_of(run, change.lease.run_id, state.kin),
            data=encode_json({"waiting_for": list(kinds)}),
        )
    return waits


def _store(batch: Batch, changes: Sequence[tuple[Change, bool]], kin: Mapping[int, Kin]) -> None:
    one = Round(batch, kin)
    for change, has_deltas in changes:
        one.add(change, has_deltas=has_deltas)
    one.store_content()
    for change, _ in changes:
        if change.end == "failed":  # one that is completed has no open call
            run = change.lease.run
            busy = end_below(batch, run, kin[run].root if run in kin else run)
            if busy and run not in kin:
                one.hold(change.lease.conversation, batch.now + HOLD_MS)
        one.finish(change)
    one.store_runs()


def _kin_of(states: Mapping[int, _State]) -> dict[int, Kin]:
    return {run: state.kin for run, state in states.items() if state.kin is not None}


class _State:
    """How a run stands while the changes of a batch are looked at one after the other."""

    __slots__ = ("changes", "decided", "fence", "has_deltas", "kin", "status", "worker")

    def __init__(
        self, status: str, worker: int | None, fence: int, changes: int, has_deltas: bool, kin: Kin | None
    ) -> None:
        self.status = status
        self.worker = worker
        self.fence = fence
        self.changes = changes
        self.has_deltas = has_deltas
        self.kin = kin
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
    for run, status, worker, fence, number, last_seq, has_deltas, *kin in batch.tx.rows(
        "runs_to_change", rows=json_rows(runs)
    ):
        batch.knows_last_seq(runs[run], last_seq)
        may_have_deltas = bool(has_deltas) or run in batch.streamed
        states[run] = _State(status, worker, fence, number, may_have_deltas, read_kin(kin))
    expired = [(change.lease.run, turn, n) for change in changes for turn, n in change.expired]
    if expired:
        for run, turn, n in batch.tx.rows("calls_decided_by_people", rows=json_rows(expired)):
            states[run].decided.add((turn, n))
    return states


def _cleaned(change: Change, now: int) -> Change:
    """Return the change with storable texts in its message and waits, so that what is told is what is stored."""
    if change.waits:
        change = _with_clean_waits(change)
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


def _with_clean_waits(change: Change) -> Change:
    waits = tuple(replace(new, wait=replace(new.wait, name=clean_text(new.wait.name))) for new in change.waits)
    asked = {(new.turn, new.n): new.wait for new in waits}
    events = tuple(
        replace(event, subject=replace(event.subject, wait=asked.get((event.turn, event.n), event.subject.wait)))
        if event.type is EventType.QUESTION_ASKED
        and event.turn is not None
        and event.n is not None
        and isinstance(event.subject, ToolCall)
        else event
        for event in change.events
    )
    return replace(change, waits=waits, events=events)


def _clean_message(message: Message, now: int) -> Message:
    text = clean_text(message.text)
    calls = message.calls
    if any(clean_text(call.tool) != call.tool or clean_text(call.arguments) != call.arguments for call in calls):
        calls = tuple(replace(call, tool=clean_text(call.tool), arguments=clean_text(call.arguments)) for call in calls)
    if text == message.text and calls is message.calls and message.created_at:
        return message
    return replace(message, text=text, calls=calls, created_at=message.created_at or seconds(now))
