"""Ending a run from outside: by its principal, by the next message, or because its conversation is erased."""

from __future__ import annotations

from msgspec.structs import replace

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunStatus, Trigger, next_status
from amoxi_py.domain.settle import settle
from amoxi_py.errors import NotFound
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import json_rows, load_messages, read_status
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.views import find_run, load_run

HOLD_MS = 1000
"""How long the next run of a conversation waits for a worker that has not let go of a cancelled one."""
ERASED_KEPT_MS = 5 * 60 * 1000
"""How long the terminal events of erased runs stay, without data, for processes that have not heard of them yet."""


def cancel(batch: Batch, run_id: str, principal: Principal, agent: str | None) -> Run:
    """End a run now, if it has not ended, and return it."""
    run = find_run(batch.tx, run_id, principal, agent)
    batch.flush()
    end_run(batch, run)
    batch.flush()
    return load_run(batch.tx, run)


def end_run(batch: Batch, run: int) -> None:
    """Cancel a run that is open; leave an ended one as it is. What was held back must be stored already."""
    tx = batch.tx
    run_id, conversation, word, ended_seq, worker, last_seq, held_until = tx.rows("run_to_cancel", run=run)[0]
    status = read_status(word, ended_seq)
    if status.final:
        return
    next_status(status, Trigger.CANCEL)
    batch.knows_last_seq(conversation, last_seq)
    messages = load_messages(tx, [run])[run]
    _keep_partial_reply(batch, conversation, run, messages)
    _settle_calls(batch, conversation, run, messages)
    tx.run_all("close_approvals", [(run,)])
    ended_seq = batch.log(EventType.RUN_CANCELLED, conversation=conversation, run=run, run_id=run_id)
    tx.run("cancel_run", run=run, ended_seq=ended_seq, now=batch.now)
    if status is RunStatus.RUNNING and batch.worker_lives(worker):
        held_until = batch.now + HOLD_MS
        tx.run("hold_conversation", conversation=conversation, until=held_until)
    wake_next(batch, conversation, held_until)


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
    for run, _ in tx.rows("open_runs", conversation=conversation):
        end_run(batch, run)
    batch.flush()
    forget_erased(batch)
    tx.run("keep_erased_runs", conversation=conversation, now=batch.now, since=batch.now - ERASED_KEPT_MS)
    for kind in ("steps", "approvals", "calls", "messages", "events", "data_of_events", "runs", "conversation"):
        tx.run(f"erase_{kind}", conversation=conversation)
    batch.forget_conversation(conversation)
    erased: int = conversation
    return erased


def forget_erased(batch: Batch) -> None:
    """Remove what was left of erased runs when every process has had time to hear that they ended."""
    before = batch.now - ERASED_KEPT_MS
    batch.tx.run("forget_erased_events", before=before)
    batch.tx.run("forget_erased_runs", before=before)


def _keep_partial_reply(batch: Batch, conversation: int, run: int, messages: tuple[Message, ...]) -> None:
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
    batch.add_message(run, (message.turn, message_id, text, "stopped", None, batch.now))
    batch.log(
        EventType.MESSAGE_COMPLETED,
        conversation=conversation,
        run=run,
        run_id=last.run_id,
        turn=message.turn,
        subject=message,
    )


def _settle_calls(batch: Batch, conversation: int, run: int, messages: tuple[Message, ...]) -> None:
    settled = settle(messages)
    if not settled:
        return
    rows = [(run, one.turn, one.n, one.status.value, one.result) for one in settled]
    batch.tx.run_all("settle_calls", rows)
    calls = {(call.turn, call.n): call for message in messages for call in message.calls}
    for one in settled:
        batch.log(
            EventType.TOOL_COMPLETED,
            conversation=conversation,
            run=run,
            run_id=messages[0].run_id,
            turn=one.turn,
            n=one.n,
            subject=replace(calls[one.turn, one.n], status=one.status, result=one.result),
        )
