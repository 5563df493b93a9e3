"""A message that is not an answer becomes a task: a run of the agent that is meant, once for each id of a message."""

from __future__ import annotations

from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import InvalidParamsError

from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.engine import Engine
from amoxi_py.errors import NotFound, RequestError
from amoxi_py.ports.records import RecordStore
from amoxi_py.ports.store import OnBusy, Submitted
from amoxi_py.surfaces.a2a.contexts import Contexts
from amoxi_py.surfaces.a2a.incoming import Incoming
from amoxi_py.surfaces.a2a.message_files import FilesOfMessages
from amoxi_py.surfaces.a2a.skills import Skills

_KEYS = "a2a"
"""What the ids of messages are unique in, for their caller: all skills together."""


class NewTasks:
    """Makes tasks."""

    def __init__(
        self, engine: Engine, records: RecordStore, skills: Skills, contexts: Contexts, *, deduplicate: bool
    ) -> None:
        self._engine = engine
        self._files = FilesOfMessages(engine, records, deduplicate=deduplicate)
        self._contexts = contexts
        self._skills = skills
        self._deduplicate = deduplicate

    async def submit(self, params: wire.SendMessageRequest, given: Incoming, principal: Principal) -> Submitted:
        """Return the run of a message: a new one, or that of the same message before.

        A busy conversation queues it behind, where its agent does not refuse.

        Raises:
            InvalidParamsError: of the skill or the context.
            NotFound: the context is none of this caller.
            Conflict: the id was used with another message, or the conversation is busy.
        """
        message_id = params.message.message_id
        context_id = params.message.context_id or None
        named = self._skills.named(params, principal)
        agent = None if context_id is None else await self._contexts.agent_of(context_id, principal)
        if agent is not None and named not in (None, agent):
            raise InvalidParamsError(f"the context is of the skill {agent!r}: leave metadata.skill or contextId out")
        skill = agent or named or self._skills.default(principal)
        files = await self._files.save(message_id, given, principal)
        try:
            submitted = await self._engine.submit(
                skill,
                given.said,
                principal=principal,
                conversation_id=None if context_id is None else self._contexts.conversation_of(context_id, principal),
                begins=context_id is not None and agent is None,
                idempotency_key=message_id if self._deduplicate else None,
                key_scope=_KEYS,
                files=files.ids,
                digest=given.digest(named, context_id),
                on_busy=self._when_busy(skill),
            )
        except RequestError as error:  # after any other error the message may have become a task
            await self._files.drop(message_id, files, principal)
            if isinstance(error, NotFound) and error.kind == "agent":
                raise self._skills.unknown(principal, skill) from None
            raise
        if context_id is not None:
            await self._contexts.keep(context_id, principal, anew=agent is None)
        if not submitted.created:
            await self._files.drop(message_id, files, principal)
        return submitted

    def check_same(self, params: wire.SendMessageRequest, run: Run, principal: Principal) -> None:
        """Raise `InvalidParamsError` when a message names a task, and another context or skill than the task's."""
        context_id = params.message.context_id
        if context_id and self._contexts.conversation_of(context_id, principal) != run.conversation_id:
            raise InvalidParamsError("the contextId is not the task's: leave it out")
        skill = self._skills.named(params, principal)
        if skill not in (None, run.agent):
            raise InvalidParamsError(f"the task is of the skill {run.agent!r}: leave metadata.skill out")

    def _when_busy(self, skill: str) -> OnBusy:
        """Return what a message does to a busy conversation: nobody has asked to cancel the task that goes on there."""
        agent = self._engine.catalog.agents.get(skill)
        said = (None if agent is None else agent.on_busy) or self._engine.settings.on_busy
        return "reject" if said == "reject" else "queue"
