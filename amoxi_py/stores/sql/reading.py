"""Reads for the outside: lists, and a conversation with the number that joins it to its stream."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from amoxi_py.domain.approval import FUNCTION, OWNER
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.errors import NotFound
from amoxi_py.ports.views import CallView, Conversation, ConversationPage, Page
from amoxi_py.stores.sql.cursor import decode_cursor, encode_cursor
from amoxi_py.stores.sql.rows import load_turns, load_waits
from amoxi_py.stores.sql.times import millis, seconds
from amoxi_py.stores.sql.transaction import Row, Transaction
from amoxi_py.stores.sql.views import is_approver, load_call_view, load_call_views, load_runs, seen_by


def list_runs(tx: Transaction, principal: Principal, agent: str | None, limit: int, cursor: str | None) -> Page[Run]:
    """Return a principal's runs, newest first."""
    (before,) = decode_cursor("runs", cursor, 1)
    rows = tx.rows("list_runs", principal=principal.owner_key, agent=agent, before=before, limit=limit + 1)
    keys = [key for (key,) in rows[:limit]]
    more = encode_cursor("runs", keys[-1]) if len(rows) > limit else None
    return Page(items=load_runs(tx, keys), next_cursor=more)


def get_call(tx: Transaction, call_id: str, principal: Principal) -> CallView:
    """Return a call to its owner and to who may decide about it; for `function` approvers the engine looks."""
    found = load_call_view(tx, call_id)
    if found is None:
        raise NotFound("call", call_id)
    (run, *_), view = found
    if principal.owner_key != view.requested_by.owner_key and not is_approver(view, principal, allowed=True):
        raise NotFound("call", call_id)
    last = 0 if view.call.wait is None else view.call.wait.k
    places = [(run, view.call.turn, view.call.n, k) for k in range(1, last + 1)]
    waits = load_waits(tx, places) if places else {}
    return replace(view, waits=tuple(waits[place] for place in places if place in waits))


def list_approvals(
    tx: Transaction, principal: Principal, now: float, functions: bool, limit: int, cursor: str | None
) -> Page[CallView]:
    """Return the open approvals that a principal may decide, or about which a function has to be asked."""
    rules = [(OWNER, principal.owner_key)]
    rules += [(f"role:{role}", principal.tenant_key) for role in sorted(principal.roles)]
    rules += [(FUNCTION, principal.tenant_key)] if functions else []
    run, turn, n = (0, 0, 0) if cursor is None else decode_cursor("approvals", cursor, 3)
    where = {"run": run, "turn": turn, "n": n, "now": millis(now), "limit": limit + 1}
    found = (tx.rows("list_approvals", approver=approver, whose=whose, **where) for approver, whose in rules)
    rows = sorted(row for of_rule in found for row in of_rule)[: limit + 1]  # no call is of two rules
    more = encode_cursor("approvals", *rows[limit - 1][:3]) if len(rows) > limit else None
    return Page(items=load_call_views(tx, rows[:limit]), next_cursor=more)


def list_conversations(
    tx: Transaction, principal: Principal, agent: str | None, limit: int, cursor: str | None
) -> Page[Conversation]:
    """Return a principal's conversations, newest first."""
    (before,) = decode_cursor("conversations", cursor, 1)
    rows = tx.rows("list_conversations", principal=principal.owner_key, agent=agent, before=before, limit=limit + 1)
    more = encode_cursor("conversations", rows[limit - 1][0]) if len(rows) > limit else None
    return Page(items=tuple(_conversation(row) for row in rows[:limit]), next_cursor=more)


def read_conversation(
    tx: Transaction,
    conversation_id: str,
    principal: Principal,
    agent: str | None,
    limit: int,
    cursor: str | None,
    readable: Sequence[str] = (),
) -> ConversationPage:
    """Return messages of a conversation, and the number after which a stream brings what is not in them.

    While a reply is streamed that number lies before its first delta, so messages told after it are left out.
    """
    rows = tx.rows("find_conversation", id=conversation_id, agent=agent, **seen_by(principal, readable))
    if not rows:
        raise NotFound("conversation", conversation_id)
    conversation, last_seq = rows[0][0], rows[0][6]
    ((first_delta,),) = tx.rows("first_delta", conversation=conversation)
    later: set[tuple[int, int]] = set()
    if first_delta is not None:
        last_seq = first_delta - 1
        later = {(run, turn) for run, turn in tx.rows("messages_told_later", conversation=conversation, seq=last_seq)}
    before_run, before_turn = decode_cursor("messages", cursor, 2)
    places = tx.rows(
        "newest_messages",
        conversation=conversation,
        run=before_run,
        turn=before_turn,
        limit=limit + 1 + len(later),
    )
    shown = [(run, turn) for run, turn in places if (run, turn) not in later]
    messages = load_turns(tx, shown[:limit])
    return ConversationPage(
        conversation=_conversation(rows[0]),
        messages=Page(
            items=tuple(message for run in sorted(messages) for message in messages[run]),
            next_cursor=encode_cursor("messages", *shown[limit - 1]) if len(shown) > limit else None,
        ),
        last_event_id=last_seq,
    )


def _conversation(row: Row) -> Conversation:
    _, conversation_id, agent, title, created_at, updated_at, *_ = row
    return Conversation(
        id=conversation_id, agent=agent, title=title, created_at=seconds(created_at), updated_at=seconds(updated_at)
    )
