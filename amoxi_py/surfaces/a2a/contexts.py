"""Contexts: a conversation has its own id, or the name that its caller gave it in the first message.

Many clients send a `contextId` of their own making from the start. Such a name is the caller's alone: the id of its
conversation is made from both, so nobody can name a conversation of somebody else's.
"""

from __future__ import annotations

import re

from amoxi_py.domain.encoding import decode_json, encode_json
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound
from amoxi_py.ports.records import Record, RecordStore
from amoxi_py.surfaces.a2a.caller_keys import caller_key

KIND = "a2a.context"
_OURS = re.compile(r"conv_[0-9a-f]{26}")
_NAMED = "conv_f"
"""How the ids of conversations begin that callers have named; no id that is made from the time does, for long."""
_DIGITS = 25
_MOST_KNOWN = 10_000


class Contexts:
    """Finds conversations by their contexts' ids, and the other way round."""

    def __init__(self, engine: Engine, records: RecordStore) -> None:
        self._engine = engine
        self._records = records
        self._known: dict[str, str] = {}

    def conversation_of(self, context_id: str, principal: Principal) -> str:
        """Return the id of the conversation that a caller means, whether there is one or not."""
        if _OURS.fullmatch(context_id):
            return context_id
        return f"{_NAMED}{caller_key(principal, context_id)[:_DIGITS]}"

    async def agent_of(self, context_id: str, principal: Principal) -> str | None:
        """Return the agent of a context, which is the only one that it can be used with; None for a new name.

        Raises:
            NotFound: it is none of this caller's, and no name that a caller may give.
        """
        conversation_id = self.conversation_of(context_id, principal)
        try:
            page = await self._engine.read_conversation(conversation_id, principal, limit=1)
        except NotFound:
            if conversation_id == context_id:
                raise
            return None
        return page.conversation.agent

    async def keep(self, context_id: str, principal: Principal, *, anew: bool) -> None:
        """Keep the name of a conversation that has begun, so that any server can tell it.

        Where it has begun `anew` the name may have been erased with an earlier one, which this server would not know.
        """
        conversation_id = self.conversation_of(context_id, principal)
        if conversation_id == context_id or (conversation_id in self._known and not anew):
            return
        if await self._records.find_record(KIND, conversation_id) is None:
            kept = Record(kind=KIND, key=conversation_id, group=conversation_id, content=encode_json(context_id))
            await self._records.keep_record(kept)
        self._note(conversation_id, context_id)

    async def id_of(self, conversation_id: str) -> str:
        """Return the id by which a conversation's caller knows it."""
        if not conversation_id.startswith(_NAMED):
            return conversation_id
        known = self._known.get(conversation_id)
        if known is not None:
            return known
        record = await self._records.find_record(KIND, conversation_id)
        if record is None:  # it has begun in this moment, or its server ended then
            return conversation_id
        name = str(decode_json(record.content))
        self._note(conversation_id, name)
        return name

    def _note(self, conversation_id: str, name: str) -> None:
        if len(self._known) >= _MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[conversation_id] = name
