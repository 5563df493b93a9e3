"""Ending a run from outside: by its principal, by the next message, or because its conversation is erased."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus, Trigger, next_status
from amoxi_py.domain.settle import settle
from amoxi_py.errors import NotFound
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.children import Kin, open_below, read_kin, settle_parents, told_of
from amoxi_py.stores.sql.rows import json_rows, load_messages, read_status
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.views import find_run, load_run

HOLD_MS = 1000
"""How long the next run of a conversation waits for a worker that has not let go of a cancelled one."""
ERASED_KEPT_MS = 5 * 60 * 1000
"""How long the terminal events of erased runs stay, without data, for processes that have not heard of them yet."""

_ERASED = (
    "steps",
    "waits",
    "signals",
    "webhooks",
    "records",
    "summaries",
    "approvals",
    "calls",
    "messages",
    "events",
    "data_of_events",
    "runs",
    "conversation",
)


class _Found(Struct, frozen=True, kw_only=True):
    """A run that may be ended."""

    run: int
    run_id: str
    conversation: int
    status: RunStatus
    worker: int | None
    held_until: int | None
    kin: Kin | None

    def told_of(self, told_as: str = "own") -> dict[str, Any]:
        """Return of which run its events are told."""
        return told_of(self.run, self.run_id, self.kin, told_as)


def cancel(batch: Batch, run_id: str, principal: Principal, agent: str | None) -> Run:
    """End a run now, if it has not ended, and return it."""
    run = find_run(batch.tx, run_id, principal, agent)
    batch.flush()
    end_run(batch, run)
    batch.flush()
    return load_run(batch.tx, run)


def end_run(batch: Batch, run: int) -> None:
    """Cancel a run that is open with all below it; leave an ended one as it is.

    What was held back must be stored already.
    """
    found = _look(batch, run)
    if found.status.final:
        return
    kin = found.kin
    busy = end_below(batch, run, run if kin is None else kin.root)
    busy = _end(batch, found) or busy
    if kin is not None:
        settle_parents(batch, [(found.conversation, kin, None)])
        return
    held_until = found.held_until
    if busy:
        held_until = batch.now + HOLD_MS
        batch.tx.run("hold_conversation", conversation=found.conversation, until=held_until)
    wake_next(batch, found.conversation, held_until)


def end_below(batch: Batch, run: int, root: int) -> bool:
    """Cancel all runs below one; return whether a living worker may still be busy with any."""
    found = open_below(batch.tx, run, root)
    if found:
        batch.flush()
    ends = [_end(batch, _look(batch, one)) for one in found]
    return any(ends)


def _look(batch: Batch, run: int) -> _Found:
    (row,) = batch.tx.rows("run_to_cancel", run=run)
    run_id, conversation, word, ended_seq, worker, last_seq, held_until, *kin = row
    batch.knows_last_seq(conversation, last_seq)
    return _Found(
        run=run,
        run_id=run_id,
        conversation=conversation,
        status=read_status(word, ended_seq),
        worker=worker,
        held_until=held_until,
        kin=read_kin(kin),
    )


def _end(batch: Batch, found: _Found) -> bool:
    """Cancel one run; return whether a living worker may still be busy with it."""
    next_status(found.status, Trigger.CANCEL)
    run = found.run
    messages = load_messages(batch.tx, [run])[run]
    _keep_partial_reply(batch, found, messages)
    _settle_calls(batch, found, messages)
    batch.tx.run_all("close_approvals", [(run,)])
    ended_seq = batch.log(EventType.RUN_CANCELLED, conversation=found.conversation, **found.told_of())
    batch.tx.run("cancel_run", run=run, ended_seq=ended_seq, now=batch.now)
    batch.note_end(run)
    return found.status is RunStatus.RUNNING and found.worker is not None and batch.worker_lives(found.worker)


def hold_now(batch: Batch, until: int | None) -> int | None:
    """Return until when a conversation waits for an old worker, or None.

    A time that is over is no hold, and one beyond all holds is of a calendar that was set back since.
    """
    return until if until is not None and batch.now < until <= batch.now + HOLD_MS else None


def wake_next(batch: Batch, conversation: int, held_until: int | None) -> None:
    """Make the conversation's first open run due, but not before the old worker has had time to let go."""
    wake_at = hold_now(batch, held_until) or batch.now
    batch.tx.run_all("wake_next_runs", [(conversation, wake_at)])


def erase(batch: Batch, conversation_id: str, principal: Principal, agent: str | None) -> int:
    """Cancel what runs in a conversation, delete it with all that belongs to it, and return its key."""
    tx = batch.tx
    rows = tx.rows("conversation_to_erase", id=conversation_id, principal=principal.owner_key, agent=agent)
    if not rows:
        raise NotFound("conversation", conversation_id)
    (conversation,) = rows[0]
    batch.flush()
    for run, _ in tx.rows("open_runs", conversation=conversation, now=batch.now):
        end_run(batch, run)
    batch.flush()
    erase_all_of(batch, conversation)
    erased: int = conversation
    return erased


def erase_all_of(batch: Batch, conversation: int) -> None:
    """Delete a conversation, in which nothing is open, with all that belongs to it but its files."""
    batch.read_usage()  # of what has ended in this transaction, while its rows are there
    forget_erased(batch)
    batch.tx.run("keep_erased_runs", conversation=conversation, now=batch.now, since=batch.now - ERASED_KEPT_MS)
    for kind in _ERASED:
        batch.tx.run(f"erase_{kind}", conversation=conversation)
    batch.forget_conversation(conversation)


def forget_erased(batch: Batch) -> None:
    """Remove what was left of erased runs when every process has had time to hear that they ended."""
    before = batch.now - ERASED_KEPT_MS
    batch.tx.run("forget_erased_events", before=before)
    batch.tx.run("forget_erased_runs", before=before)


def _keep_partial_reply(batch: Batch, found: _Found, messages: tuple[Message, ...]) -> None:
    run = found.run
    pieces = [decode_json(data) for (data,) in batch.tx.rows("deltas", run=run)]
    if not pieces:
        return
    batch.tx.run("drop_deltas", rows=json_rows([run]))
    message_id, text = pieces[-1]["message_id"], ""
    for piece in pieces:
        if piece["message_id"] == message_id:
            text = text[: piece["offset"]] + piece["text"]
    if not text:
        return
    last = messages[-1]
    message = Message(
        id=message_id,
        run_id=last.run_id,
        turn=last.turn + 1,
        role="assistant",
        text=text,
        status="stopped",
        created_at=seconds(batch.now),
    )
    batch.add_message(run, (message.turn, message_id, text, "stopped", None, batch.now, None))
    batch.log(
        EventType.MESSAGE_COMPLETED,
        conversation=found.conversation,
        **found.told_of(),
        turn=message.turn,
        subject=message,
    )


def _settle_calls(batch: Batch, found: _Found, messages: tuple[Message, ...]) -> None:
    run, settled = found.run, settle(messages)
    if not settled:
        return
    rows = [(run, one.turn, one.n, one.status.value, one.result) for one in settled]
    batch.tx.run_all("settle_calls", rows)
    calls = {(call.turn, call.n): call for message in messages for call in message.calls}
    for one in settled:
        call = calls[one.turn, one.n]
        batch.log(
            EventType.TOOL_COMPLETED,
            conversation=found.conversation,
            **found.told_of("root" if call.concerns_people else "own"),
            turn=one.turn,
            n=one.n,
            subject=replace(call, status=one.status, result=one.result),
        )
