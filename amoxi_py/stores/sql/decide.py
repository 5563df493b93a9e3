"""A person's decision about a call: the first one is recorded, and wakes the run that waits for it."""

from __future__ import annotations

from msgspec.structs import replace

from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import clean_text, ordered_json
from amoxi_py.domain.event import EventType
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.errors import Conflict, Forbidden, NotFound
from amoxi_py.ports.inputs import Verdict
from amoxi_py.ports.views import CallView
from amoxi_py.stores.sql.batch import Batch
from amoxi_py.stores.sql.rows import read_status
from amoxi_py.stores.sql.times import seconds
from amoxi_py.stores.sql.views import is_approver, load_call_view, told_of_call


def decide(batch: Batch, verdict: Verdict) -> tuple[Approval, CallView]:
    """Record a decision, or find the same one recorded."""
    batch.flush()
    found = load_call_view(batch.tx, verdict.call_id)
    if found is None:
        raise NotFound("approval", verdict.call_id)
    row, view = found
    run, conversation, status, ended_seq, *_, last_seq = row
    approval = _decidable(view, verdict)
    if approval.decision is not None:
        return _recorded(approval, verdict), view
    if read_status(status, ended_seq).final or view.call.status is not CallStatus.OPEN:
        raise Conflict(f"the call {verdict.call_id!r} has ended; nothing is to be decided", code="approval_closed")
    if approval.expired(seconds(batch.now)):
        raise Conflict(f"the approval of {verdict.call_id!r} has expired", code="approval_expired")
    decided = replace(
        approval,
        decision=verdict.decision,
        by=verdict.principal.id,
        reason=None if verdict.reason is None else clean_text(verdict.reason),
        arguments=verdict.arguments,
    )
    call = replace(view.call, approval=decided)
    batch.tx.run(
        "decide_approval",
        run=run,
        turn=call.turn,
        n=call.n,
        decision=decided.decision,
        by=decided.by,
        reason=decided.reason,
        arguments=decided.arguments,
        now=batch.now,
    )
    batch.tx.run("wake_run", run=run, now=batch.now)
    batch.knows_last_seq(conversation, last_seq)
    batch.log(
        EventType.APPROVAL_DECIDED,
        conversation=conversation,
        **told_of_call(row, view),
        turn=call.turn,
        n=call.n,
        subject=call,
    )
    return decided, replace(view, call=call)


def _decidable(view: CallView, verdict: Verdict) -> Approval:
    approval = view.call.approval
    owner = verdict.principal.owner_key == view.requested_by.owner_key
    if approval is None or verdict.run_id != view.run_id:
        raise NotFound("approval", verdict.call_id)
    if not verdict.operator and not is_approver(view, verdict.principal, verdict.allowed):
        if owner:
            raise Forbidden(f"the call {verdict.call_id!r} is for somebody else to decide", code="not_approver")
        raise NotFound("approval", verdict.call_id)
    return approval


def _recorded(approval: Approval, verdict: Verdict) -> Approval:
    if approval.decision == "expire":
        raise Conflict(f"the approval of {verdict.call_id!r} has expired", code="approval_expired")
    if approval.decision != verdict.decision or _ordered(approval.arguments) != _ordered(verdict.arguments):
        raise Conflict(f"the call {verdict.call_id!r} was decided already: {approval.decision}", code="already_decided")
    return approval


def _ordered(arguments: str | None) -> str | None:
    return None if arguments is None else ordered_json(arguments)
