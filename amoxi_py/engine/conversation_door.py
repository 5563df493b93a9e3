"""The part of the door for who talks: which agents there are for a principal, and its conversations with them."""

from __future__ import annotations

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.principal import Principal
from amoxi_py.engine.task_door import TaskDoor
from amoxi_py.ports.views import Conversation, ConversationPage, Page


class ConversationDoor(TaskDoor):
    """Lists agents and conversations, reads and erases these; `Engine` is the rest of the same door."""

    def agents(self, principal: Principal) -> tuple[AgentDefinition, ...]:
        """Return the agents that this principal may use from outside, in the order of their names."""
        found = (agent for agent in self.catalog.agents.values() if agent.expose and agent.exists_for(principal))
        return tuple(sorted(found, key=lambda agent: agent.name))

    async def list_conversations(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Conversation]:
        """Return the principal's conversations, newest first; raise `InvalidRequest` for a bad cursor."""
        return await self._store.list_conversations(principal, agent, limit=limit, cursor=cursor)

    async def read_conversation(
        self,
        conversation_id: str,
        principal: Principal,
        agent: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
    ) -> ConversationPage:
        """Return a conversation with its newest messages; raise `NotFound`."""
        readable = self.readable(principal)
        return await self._store.read_conversation(
            conversation_id, principal, agent, limit=limit, cursor=cursor, readable=readable
        )

    async def erase(self, conversation_id: str, principal: Principal, agent: str | None = None) -> None:
        """Cancel what runs in a conversation and delete it, and end the streams of it here; raise `NotFound`."""
        erased = await self._store.erase(conversation_id, principal, agent)
        self.transcripts.forget(erased)
        self._hub.erased(erased)

    def readable(self, principal: Principal) -> tuple[str, ...]:
        """Return the agents of which a principal may read what others of its tenant own."""
        if not principal.roles:
            return ()
        return tuple(agent.name for agent in self.agents(principal) if agent.readers in principal.roles)
