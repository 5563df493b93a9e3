"""What readers see of runs and calls, and who may see a call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from amoxi_py.domain.approval import may_decide
from amoxi_py.domain.direct import direct_tool, told_result
from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.ids import call_id, parse_call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunFailure, Waiting
from amoxi_py.domain.usage import Usage
from amoxi_py.errors import NotFound
from amoxi_py.ports.views import CallView
from amoxi_py.stores.sql.rows import (
    json_rows,
    load_call,
    load_calls,
    load_messages,
    read_principal,
    read_status,
    read_usage,
    read_wait,
)
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.trees import load_trees

_TOLD_ABOVE = ("question", "sleep", "signal")  # what the calls of a run wait for that the runs above it show as well
_OF_CALLS = ("approval", "question", "sleep", "signal", "child")  # what these wait for is told by rows of their calls


def find_run(tx: Transaction, run_id: str, principal: Principal, agent: str | None) -> int:
    """Return the key of a principal's run; raise `NotFound`."""
    rows = tx.rows("find_run", id=run_id, principal=principal.owner_key, agent=agent)
    if not rows:
        raise NotFound("run", run_id)
    key: int = rows[0][0]
    return key


def seen_by(principal: Principal, readable: Sequence[str]) -> dict[str, str]:
    """Return the parameters of a statement that finds what is a principal's own, or of an agent that it may read."""
    return {
        "principal": principal.owner_key,
        "tenant": principal.tenant_key,
        "readable": json_rows(readable) if readable else "[]",
    }


def load_run(tx: Transaction, run: int) -> Run:
    """Load what readers see of a run."""
    return load_runs(tx, [run])[0]


def get_run(tx: Transaction, run_id: str, principal: Principal, agent: str | None, readable: Sequence[str]) -> Run:
    """Load what a principal sees of a run of its own, or of one that it may read; raise `NotFound`."""
    rows = tx.rows("run_view", id=run_id, agent=agent, **seen_by(principal, readable))
    if not rows:
        raise NotFound("run", run_id)
    return _runs(tx, rows)[rows[0][0]]


def run_messages(tx: Transaction, run_id: str, principal: Principal, *, calls: bool) -> tuple[Message, ...]:
    """Load all messages of a principal's run, with their calls or without; raise `NotFound`."""
    run = find_run(tx, run_id, principal, None)
    return load_messages(tx, [run], calls=calls)[run]


def load_runs(tx: Transaction, runs: Iterable[int]) -> tuple[Run, ...]:
    """Load what readers see of runs, in the order of the keys given."""
    keys = list(runs)
    loaded = _runs(tx, tx.rows("run_views", rows=json_rows(keys))) if keys else {}
    return tuple(loaded[key] for key in keys if key in loaded)


def load_call_view(tx: Transaction, id: str) -> tuple[Row, CallView] | None:
    """Load a call by its public id, with the row of its run: key, conversation, status, ... last number of the log."""
    parsed = parse_call_id(id)
    rows = tx.rows("call_view", run_id=parsed[0]) if parsed is not None else []
    if parsed is None or not rows:
        return None
    run_id, turn, n = parsed
    call = load_call(tx, rows[0][0], turn, n)
    if call is None:
        return None
    _, _, _, _, agent, conversation_id, principal, facts, _, root_id, _ = rows[0]
    view = CallView(
        call=call,
        run_id=root_id or run_id,
        agent=agent,
        conversation_id=conversation_id,
        requested_by=read_principal(principal, facts),
    )
    return rows[0], view


def told_of_call(row: Row, view: CallView) -> dict[str, Any]:
    """Return of which run an event about a call of `load_call_view` is told: of the root, pointing to a child's row."""
    run, root = row[0], row[8]
    return {"run": run if root is None else root, "run_id": view.run_id, "source": None if root is None else run}


def load_call_views(tx: Transaction, rows: list[Row]) -> tuple[CallView, ...]:
    """Load calls by the rows of a list of approvals, in its order."""
    if not rows:
        return ()
    of_turns = load_calls(tx, sorted({(row[0], row[1]) for row in rows}))
    calls = {(*place, call.n): call for place, of_turn in of_turns.items() for call in of_turn}
    return tuple(
        CallView(
            call=calls[run, turn, n],
            run_id=run_id,
            agent=agent,
            conversation_id=conversation_id,
            requested_by=read_principal(principal, facts),
        )
        for run, turn, n, run_id, agent, conversation_id, principal, facts in rows
    )


