"""Deleting what is old, and what there is of one principal: each looks at a bounded number of rows, along an index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from amoxi_py.domain.ids import call_id
from amoxi_py.domain.principal import Principal
from amoxi_py.errors import NotFound
from amoxi_py.ports.files import StoredFile
from amoxi_py.ports.kept_data import KeptRun, KeptSummary, MadeDecision
from amoxi_py.ports.records import group_of
from amoxi_py.ports.views import Page
from amoxi_py.stores.sql import files
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.cancel import erase_all_of
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import json_rows, load_leased_runs
from amoxi_py.stores.sql.times import KEY_LIFE_MS, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import load_runs

AT_ONCE = 100
"""The most that a piece of forgetting deletes."""
_WALKED_AT_ONCE = 500
_MOST_TENANTS = 10


def find_old(tx: Transaction, after: int, before: int, limit: int) -> tuple[list[int], int | None]:
    """Return keys of up to `limit` of the next conversations to purge, and where to go on; None at the end.

    It ends with the first ones that have begun later: those behind them have too.
    """
    rows = tx.rows("conversations_after", key=after, before=before, limit=_WALKED_AT_ONCE)
    found: list[int] = []
    for key, _, old in rows:
        if old:
            found.append(key)
        if len(found) == limit:
            return found, key
    if len(rows) < _WALKED_AT_ONCE or all(created_at > before for _, created_at, _ in rows):
        return found, None
    return found, rows[-1][0]


def count_old(tx: Transaction, keys: Sequence[int], before: int) -> tuple[int, int]:
    """Return how many of these conversations are to be purged, and how many runs they have."""
    rows = tx.rows("conversations_to_purge", rows=json_rows(keys), before=before)
    return len(rows), sum(runs for _, runs in rows)


def purge(batch: Batch, keys: Sequence[int], before: int) -> tuple[int, int, list[str]]:
    """Delete those of the conversations that still are to be purged; return both counts, and names of bytes."""
    batch.flush()
    rows = batch.tx.rows("conversations_to_purge", rows=json_rows(keys), before=before)
    blobs: list[str] = []
    for conversation, _ in rows:
        erase_all_of(batch, conversation)
        blobs += files.erase_files(batch, conversation)
    return len(rows), sum(runs for _, runs in rows), blobs


def has_old_keys(tx: Transaction, now: int) -> bool:
    """Whether idempotency keys are there that are known no more."""
    times = tx.rows("times_of_oldest_keys", limit=AT_ONCE)
    return any(created_at <= now - KEY_LIFE_MS for (created_at,) in times)


def sweep_idempotency_keys(batch: Batch) -> bool:
    """Remove some that are known no more; return whether there were any."""
    rows = batch.tx.rows("oldest_idempotency_keys", limit=AT_ONCE)
    old = [key for key, created_at in rows if created_at <= batch.now - KEY_LIFE_MS]
    if old:
        batch.tx.run("delete_idempotency_keys", rows=json_rows(old))
    return bool(old)


def forget_files(batch: Batch, principal: Principal) -> tuple[int, list[str]]:
    """Delete some files of a principal, wherever they are used; return how many, and names of their bytes."""
    return files.forget_files_of(batch, principal, AT_ONCE)


def forget_keys(batch: Batch, principal: Principal) -> int:
    """Delete some idempotency keys of a principal; return how many."""
    keys = [key for (key,) in batch.tx.rows("keys_of_principal", principal=principal.owner_key, limit=AT_ONCE)]
    if keys:
        batch.tx.run("delete_idempotency_keys", rows=json_rows(keys))
    return len(keys)


def forget_records(batch: Batch, principal: Principal) -> tuple[int, bool]:
    """Delete some records that belong to a principal; return how many were not taken, and whether there may be more."""
    rows = batch.tx.rows("forget_records_of", family=group_of(principal), limit=AT_ONCE)
    return sum(taken_by is None for (taken_by,) in rows), len(rows) == AT_ONCE


def forget_decider(batch: Batch, decisions: Sequence[Row], principal: Principal) -> None:
    """Take a principal's name out of decisions."""
    batch.tx.run_all("forget_deciders", [(run, turn, n, principal.id) for run, turn, n, *_ in decisions])


