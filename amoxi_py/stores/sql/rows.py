"""From rows to the domain's values: messages with their calls, and all that a worker needs of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal, id_of_owner, principal_from_json, principal_to_json
from amoxi_py.domain.run import Ancestor, Lease, RunRows, RunStatus
from amoxi_py.domain.tool_call import CallStatus, Effect, StepRecord, ToolCall
from amoxi_py.domain.usage import Usage
from amoxi_py.domain.wait import Wait
from amoxi_py.errors import LeaseLost
from amoxi_py.ports.changes import History, HistoryMark, Summary
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.transaction import Row, Transaction

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_EFFECTS = {effect.value: effect for effect in Effect}
_RUN_STATUSES = {status.value: status for status in RunStatus}
_STATUSES = {status.value: status for status in CallStatus}
_OF_CALL, _OF_APPROVAL = 11, 7  # columns
_ROOT = -2  # column of a leased run


def call_row(run: int, call: ToolCall) -> Row:
    """Return the row of a new call; one that has started has been tried."""
    tries = max(call.tries, int(call.status is CallStatus.STARTED))
    what = (call.tool, call.arguments, call.effect.value, call.status.value)
    return (run, call.turn, call.n, *what, tries, call.failures, call.result)


def json_rows(rows: Iterable[Any]) -> str:
    """Return the JSON array that a statement's `rows` parameter takes."""
    return _ENCODE(list(rows))


def principal_facts(principal: Principal) -> str:
    """Return what is stored of a principal beside its id."""
    return encode_json(principal_to_json(principal))


def read_principal(owner: str, facts: str) -> Principal:
    """Return the principal that was stored with a run."""
    return principal_from_json(id_of_owner(owner), decode_json(facts))


def read_status(status: str, ended_seq: int | None) -> RunStatus:
    """Return a run's status; a word of a newer version counts as waiting, or as failed once the run has ended."""
    known = _RUN_STATUSES.get(status)
    if known is not None:
        return known
    return RunStatus.WAITING if ended_seq is None else RunStatus.FAILED


def load_messages(tx: Transaction, runs: Iterable[int], *, calls: bool = True) -> dict[int, tuple[Message, ...]]:
    """Load all messages of runs, with their calls or without, in order, by the run's key."""
    return _with_calls(tx, tx.rows("messages_of_runs", rows=json_rows(runs)), calls=calls)


def load_turns(tx: Transaction, turns: Iterable[tuple[int, int]]) -> dict[int, tuple[Message, ...]]:
    """Load some messages, by run's key and turn, with their calls, in order, by the run's key."""
    return _with_calls(tx, tx.rows("messages_of_turns", rows=json_rows(turns)))


def load_calls(tx: Transaction, turns: Iterable[tuple[int, int]]) -> dict[tuple[int, int], list[ToolCall]]:
    """Load the calls of messages, in order, by run's key and turn."""
    calls: dict[tuple[int, int], list[ToolCall]] = defaultdict(list)
    for row in tx.rows("calls_of_turns", rows=json_rows(turns)):
        calls[row[0], row[2]].append(_call(row))
    return calls


def load_calls_of_events(
    tx: Transaction, ranges: Iterable[tuple[int, int, int, int]], *, results: bool
) -> dict[tuple[int, int], list[ToolCall]]:
    """Load calls by run's key, turn, and their first and last number in it; without their results, or with them."""
    calls: dict[tuple[int, int], list[ToolCall]] = defaultdict(list)
    for row in tx.rows("calls_of_events", rows=json_rows(ranges), results=results):
        calls[row[0], row[2]].append(_call(row))
    return calls


def load_messages_of_events(tx: Transaction, turns: Iterable[tuple[int, int]]) -> list[tuple[int, Message]]:
    """Load some messages with the run's key, in order; their calls are left out."""
    return [(row[0], _message(row, ())) for row in tx.rows("messages_of_turns", rows=json_rows(turns))]