def is_approver(view: CallView, principal: Principal, allowed: bool) -> bool:
    """Whether a principal may decide about a call."""
    approval = view.call.approval
    return approval is not None and may_decide(approval, principal, view.requested_by, allowed=allowed)


def _runs(tx: Transaction, rows: list[Row]) -> dict[int, Run]:
    trees = load_trees(tx, {row[-1] for row in rows if row[-1] is not None})
    open_runs = {row[0]: trees.open_below(row[0]) for row in rows if not read_status(row[6], row[7]).final}
    approvals: dict[int, list[Row]] = defaultdict(list)
    waits: dict[int, list[Row]] = defaultdict(list)
    if open_runs:  # a running one may wait for something about one call while others of its reply run
        keys = json_rows(sorted({*open_runs, *(key for of_run in open_runs.values() for key, _ in of_run)}))
        for approval in tx.rows("open_approvals_of_runs", rows=keys):
            approvals[approval[0]].append(approval)
        for wait in tx.rows("open_waits_of_runs", rows=keys):
            waits[wait[0]].append(wait)
    runs = {}
    for row in rows:
        key, run_id, below_it = row[0], row[1], open_runs.get(row[0], [])
        waiting_for = (
            *(
                _of_approval(its_id, approval)
                for run, its_id in ((key, run_id), *below_it)
                for approval in approvals[run]
            ),
            *(_of_call(run_id, wait, trees.agents) for wait in waits[key]),
            *(
                _of_call(its_id, wait, trees.agents)
                for run, its_id in below_it
                for wait in waits[run]
                if wait[6] in _TOLD_ABOVE
            ),
            *_of_run(row[8]),
        )
        root_id = None if row[-1] in (None, key) else trees.id_of(row[-1])
        runs[key] = _run(row, waiting_for, trees.usage_below(key), root_id)
    return runs


def _run(row: Row, waiting_for: tuple[Waiting, ...], used_below: Usage, root_id: str | None) -> Run:
    _, run_id, agent, conversation_id, principal, facts, status, ended_seq, _, attempt, *more = row
    *used, error, result, created_at, updated_at, status_at, output, _ = more
    if output is not None and direct_tool(agent) is not None:
        output, result = told_result(output)
    return Run(
        id=run_id,
        agent=agent,
        conversation_id=conversation_id,
        principal=read_principal(principal, facts),
        status=read_status(status, ended_seq),
        output=output,
        result=result,
        error=None if error is None else _failure(decode_json(error)),
        waiting_for=waiting_for,
        attempt=attempt,
        usage=read_usage(used) + used_below,
        created_at=seconds(created_at),
        updated_at=seconds(updated_at),
        root_id=root_id,
        status_at=None if status_at is None else seconds(status_at),
    )


def _failure(stored: dict[str, str]) -> RunFailure:
    return RunFailure(code=stored["code"], message=stored["message"])


def _of_run(waits: str | None) -> Iterable[Waiting]:
    kinds: list[Any] = [] if waits is None else decode_json(waits)
    return (Waiting(kind=kind) for kind in kinds if kind not in _OF_CALLS)


def _of_approval(run_id: str, row: Row) -> Waiting:
    _, turn, n, tool, arguments, expires_at = row
    return Waiting(
        kind="approval",
        call_id=call_id(run_id, turn, n),
        tool=tool,
        arguments=arguments,
        expires_at=None if expires_at is None else seconds(expires_at),
    )


def _of_call(run_id: str, row: Row, agents: Mapping[str, str]) -> Waiting:
    _, turn, n, tool, arguments, *columns = row
    wait = read_wait(columns)
    return Waiting(
        kind=wait.kind,
        call_id=call_id(run_id, turn, n),
        tool=tool,
        arguments=arguments,
        expires_at=wait.until,
        name=agents.get(wait.name, wait.name) if wait.kind == "child" else wait.name or None,
        schema=wait.schema,
        k=wait.k if wait.kind == "question" else None,
    )
