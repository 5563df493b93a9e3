"""The one door to durable execution: what HTTP, MCP, A2A and Python code call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Literal

from amoxi_py.declare.definitions import AgentDefinition, Catalog, Instances
from amoxi_py.declare.handler_definition import HandlerDefinition
from amoxi_py.domain.approval import Approval
from amoxi_py.domain.direct import direct_tool
from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.ids import new_id, parse_call_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.answers import Answers
from amoxi_py.engine.approvers import Approvers
from amoxi_py.engine.asides import with_read_result
from amoxi_py.engine.conversation_door import ConversationDoor
from amoxi_py.engine.direct import with_direct
from amoxi_py.engine.direct_execution import DirectExecution
from amoxi_py.engine.embedding import Embedding
from amoxi_py.engine.exits import contain_exits
from amoxi_py.engine.files import Files
from amoxi_py.engine.handlers import EventHandlers
from amoxi_py.engine.health import check_ready
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.memory_keeping import MemoryKeeping
from amoxi_py.engine.model_places import ModelPlaces
from amoxi_py.engine.parts import ModelFacts, Models, Parts
from amoxi_py.engine.redacting_store import redacting
from amoxi_py.engine.redaction import Redaction
from amoxi_py.engine.requests import check_message, digest_of
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.streams import EventStream, first_position
from amoxi_py.engine.tool_door import view_of
from amoxi_py.engine.worker import Worker
from amoxi_py.errors import Conflict, NotFound, NotReady
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.embedder import Embedder
from amoxi_py.ports.inputs import Verdict
from amoxi_py.ports.store import OnBusy, Store, Submission, Submitted
from amoxi_py.ports.views import CallView, LogPosition, Page

log = logging.getLogger("amoxi_py.engine")


class Engine(ConversationDoor):
    """Submits, follows, cancels and decides; and executes runs when its settings say so."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        instances: Instances,
        models: Models,
        settings: EngineSettings | None = None,
        clock: Clock | None = None,
        handlers: Sequence[HandlerDefinition] = (),
        facts: ModelFacts | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        settings = settings or EngineSettings()
        redaction = Redaction(catalog.hooks, instances)
        clock = clock or store.clock
        store = redacting(store, redaction)
        embedding = Embedding(embedder)
        memories = Memories(store, embedding, redaction, most=settings.memory_most)
        super().__init__(
            store=store,
            catalog=with_direct(with_read_result(catalog, settings.max_result)),
            instances=instances,
            settings=settings,
            clock=clock,
            redaction=redaction,
            files=Files(store=store, max_size=settings.max_file),
            memories=memories,
        )
        self.keeping = MemoryKeeping(store, memories, embedding, settings, clock)
        memories.on_waiting = self.keeping.wake
        self.answers = Answers(store)
        self._models, self._facts = models, facts or ModelFacts()
        self._declared_handlers = tuple(handlers) if self.settings.executes == "all" else ()
        self._handlers: EventHandlers | None = None
        self._open = False
        self._approvers = Approvers(self.catalog, instances)

    async def start(self) -> None:
        """Open the store (it migrates when needed), and begin to execute runs.

        Raises:
            StoreDamaged: the store cannot be used; the message names it and the way out.
            StoreUnavailable: the store cannot be reached.
        """
        await self._store.open(self._hub.publish, self._hub.miss, self._hub)
        self._open = True
        await self.memories.start()
        if self._declared_handlers:  # before anything can happen here that they are for
            await self._store.claim_handlers([handler.name for handler in self._declared_handlers], None)
        contain_exits(asyncio.get_running_loop())
        if not self.settings.worker:
            return
        if self.settings.executes == "all":
            self.keeping.start()
        at_once = self.settings.models_at_once
        parts = Parts(
            store=self._store,
            files=self.files,
            hub=self._hub,
            catalog=self.catalog,
            instances=self._instances,
            models=self._models,
            facts=self._facts,
            settings=self.settings,
            clock=self._clock,
            threads=self._threads,
            model_places=ModelPlaces(at_once) if at_once else None,
            redaction=self.redaction,
            memories=self.memories,
            transcripts=self.transcripts,
            measures=self.measures,
        )
        self._worker = worker = Worker(parts, self.on_enrolled)
        await worker.start()
        if self._declared_handlers:
            self._handlers = EventHandlers(parts, self._declared_handlers, lambda: worker.keeper)
            self._handlers.start()

    async def stop_working(self, grace: float, *, hurry: bool = False) -> None:
        """Claim nothing more, let runs end within `grace` seconds, and hand over the rest; serving goes on.

        In a hurry only what cannot be cut off without a cost gets the grace. Code of calls that were made at once and
        given up gets it too, and is cut off then: what it uses is closed after this.
        """
        worker, self._worker = self._worker, None
        handlers, self._handlers = self._handlers, None
        leaving = None if handlers is None else asyncio.get_running_loop().create_task(handlers.stop(grace))
        deadline = asyncio.get_running_loop().time() + grace
        if worker is not None:
            await worker.stop(grace, hurry=hurry, meanwhile=leaving)
        await self._end_what_lingers(deadline, told=worker is not None)

    async def stop(self, grace: float = 0.0) -> None:
        """Stop working, then close the store."""
        await self.stop_working(grace)
        await self.keeping.stop()
        await self.memories.stop()
        if self._open:
            self._open = False
            self._landing.close()
            self.transcripts.close()
            await self._store.close()

    async def ready(self) -> None:
        """Return when this process can serve; raise `StoreUnavailable` when it cannot."""
        if not self._open:
            raise NotReady("it is starting or stopping")
        await check_ready(self._store, self._worker, executes=self.settings.worker)

    async def submit(
        self,
        agent: str,
        text: str,
        *,
        principal: Principal,
        conversation_id: str | None = None,
        idempotency_key: str | None = None,
        files: tuple[str, ...] = (),
        digest: str = "",
        on_busy: OnBusy | None = None,
        begins: bool = False,
        key_scope: str | None = None,
        run_id: str | None = None,
    ) -> Submitted:
        """Save a message and its run, and return at once.

        Args:
            agent: The agent's name on the wire.
            text: What the person says.
            principal: Who asks; the run belongs to it.
            conversation_id: An earlier conversation of the same principal with the same agent.
            idempotency_key: The same key with the same request gives the same run, for 24 hours.
            files: Ids of files of the same principal.
            digest: A hash of the request's content; made from the arguments when it is left out.
            on_busy: What the message does to a busy conversation, instead of what the agent or the settings say.
            begins: Whether the conversation begins with this message, under the id that is given, if it is not there.
            key_scope: What the key is unique in, in place of the agent.
            run_id: What `new_id` gave, for who must know it before.

        Raises:
            NotFound: no such agent, or no such conversation or file of this principal.
            Conflict: the key was used for another request, or the conversation is busy and the agent refuses.
            InvalidRequest: the message is empty or too long.
            TooMany: no more is admitted now.
        """
        definition = self._agent(agent, principal)
        files = tuple(dict.fromkeys(files))
        most, ids = self.settings.max_message, {"conversation_id": conversation_id, "idempotency_key": idempotency_key}
        check_message(text, most, files=files, **ids)
        submission = Submission(
            run_id=run_id or new_id("run"),
            message_id=new_id("msg"),
            conversation_id=conversation_id or new_id("conv"),
            new_conversation=conversation_id is None,
            begins=begins and conversation_id is not None,
            agent=agent,
            principal=principal,
            text=clean_text(text),
            files=files,
            idempotency_key=idempotency_key,
            key_scope=key_scope,
            digest=digest
            if digest or idempotency_key is None
            else digest_of(agent, text, conversation_id, list(files)),
            on_busy=on_busy or definition.on_busy or self.settings.on_busy,
        )
        return await self._land(submission)

    async def submit_followed(self, agent: str, text: str, **more: Any) -> tuple[Submitted, EventStream]:
        """Save a message as `submit` does, and return the run's events too; who asks closes the stream.

        They are heard from the first one on, and not read, unless the run is an earlier one.
        """
        with self._hub.expecting(run_id := new_id("run")) as follower:
            submitted = await self.submit(agent, text, run_id=run_id, **more)
        if follower.first is None:
            return submitted, await self.follow(more["principal"], run_id=submitted.run.id)
        return submitted, EventStream(self._store, self._hub, first_position(follower.first), None, follower)

    async def retry(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """Submit the message, or the call, of a run that has ended once more, and return the new run.

        The old one stays as it is.

        The new run is in the same conversation, and all its calls have new ids, so what the old one did is not known
        to be done. In a busy conversation it waits behind, where the agent does not refuse.

        Raises:
            NotFound: no such run of this principal (and agent, when given), or its agent or tool exists no more.
            ArgumentsInvalid: the tool does not take these arguments any more.
            Conflict: the run has not ended (`run_not_ended`), another agent asked for it (`run_of_another`), or the
                conversation is busy and the agent refuses.
        """
        run = await self._store.get_run(run_id, principal, agent)
        if run.root_id is not None:
            raise Conflict(
                f"the run {run_id!r} is a part of the run {run.root_id!r}, whose agent asked for it; retry that one",
                code="run_of_another",
            )
        if not run.status.final:
            raise Conflict(
                f"the run {run_id!r} is {run.status.value}; wait until it has ended, or cancel it, to retry it",
                code="run_not_ended",
            )
        message, *_ = await self._store.run_messages(run_id, principal)
        if direct_tool(run.agent) is not None:
            return (await self._retry_call(run, message.text, principal)).run
        on_busy = self._agent(run.agent, principal).on_busy or self.settings.on_busy
        submitted = await self.submit(
            run.agent,
            message.text,
            principal=principal,
            conversation_id=run.conversation_id,
            files=message.files,
            on_busy="reject" if on_busy == "reject" else "queue",
        )
        return submitted.run

    async def take_up(self, conversation_id: str, principal: Principal, agent: str | None = None) -> None:
        """Execute what is due in this conversation too, in a process that executes only its own; raise `NotFound`."""
        await self._store.find_log(principal, conversation_id=conversation_id, agent=agent)
        if self._worker is not None:
            self._worker.take_up(conversation_id)

    async def wait(self, run_id: str, principal: Principal, *, agent: str | None = None, timeout: float) -> Run:
        """Return the run when it has ended, or as it is after `timeout` seconds; raise `NotFound`."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        here = None if self._worker is None else self._worker.find(run_id, principal, agent)
        if here is not None:
            conversation = here.lease.conversation
        else:
            conversation = (await self._find_log(principal, run_id=run_id, agent=agent)).conversation
        while True:
            ended = self._hub.end_of(run_id, conversation)
            try:
                if here is not None:
                    await here.wait_for(ended, timeout)
                    known, here = await here.outcome(), None
                    if known is not None:
                        return known
                run = await self.get_run(run_id, principal, agent)
                left = until - loop.time()
                if left <= 0 or run.status.final:
                    return run
                await asyncio.wait((ended,), timeout=left)
            finally:
                self._hub.forget_end(run_id, conversation, ended)

    async def wait_call(self, run_id: str, principal: Principal, *, timeout: float) -> tuple[Run, CallView]:
        """Return a run of a tool with its call when it has ended, or as both are after `timeout` seconds.

        Raises:
            NotFound: no run of this principal, or one of an agent.
        """
        here = None if self._worker is None else self._worker.find(run_id, principal, None)
        run = await self.wait(run_id, principal, timeout=timeout)
        if isinstance(here, DirectExecution) and here.ended is run and here.settled is not None:
            return run, view_of(run, here.settled)
        return run, await self.call_of(run_id, principal)

    async def get_run(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """Return the principal's run; raise `NotFound`."""
        return await self._store.get_run(run_id, principal, agent, readable=self.readable(principal))

    async def list_runs(
        self, principal: Principal, agent: str | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Run]:
        """Return the principal's runs, newest first; raise `InvalidRequest` for a bad cursor."""
        return await self._store.list_runs(principal, agent, limit=limit, cursor=cursor)

    async def cancel(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """End a run now and return it; one that had ended is returned unchanged. Raise `NotFound`."""
        return await self._store.cancel(run_id, principal, agent)

    async def decide(
        self,
        call_id: str,
        principal: Principal,
        decision: Literal["approve", "decline"],
        *,
        reason: str | None = None,
        arguments: dict[str, object] | None = None,
        run_id: str | None = None,
        agent: str | None = None,
        owner: Principal | None = None,
    ) -> tuple[Approval, CallView]:
        """Decide about a call that waits for approval; the first decision wins.

        Args:
            call_id: The call.
            principal: Who decides.
            decision: What.
            reason: Told to the model.
            arguments: To run with instead of the model's; only with an approval.
            run_id: The run that the call must belong to, itself or by a run below it, when the caller named one.
            agent: The agent that the run must belong to, when the caller named one.
            owner: Whose run it is, when the operator decides; then no rule about the approver counts.

        Raises:
            NotFound: no such approval for this principal.
            Forbidden: the run's owner, who is not the approver.
            Conflict: decided otherwise, expired, or over.
            InvalidRequest: the edited arguments do not fit the tool, or come with a decline.
        """
        place = parse_call_id(call_id)
        if place is None:
            raise NotFound("approval", call_id)
        try:
            view = await self._store.get_call(call_id, owner or principal)
        except NotFound:  # in the same words as for a call that needs no approval
            raise NotFound("approval", call_id) from None
        if view.call.approval is None or agent not in (None, view.agent) or run_id not in (None, place[0], view.run_id):
            raise NotFound("approval", call_id)
        allowed = owner is None and await self._approvers.allow(view, principal)
        verdict = Verdict(
            call_id=call_id,
            run_id=view.run_id,
            principal=principal,
            decision=decision,
            reason=clean_text(reason) if reason else None,
            arguments=None if arguments is None else self._approvers.edited(view, decision, arguments),
            allowed=allowed,
            operator=owner is not None,
        )
        approval, view = await self._store.decide(verdict)
        decided, by = approval.decision, approval.by
        log.info("run %s, call %s, tool %r: %s by %s", view.run_id, view.call.id, view.call.tool, decided, by)
        return approval, view

    async def may_decide(self, call_id: str, principal: Principal) -> bool:
        """Whether a call waits for a decision that this principal may take."""
        try:
            view = await self._store.get_call(call_id, principal)
        except NotFound:
            return False
        approval = view.call.approval
        if approval is None or approval.decision is not None or approval.expired(self._clock.now()):
            return False
        return bool(await self._approvers.of((view,), principal))

    async def list_approvals(
        self, principal: Principal, *, limit: int = 50, cursor: str | None = None
    ) -> Page[CallView]:
        """Return the open approvals that a principal may decide, over all agents, those of the oldest run first.

        Functions that are approvers are asked about each of theirs on the page. So a page may hold fewer than `limit`,
        even none, and still have a cursor: only a page without one is the last.

        Raises:
            InvalidRequest: the cursor is none.
        """
        page = await self._store.list_approvals(
            principal, self._clock.now(), functions=self._approvers.functions, limit=limit, cursor=cursor
        )
        return Page(items=await self._approvers.of(page.items, principal), next_cursor=page.next_cursor)

    async def follow(
        self,
        principal: Principal,
        *,
        run_id: str | None = None,
        conversation_id: str | None = None,
        agent: str | None = None,
        after: int | None = None,
    ) -> EventStream:
        """Return the events of a run or of a conversation after a number of its log; raise `NotFound`."""
        position = await self._find_log(principal, run_id=run_id, conversation_id=conversation_id, agent=agent)
        return EventStream(self._store, self._hub, position, after)

    async def _find_log(self, principal: Principal, **of: str | None) -> LogPosition:
        return await self._store.find_log(principal, **of, readable=self.readable(principal))

    def _agent(self, name: str, principal: Principal) -> AgentDefinition:
        agent = self.catalog.agents.get(name)
        if agent is None or not agent.exists_for(principal):
            raise NotFound("agent", name)
        return agent
