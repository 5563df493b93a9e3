"""Child runs: they begin with a call of another run, and their end is that call's result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Lease
from amoxi_py.domain.settle import settle_call
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.ports.changes import CallResult, Change, NewChild
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.log import queued_data
from amoxi_py.stores.sql.rows import json_rows, load_calls_of_events
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.transaction import Row, Transaction

_EVENTS = 2  # that a child begins with


class Kin(Struct, frozen=True, kw_only=True):
    """Where a child run is in its tree: the run above all, the one right above, and the call of that one."""

    root: int
    root_id: str
    parent: int
    parent_id: str
    turn: int
    n: int


def read_kin(columns: Sequence[Any]) -> Kin | None:
    """Return the kin of a run from its columns in their order, or None for one that nobody asked for."""
    root, root_id, parent, parent_id, turn, n = columns
    if root is None:
        return None
    return Kin(root=root, root_id=root_id, parent=parent, parent_id=parent_id, turn=turn, n=n)


def told_of(run: int, run_id: str, kin: Kin | None, told_as: str = "own") -> dict[str, Any]:
    """Return of which run an event is told, for `Batch.log`."""
    if kin is None:
        return {"run": run, "run_id": run_id}
    if told_as == "own":
        return {"run": run, "run_id": run_id, "hidden": True}
    source = run if told_as == "root" else None
    return {"run": kin.root, "run_id": kin.root_id, "source": source}


def start_children(batch: Batch, changes: Sequence[Change]) -> None:
    """Store the runs that changes ask for, with their messages and first events."""
    asked = {child.run_id: (change, child) for change in changes for child in change.children}
    if not asked:
        return
    known = {run_id for (run_id,) in batch.tx.rows("known_runs", rows=json_rows(asked))}
    new = {run_id: one for run_id, one in asked.items() if run_id not in known}
    if not new:
        return
    rows = []
    begun: dict[int, int] = defaultdict(int)
    for run_id, (change, child) in new.items():
        conversation = change.lease.conversation
        first_seq = batch.last_seq(conversation) + 1 + begun[conversation]
        begun[conversation] += _EVENTS
        rows.append((run_id, first_seq, child.agent, change.lease.run, child.turn, child.n))
    inserted = {
        run_id: (key, conversation_id)
        for key, run_id, conversation_id in batch.tx.rows("insert_child_runs", rows=json_rows(rows), now=batch.now)
    }
    for run_id, (change, child) in new.items():
        _tell_start(batch, change.lease.conversation, *inserted[run_id], child)


def settle_parents(batch: Batch, ended: Sequence[tuple[int, Kin, CallResult | None]]) -> None:
    """Give calls the results of the child runs that ended, by conversation, and let the runs above go on.

    A call that has its result already keeps it. One whose child leaves no result gets that of a call that was stopped.
    """
    if not ended:
        return
    calls = load_calls_of_events(
        batch.tx, sorted({(kin.parent, kin.turn, kin.n, kin.n) for _, kin, _ in ended}), results=False
    )
    grandparents = {run for (run,) in batch.tx.rows("child_runs", rows=json_rows({kin.parent for _, kin, _ in ended}))}
    settled: list[Row] = []
    for conversation, kin, result in ended:
        call = next((one for one in calls[kin.parent, kin.turn] if one.n == kin.n), None)
        if call is None or call.status.settled:
            continue
        given = settle_call(call) if result is None else result
        settled.append((kin.parent, kin.turn, kin.n, given.status.value, given.result))
        subject = replace(call, status=given.status, result=given.result)
        _tell_result(batch, conversation, kin, kin.parent in grandparents, subject)
    if settled:
        parents = sorted({row[0] for row in settled})
        batch.tx.run_all("settle_calls", settled)
        batch.tx.run_all("tell_parents", [(parent,) for parent in parents])
        batch.tx.run_all("wake_parents", [(parent, batch.now) for parent in parents])


def settle_untold(batch: Batch, lease: Lease, kin: Kin | None) -> None:
    """Settle the calls of a run whose child runs have ended without a word, at the hands of a version before children.

    What they came to there is no answer of the asked agent, so such a call is one that was stopped.
    """
    root, root_id = (lease.run, lease.run_id) if kin is None else (kin.root, kin.root_id)
    found = batch.tx.rows("calls_of_ended_children", run=lease.run)
    settle_parents(
        batch,
        [
            (
                lease.conversation,
                Kin(root=root, root_id=root_id, parent=lease.run, parent_id=lease.run_id, turn=turn, n=n),
                None,
            )
            for turn, n in found
        ],
    )


def open_below(tx: Transaction, run: int, root: int) -> list[int]:
    """Return the open runs below one, those first that have nothing open below themselves."""
    above = {run}
    found = []
    for key, parent in tx.rows("open_runs_below", root=root):  # a run has a greater key than those above it
        if parent in above:
            above.add(key)
            found.append(key)
    return found[::-1]


def _tell_start(batch: Batch, conversation: int, run: int, conversation_id: str, child: NewChild) -> None:
    message = Message(
        id=child.message_id,
        run_id=child.run_id,
        turn=0,
        role="user",
        text=clean_text(child.text),
        created_at=seconds(batch.now),
    )
    batch.add_message(run, (0, message.id, message.text, None, None, batch.now, None))
    where: dict[str, Any] = {"conversation": conversation, "run": run, "run_id": child.run_id, "hidden": True}
    batch.log(EventType.RUN_QUEUED, **where, told_data=queued_data(child.agent, conversation_id))
    batch.log(EventType.MESSAGE_COMPLETED, **where, turn=0, subject=message)


def _tell_result(batch: Batch, conversation: int, kin: Kin, hidden: bool, call: ToolCall) -> None:
    batch.log(
        EventType.TOOL_COMPLETED,
        conversation=conversation,
        run=kin.parent,
        run_id=kin.parent_id,
        hidden=hidden,
        turn=kin.turn,
        n=kin.n,
        subject=call,
    )
