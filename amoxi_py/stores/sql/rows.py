"""From rows to the domain's values: messages with their calls, and all that a worker needs of a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.ids import call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal, id_of_owner, principal_from_json, principal_to_json
from amoxi_py.domain.run import Lease, RunRows, RunStatus
from amoxi_py.domain.tool_call import CallStatus, Effect, StepRecord, ToolCall
from amoxi_py.domain.usage import Usage
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.transaction import Row, Transaction

_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_EFFECTS = {effect.value: effect for effect in Effect}
_RUN_STATUSES = {status.value: status for status in RunStatus}
_STATUSES = {status.value: status for status in CallStatus}


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


def load_messages(tx: Transaction, runs: Iterable[int]) -> dict[int, tuple[Message, ...]]:
    """Load all messages of runs, with their calls, in order, by the run's key."""
    return _with_calls(tx, tx.rows("messages_of_runs", rows=json_rows(runs)))


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
    partials = {run: decode_json(data)["message_id"] for run, data in tx.rows("deltas_of_runs", rows=rows)}
    return {
        row[0]: _leased_run(row, messages.get(row[0], ()), steps.get(row[0], {}), partials.get(row[0]))
        for row in tx.rows("leased_runs", rows=rows)
    }


def _leased_run(
    row: Row,
    messages: tuple[Message, ...],
    steps: dict[tuple[int, int], tuple[StepRecord, ...]],
    partial: str | None,
) -> RunRows:
    run, run_id, conversation, worker, fence, agent, conversation_id, principal, facts, attempt, crashes, *more = row
    changes, model_failures, requests, input_tokens, output_tokens, instructions, _ = more
    return RunRows(
        lease=Lease(run_id=run_id, run=run, conversation=conversation, worker=worker, fence=fence),
        agent=agent,
        conversation_id=conversation_id,
        principal=read_principal(principal, facts),
        attempt=attempt,
        crashes=crashes,
        changes=changes,
        model_failures=model_failures,
        usage=Usage(requests=requests, input_tokens=input_tokens, output_tokens=output_tokens),
        messages=messages,
        steps=steps,
        partial=partial,
        instructions=instructions,
    )


def _with_calls(tx: Transaction, rows: list[Row]) -> dict[int, tuple[Message, ...]]:
    replies = [(row[0], row[2]) for row in rows if row[2] > 0]
    calls = load_calls(tx, replies) if replies else {}
    messages: dict[int, list[Message]] = defaultdict(list)
    for row in rows:
        messages[row[0]].append(_message(row, tuple(calls.get((row[0], row[2]), ()))))
    return {run: tuple(of_run) for run, of_run in messages.items()}


def _message(row: Row, calls: tuple[ToolCall, ...]) -> Message:
    _, run_id, turn, message_id, text, status, files, created_at = row
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
    )


def _call(row: Row) -> ToolCall:
    _, run_id, turn, n, tool, arguments, effect, status, tries, failures, result, approver, *approval = row
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
        approval=None if approver is None else _approval(approver, *approval),
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