def some_decisions(tx: Transaction, principal: Principal) -> list[Row]:
    """Return rows of the first decisions of a principal; they begin with run, turn, number and the run's id."""
    return tx.rows("decisions_of", **_whose(principal), run=0, turn=0, n=0, limit=AT_ONCE)


def made_decisions(tx: Transaction, principal: Principal, limit: int, cursor: str | None) -> Page[MadeDecision]:
    """Return what a principal has decided."""
    run, turn, n = (0, 0, 0) if cursor is None else decode_cursor("decisions", cursor, 3)
    rows = tx.rows("decisions_of", **_whose(principal), run=run, turn=turn, n=n, limit=limit + 1)
    made = tuple(
        MadeDecision(
            call_id=call_id(run_id, turn, n),
            run_id=run_id,
            decision=decision,
            decided_at=seconds(decided_at),
            reason=reason,
        )
        for _, turn, n, run_id, decision, decided_at, reason in rows[:limit]
    )
    more = encode_cursor("decisions", *rows[limit - 1][:3]) if len(rows) > limit else None
    return Page(items=made, next_cursor=more)


def kept_runs(
    tx: Transaction, conversation_id: str, principal: Principal, limit: int, cursor: str | None
) -> Page[KeptRun]:
    """Return runs of a conversation with all of their rows."""
    (after,) = (0,) if cursor is None else decode_cursor("kept-runs", cursor, 1)
    where = {"id": conversation_id, "principal": principal.owner_key}
    rows = tx.rows("all_runs_of_conversation", **where, after=after, limit=limit + 1)
    if not rows and not tx.rows("conversation_to_erase", **where, agent=None):
        raise NotFound("conversation", conversation_id)
    keys = [key for (key,) in rows[:limit]]
    all_rows = load_leased_runs(tx, keys)
    summaries: dict[int, list[KeptSummary]] = defaultdict(list)
    for key, text, created_at in tx.rows("summaries_of_runs", run=keys[0], rows=json_rows(keys)) if keys else ():
        summaries[key].append(KeptSummary(text=text, created_at=seconds(created_at)))
    kept = tuple(
        KeptRun(run=run, rows=all_rows[key], summaries=tuple(summaries[key]))
        for key, run in zip(keys, load_runs(tx, keys), strict=True)
    )
    return Page(items=kept, next_cursor=encode_cursor("kept-runs", keys[-1]) if len(rows) > limit else None)


def kept_files(tx: Transaction, principal: Principal, limit: int, cursor: str | None) -> Page[StoredFile]:
    """Return files of a principal."""
    (after,) = (0,) if cursor is None else decode_cursor("kept-files", cursor, 1)
    rows = tx.rows("files_of_principal", principal=principal.owner_key, after=after, limit=limit + 1)
    found = tuple(files.stored(row) for row in rows[:limit])
    more = encode_cursor("kept-files", rows[limit - 1][0]) if len(rows) > limit else None
    return Page(items=found, next_cursor=more)


def tenants_with(tx: Transaction, principal_id: str) -> tuple[str, ...]:
    """Return the first tenants in which a principal of this id has conversations."""
    found: list[str] = []
    after: str | None = principal_id
    while len(found) < _MOST_TENANTS:
        ((after,),) = tx.rows("next_owner", after=after, until=principal_id + " ")
        if after is None:
            break
        found.append(after[len(principal_id) + 1 :])
    return tuple(found)


def _whose(principal: Principal) -> dict[str, str]:
    return {"by": principal.id, "tenant": principal.tenant_key}
