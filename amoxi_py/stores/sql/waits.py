"""What ends the waits of calls: a person's answer, and signals, which are kept until something waits for them."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from amoxi_py.domain.encoding import decode_json, encode_json, ordered_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import Conflict, NotFound
from amoxi_py.ports.inputs import Answer, Signal
from amoxi_py.ports.views import CallView
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import wait_reference
from amoxi_py.stores.sql.rows import load_waits, read_status
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.trees import load_trees
from amoxi_py.stores.sql.views import load_call_view, told_of_call

MOST_KEPT = 1000
"""How many signals are kept for one run that does not wait for them."""


def answer(batch: Batch, answer: Answer) -> CallView:
    """Record an answer, or find the same one recorded."""
    batch.flush()
    found = load_call_view(batch.tx, answer.call_id)
    if found is None:
        raise NotFound("question", answer.call_id)
    row, view = found
    run, conversation, status, ended_seq, *_, last_seq = row
    place = (run, view.call.turn, view.call.n, answer.k)
    wait = load_waits(batch.tx, [place]).get(place)
    if wait is None or not _may_answer(view, wait, answer):
        raise NotFound("question", answer.call_id)
    if wait.value is not None:
        if ordered_json(wait.value) != ordered_json(answer.value):
            raise Conflict(f"the question of {answer.call_id!r} was answered already", code="already_answered")
        return _with_wait(view, wait)
    ended = read_status(status, ended_seq).final or view.call.status is not CallStatus.STARTED
    if ended or wait.over(seconds(batch.now)):
        raise Conflict(f"the question of {answer.call_id!r} is over; it takes no answer", code="question_closed")
    given = replace(wait, value=answer.value, by=answer.principal.id)
    _give(batch, place, given)
    answered = _with_wait(view, given)
    batch.knows_last_seq(conversation, last_seq)
    batch.log(
        EventType.QUESTION_ANSWERED,
        conversation=conversation,
        **told_of_call(row, view),
        turn=view.call.turn,
        n=view.call.n,
        data=wait_reference(given),
        told_data={},
        subject=answered.call,
    )
    return answered


def signal(batch: Batch, signal: Signal) -> None:
    """Give a signal to the wait that is the oldest for its name, or keep it; one that is known changes nothing.

    Raises:
        Conflict: the id is known with another payload, the run has ended, or it keeps too many.
    """
    tx = batch.tx
    batch.flush()
    rows = tx.rows("run_to_signal", id=signal.run_id, agent=signal.agent, signal=signal.id, limit=MOST_KEPT)
    if not rows or not (signal.operator or rows[0][4] == signal.principal.owner_key):
        raise NotFound("run", signal.run_id)
    run, conversation, status, ended_seq, _, root, known, kept, last_seq = rows[0]
    digest = _digest(signal)
    if known is not None:
        if known != digest:
            raise Conflict(
                f"the key of the signal {signal.name!r} to {signal.run_id!r} was used with another payload; "
                "use a new key",
                code="idempotency_key_reused",
            )
        return
    if read_status(status, ended_seq).final:
        raise Conflict(f"the run {signal.run_id!r} has ended; it hears no signal any more", code="run_ended")
    by, waiting = signal.principal.id, _waiting(batch, run, signal.name, is_root=root is None)
    if waiting is not None:
        given = Wait(k=waiting[3], kind="signal", name=signal.name, created_at=0.0, value=signal.payload, by=by)
        _give(batch, waiting, given)
    if waiting is None and kept >= MOST_KEPT:
        raise Conflict(
            f"the run {signal.run_id!r} keeps {MOST_KEPT} signals that it has not waited for yet; send it no more",
            code="too_many_signals",
        )
    what = {"name": signal.name, "payload": signal.payload if waiting is None else None, "digest": digest}
    tx.run("insert_signal", run=run, id=signal.id, **what, by=by, now=batch.now)
    batch.knows_last_seq(conversation, last_seq)
    data = encode_json({"name": signal.name, "payload": decode_json(signal.payload)})
    batch.log(
        EventType.SIGNAL_RECEIVED,
        conversation=conversation,
        run=run,
        run_id=signal.run_id,
        data=data,
        hidden=root is not None,
        source=None if waiting is None or waiting[0] == run else waiting[0],
    )


def take_kept_signal(batch: Batch, run: int, turn: int, n: int, k: int, name: str, *, root: int | None) -> None:
    """Give a new wait the oldest signal of its name that was kept for its run, or else for the root of a child run."""
    for keeper in (run,) if root is None else (run, root):
        for key, payload, by in batch.tx.rows("oldest_kept_signal", run=keeper, name=name):
            place = {"run": run, "turn": turn, "n": n, "k": k}
            if batch.tx.rows("give_to_wait", **place, value=payload, by=by):
                batch.tx.run("take_signal", key=key)
            return


def _waiting(batch: Batch, run: int, name: str, *, is_root: bool) -> tuple[int, int, int, int] | None:
    """Return the place of the wait that a signal to a run is for: its own oldest one, or else one of a run below it."""
    below = [key for key, _ in load_trees(batch.tx, [run]).open_below(run)] if is_root else []
    for key in (run, *below):
        for turn, n, k in batch.tx.rows("oldest_wait_for_signal", run=key, name=name, now=batch.now):
            return (key, turn, n, k)
    return None


def _digest(signal: Signal) -> str:
    return hashlib.blake2s(ordered_json(signal.payload).encode(), digest_size=16).hexdigest()


def _may_answer(view: CallView, wait: Wait, answer: Answer) -> bool:
    owner = answer.principal.owner_key == view.requested_by.owner_key
    return wait.kind == "question" and (owner or answer.operator)


def _with_wait(view: CallView, wait: Wait) -> CallView:
    return replace(view, call=replace(view.call, wait=wait))


def _give(batch: Batch, place: tuple[int, int, int, int], given: Wait) -> None:
    """Store what a wait was given, and let its run go on."""
    run, turn, n, k = place
    batch.tx.rows("give_to_wait", run=run, turn=turn, n=n, k=k, value=given.value, by=given.by)
    batch.tx.run("wake_run", run=run, now=batch.now)
