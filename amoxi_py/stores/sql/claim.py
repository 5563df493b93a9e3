"""Workers and their leases: enrolling, renewing, claiming due runs, taking over a dead worker's, letting go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amoxi_py.domain.encoding import encode_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.run import Lease, RunRows
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.store import WorkerKey
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cancel import forget_erased, wake_next
from amoxi_py.stores.sql.rotation import Rotation
from amoxi_py.stores.sql.rows import json_rows, load_leased_runs
from amoxi_py.stores.sql.times import millis_up

_TRIED = 4
_SUSPECTS_AT_ONCE = {2: 64, 3: 8}  # by their crashes; one of more crashes runs alone
CRASH_PAUSE_MS = 1000
"""How long a run rests after an error ended its execution, so that one that always fails does not spin."""


def enroll(batch: Batch, worker_id: str, lease_s: float) -> WorkerKey:
    """Register a worker, or find the one that was registered under this id."""
    batch.forget_workers()
    forget_erased(batch)
    expires_at = batch.lease.now + millis_up(lease_s)
    key = batch.tx.rows("insert_worker", id=worker_id, expires_at=expires_at, boot=batch.lease.boot)[0][0]
    return WorkerKey(id=worker_id, key=key)


def renew(batch: Batch, worker: WorkerKey, lease_s: float) -> None:
    """Extend a lease that has not expired."""
    renewed = batch.tx.rows(
        "renew_worker",
        key=worker.key,
        expires_at=batch.lease.now + millis_up(lease_s),
        lease_now=batch.lease.now,
        boot=batch.lease.boot,
    )
    if not renewed:
        raise LeaseLost(worker.id)


def retire(batch: Batch, worker: WorkerKey) -> None:
    """Hand over the runs that still name the worker, and forget it."""
    batch.forget_workers()
    batch.tx.run("hand_over_runs", worker=worker.key, now=batch.now)
    batch.tx.run("delete_worker", key=worker.key, lease_now=batch.lease.now)


def expire(batch: Batch, worker_id: str) -> None:
    """End a lease now; the runs that name the worker stay its own until somebody takes them over."""
    batch.forget_workers()
    batch.tx.run("expire_worker", id=worker_id, lease_now=batch.lease.now)


def release(batch: Batch, lease: Lease, crashed: bool, rest: float) -> None:
    """Queue a running run again; let the next one of the conversation go on after a cancelled one."""
    proof = {"run": lease.run, "worker": lease.worker, "fence": lease.fence}
    if crashed:
        released = batch.tx.rows("release_crashed_run", **proof, now=batch.now, wake_at=batch.now + CRASH_PAUSE_MS)
    else:
        released = batch.tx.rows("release_run", **proof, now=batch.now, wake_at=batch.now + millis_up(rest))
    if released:
        return
    if batch.tx.rows("let_go_cancelled_run", **proof) and not batch.tx.rows("tree_that_goes_on", run=lease.run):
        batch.tx.run("hold_conversation", conversation=lease.conversation, until=None)
        wake_next(batch, lease.conversation, None)


def claim(
    batch: Batch,
    rotation: Rotation,
    worker: WorkerKey,
    number: int,
    limit: int,
    conversations: Sequence[str] | None = None,
    runs: Sequence[str] | None = None,
) -> tuple[RunRows, ...]:
    """Lease runs of dead workers first, then due ones; a worker that is itself dead gets none."""
    tx = batch.tx
    workers = tx.rows("workers_to_look_at", key=worker.key, lease_now=batch.lease.now, boot=batch.lease.boot)
    claims = next((claims for key, claims, is_dead in workers if key == worker.key and not is_dead), None)
    if claims is None:
        return ()
    if number <= claims:
        claimed = [key for (key,) in tx.rows("runs_of_claim", worker=worker.key, number=number)]
        return tuple(load_leased_runs(tx, claimed).values())
    dead = json_rows([key for key, _, is_dead in workers if is_dead])
    if conversations is None and runs is None:
        due = _due(batch, rotation, worker, number, dead, limit)
    else:
        due = _apart(batch, worker, _due_among(batch, conversations or (), runs or (), dead, limit), dead)
    if due and tx.concurrent:
        due = _lock(batch, due, dead, limit)
    if due:
        tx.run("claim_runs", rows=json_rows(due), worker=worker.key, number=number, now=batch.now)
        tx.run("record_claim", key=worker.key, number=number)
    if dead != "[]":
        tx.run("delete_idle_workers", rows=dead)
    return _claimed(batch, due)


def _due(batch: Batch, rotation: Rotation, worker: WorkerKey, number: int, dead: str, limit: int) -> list[int]:
    tx = batch.tx
    left = [key for (key,) in tx.rows("runs_of_workers", rows=dead, limit=limit)] if dead != "[]" else []
    due = _apart(batch, worker, left, dead)
    if len(due) < limit:
        due += rotation.choose(tx, batch.now, number, limit - len(due))
    return due


def _apart(batch: Batch, worker: WorkerKey, runs: list[int], dead: str) -> list[int]:
    """Return runs without those that would run beside too many others of which one may kill its process.

    What was in two crashes, and got no further between them, runs beside few others like it, and in the end alone. So
    a run that always kills its process comes to its last attempt without those that were only near. Who is left out
    stays the dead worker's until there is room.
    """
    suspects = batch.tx.rows("suspects_among", rows=json_rows(runs)) if runs and dead != "[]" else []
    if not suspects:
        return runs
    crashes, count = batch.tx.rows("suspects_of_worker", worker=worker.key)[0]
    room = _room_beside(crashes or 0)
    left_out = set()
    for before, run in suspects:  # those of the fewest crashes first
        room = min(room, _room_beside(before + 1))
        if count < room:
            count += 1
        else:
            left_out.add(run)
    return [run for run in runs if run not in left_out]


def _room_beside(crashes: int) -> int:
    """Return how many runs with at least two crashes one worker may execute at once when one of them has so many."""
    return _SUSPECTS_AT_ONCE.get(max(crashes, 2), 1)


def _lock(batch: Batch, runs: list[int], dead: str, limit: int) -> list[int]:
    """Lock the conversations of runs that nobody else writes to, and return the runs in them that are still due.

    Others claim at the same moment, mostly the same runs: when they were first, those behind are tried.
    """
    due = _lock_some(batch, runs, dead)
    if dead != "[]" and len(due) < len(runs):
        batch.tx.run("end_frozen_clients", rows=json_rows(runs))
    if len(runs) == limit and len(due) < limit:
        behind = batch.tx.rows("due_runs", now=batch.now, limit=_TRIED * limit)
        more = [key for _, key, _ in behind if key not in runs]
        due += _lock_some(batch, more, dead)[: limit - len(due)] if more else []
    return due


def _lock_some(batch: Batch, runs: list[int], dead: str) -> list[int]:
    conversations = json_rows(key for (key,) in batch.tx.rows("lock_conversations_of_runs", rows=json_rows(runs)))
    still = batch.tx.rows("runs_still_due", rows=json_rows(runs), conversations=conversations, dead=dead, now=batch.now)
    found = {key for (key,) in still}
    return [run for run in runs if run in found]


def _due_among(batch: Batch, conversations: Sequence[str], runs: Sequence[str], dead: str, limit: int) -> list[int]:
    mine = {"conversations": json_rows(conversations), "runs": json_rows(runs)}
    rows = batch.tx.rows("due_runs_among", **mine, dead=dead, now=batch.now, limit=limit)
    return [key for (key,) in rows]


def _claimed(batch: Batch, runs: list[int]) -> tuple[RunRows, ...]:
    if not runs:
        return ()
    batch.flush()
    children = set()
    for key, _, conversation, *_, root, last_seq in batch.tx.rows("leased_runs", rows=json_rows(runs)):
        batch.knows_last_seq(conversation, last_seq)
        if root is not None:
            children.add(key)
    claimed = load_leased_runs(batch.tx, runs)
    for run in runs:
        rows = claimed[run]
        where: dict[str, Any] = {"conversation": rows.lease.conversation, "run": run, "run_id": rows.lease.run_id}
        where["hidden"] = run in children
        if rows.lease.fence == 1:
            batch.log(EventType.RUN_STARTED, **where)
        else:
            batch.log(EventType.RUN_RESUMED, **where, data=encode_json({"attempt": rows.attempt}))
    return tuple(claimed[run] for run in runs)