def load_call(tx: Transaction, run: int, turn: int, n: int) -> ToolCall | None:
    """Load one call."""
    return next((call for call in load_calls(tx, [(run, turn)])[run, turn] if call.n == n), None)


def load_waits(tx: Transaction, places: Iterable[tuple[int, int, int, int]]) -> dict[tuple[int, int, int, int], Wait]:
    """Load waits by run's key, turn, number of the call in it, and place among the waits of that call."""
    return {(row[0], row[1], row[2], row[3]): read_wait(row[3:]) for row in tx.rows("waits_at", rows=json_rows(places))}


def load_history(tx: Transaction, lease: Lease, known: HistoryMark | None = None) -> History:
    """Load what was said in a thread before a run: after its newest summary, or after what is known beyond that."""
    found = tx.rows("newest_summary", run=lease.run)
    if not found:  # erased
        raise LeaseLost(lease.run_id)
    summary, run, run_id, turn, text = found[0]
    after = (0, -1) if summary is None else (run, turn)
    # A summary that is of a later run stands for a part of what comes after what is known.
    follows = known is not None and known.summary == summary and after[0] < known.run <= lease.run
    if known is not None and follows:
        after = (known.run, -1)
    where = {"conversation": lease.conversation, "after_run": after[0], "after_turn": after[1], "run": lease.run}
    messages = _with_calls(tx, tx.rows("earlier_messages", **where))
    return History(
        messages=tuple(message for of_run in messages.values() for message in of_run),
        summary=None if summary is None else Summary(run_id=run_id, turn=turn, text=text),
        follows=follows,
        mark=HistoryMark(lease.run, summary),
    )


def load_leased_runs(tx: Transaction, runs: Iterable[int]) -> dict[int, RunRows]:
    """Load all that a worker needs of runs, by the run's key."""
    keys = list(runs)
    if not keys:
        return {}
    rows = json_rows(keys)
    messages = load_messages(tx, keys)
    steps: dict[int, dict[tuple[int, int], tuple[StepRecord, ...]]] = defaultdict(dict)
    for run, turn, n, name, value, failed in tx.rows("steps_of_runs", rows=rows):
        record = StepRecord(name=name, value=value, failed=bool(failed))
        steps[run][turn, n] = (*steps[run].get((turn, n), ()), record)
    waits: dict[int, dict[tuple[int, int], tuple[Wait, ...]]] = defaultdict(dict)
    waited = [run for run, of_run in messages.items() if any(call.wait for one in of_run for call in one.calls)]
    for run, turn, n, *wait in tx.rows("waits_of_runs", rows=json_rows(waited)) if waited else ():
        waits[run][turn, n] = (*waits[run].get((turn, n), ()), read_wait(wait))
    partials = {run: decode_json(data)["message_id"] for run, data in tx.rows("deltas_of_runs", rows=rows)}
    leased = tx.rows("leased_runs", rows=rows)
    ancestors = _load_ancestors(tx, [row[0] for row in leased if row[_ROOT] is not None])
    return {
        row[0]: _leased_run(
            row,
            messages.get(row[0], ()),
            steps.get(row[0], {}),
            waits.get(row[0], {}),
            partials.get(row[0]),
            tuple(ancestors.get(row[0], ())),
        )
        for row in leased
    }


def _load_ancestors(tx: Transaction, runs: list[int]) -> dict[int, list[Ancestor]]:
    ancestors: dict[int, list[Ancestor]] = defaultdict(list)
    for below, run, run_id, agent, turn, n, created_at in (
        tx.rows("ancestors_of_runs", rows=json_rows(runs)) if runs else ()
    ):
        above = Ancestor(run=run, run_id=run_id, agent=agent, turn=turn, n=n, created_at=seconds(created_at))
        ancestors[below].append(above)
    return ancestors


def _leased_run(
    row: Row,
    messages: tuple[Message, ...],
    steps: dict[tuple[int, int], tuple[StepRecord, ...]],
    waits: dict[tuple[int, int], tuple[Wait, ...]],
    partial: str | None,
    ancestors: tuple[Ancestor, ...],
) -> RunRows:
    run, run_id, conversation, worker, fence, agent, conversation_id, principal, facts, attempt, crashes, *more = row
    changes, model_failures, *used, instructions, created_at, trace, first_seq, _, _ = more
    return RunRows(
        lease=Lease(run_id=run_id, run=run, conversation=conversation, worker=worker, fence=fence),
        agent=agent,
        conversation_id=conversation_id,
        principal=read_principal(principal, facts),
        attempt=attempt,
        crashes=crashes,
        changes=changes,
        model_failures=model_failures,
        usage=read_usage(used),
        messages=messages,
        steps=steps,
        partial=partial,
        instructions=instructions,
        waits=waits,
        ancestors=ancestors,
        created_at=seconds(created_at),
        trace=trace,
        first_seq=first_seq,
    )


def read_usage(columns: Sequence[int]) -> Usage:
    """Return what a run has used, from its columns in their order."""
    requests, input_tokens, output_tokens, cached_tokens, written_tokens, cost = columns
    return Usage(
        requests=requests,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        written_tokens=written_tokens,
        cost=cost,
    )


def read_wait(columns: Sequence[Any]) -> Wait:
    """Return what a call waits for, from the columns of a wait in their order."""
    k, kind, name, schema, created_at, until, value, by = columns
    return Wait(
        k=k,
        kind=kind,
        name=name,
        schema=schema,
        created_at=seconds(created_at),
        until=None if until is None else seconds(until),
        value=value,
        by=by,
    )


def _with_calls(tx: Transaction, rows: list[Row], *, calls: bool = True) -> dict[int, tuple[Message, ...]]:
    replies = [(row[0], row[2]) for row in rows if row[2] > 0]
    found = load_calls(tx, replies) if calls and replies else {}
    messages: dict[int, list[Message]] = defaultdict(list)
    for row in rows:
        messages[row[0]].append(_message(row, tuple(found.get((row[0], row[2]), ()))))
    return {run: tuple(of_run) for run, of_run in messages.items()}


def _message(row: Row, calls: tuple[ToolCall, ...]) -> Message:
    _, run_id, turn, message_id, text, status, files, created_at, kept = row
    return Message(
        id=message_id,
        run_id=run_id,
        turn=turn,
        role="user" if turn == 0 else "assistant",
        text=text,
        status=status or "complete",
        files=() if files is None else tuple(decode_json(files)),
        calls=calls,
        created_at=seconds(created_at),
        kept=kept,
    )


def _call(row: Row) -> ToolCall:
    _, run_id, turn, n, tool, arguments, effect, status, tries, failures, result = row[:_OF_CALL]
    approval, wait = row[_OF_CALL : _OF_CALL + _OF_APPROVAL], row[_OF_CALL + _OF_APPROVAL :]
    return ToolCall(
        id=call_id(run_id, turn, n),
        turn=turn,
        n=n,
        tool=tool,
        arguments=arguments,
        effect=_EFFECTS.get(effect, Effect.UNSAFE),  # a word of a newer version is taken as the careful one
        status=_STATUSES.get(status, CallStatus.UNKNOWN),
        tries=tries,
        failures=failures,
        result=result,
        approval=None if approval[0] is None else _approval(*approval),
        wait=None if not wait or wait[0] is None else read_wait(wait),
    )


def _approval(
    approver: str,
    created_at: int,
    expires_at: int | None,
    decision: Any,
    by: str | None,
    reason: str | None,
    arguments: str | None,
) -> Approval:
    return Approval(
        approver=approver,
        created_at=seconds(created_at),
        expires_at=None if expires_at is None else seconds(expires_at),
        decision=decision,
        by=by,
        reason=reason,
        arguments=arguments,
    )
