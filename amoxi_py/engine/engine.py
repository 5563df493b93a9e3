"""The one door to durable execution: what HTTP, MCP, A2A and Python code call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from amoxi_py.declare.definitions import AgentDefinition, Catalog, Instances
from amoxi_py.declare.handler_definition import HandlerDefinition
from amoxi_py.domain.approval import Approval
from amoxi_py.domain.encoding import clean_text, encode_json
from amoxi_py.domain.ids import new_id, parse_call_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.engine.approvers import Approvers
from amoxi_py.engine.execution import Models, Parts
from amoxi_py.engine.exits import contain_exits
from amoxi_py.engine.files import Files
from amoxi_py.engine.handlers import EventHandlers
from amoxi_py.engine.hub import Hub
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.streams import EventStream
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.worker import Worker
from amoxi_py.errors import Conflict, InvalidRequest, NotFound, StoreUnavailable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import OnBusy, Store, Submission, Submitted, Verdict
from amoxi_py.ports.views import CallView, Conversation, ConversationPage, LogPosition, Page

log = logging.getLogger("amoxi_py.engine")

_LONGEST_PAUSE = 5.0


class Engine:
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
    ) -> None:
        self.catalog = catalog
        self.settings = settings or EngineSettings()
        self.files = Files(store=store, max_size=self.settings.max_file)
        self._store = store
        self._hub = Hub()
        self._clock = clock or store.clock
        self._instances = instances
        self._models = models
        self._worker: Worker | None = None
        self._declared_handlers = tuple(handlers) if self.settings.executes == "all" else ()
        self._handlers: EventHandlers | None = None
        self._findings: set[asyncio.Task[None]] = set()
        self._open = False
        self._approvers = Approvers(catalog, instances)

    async def start(self) -> None:
        """Open the store (it migrates when needed), and begin to execute runs.

        Raises:
            StoreDamaged: the store cannot be used; the message names it and the way out.
            StoreUnavailable: the store cannot be reached.
        """
        await self._store.open(self._hub.publish, self._hub.miss, self._hub)
        self._open = True
        if self._declared_handlers:  # before anything can happen here that they are for
            await self._store.claim_handlers([handler.name for handler in self._declared_handlers], None)
        if not self.settings.worker:
            return
        at_once = self.settings.models_at_once
        parts = Parts(
            store=self._store,
            files=self.files,
            hub=self._hub,
            catalog=self.catalog,
            instances=self._instances,
            models=self._models,
            settings=self.settings,
            clock=self._clock,
            threads=ThreadPool(self.settings.tool_threads),
            model_places=asyncio.Semaphore(at_once) if at_once else None,
        )
        contain_exits(asyncio.get_running_loop())
        self._worker = worker = Worker(parts)
        await worker.start()
        if self._declared_handlers:
            self._handlers = EventHandlers(parts, self._declared_handlers, lambda: worker.keeper)
            self._handlers.start()

    async def stop_working(self, grace: float, *, hurry: bool = False) -> None:
        """Claim nothing more, let runs end within `grace` seconds, and hand over the rest; serving goes on.

        In a hurry only what cannot be cut off without a cost gets the grace.
        """
        worker, self._worker = self._worker, None
        handlers, self._handlers = self._handlers, None
        leaving = None if handlers is None else asyncio.get_running_loop().create_task(handlers.stop(grace))
        if worker is not None:
            await worker.stop(grace, hurry=hurry, meanwhile=leaving)

    async def stop(self, grace: float = 0.0) -> None:
        """Stop working, then close the store."""
        await self.stop_working(grace)
        if self._open:
            self._open = False
            for finding in self._findings:
                finding.cancel()
            await self._store.close()

    async def ready(self) -> None:
        """Return when this process can serve; raise `StoreUnavailable` when it cannot."""
        if not self._open:
            raise StoreUnavailable("the server is starting or stopping")
        await self._store.busy_runs()

    def agents(self, principal: Principal) -> tuple[AgentDefinition, ...]:
        """Return the agents that this principal may use from outside, in the order of their names."""
        found = (agent for agent in self.catalog.agents.values() if agent.expose and agent.exists_for(principal))
        return tuple(sorted(found, key=lambda agent: agent.name))

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
    ) -> Submitted:
        """Save a message and its run, and return at once.

        Args:
            agent: The agent's name on the wire.
            text: What the person says.
            principal: Who asks; the run belongs to it.
            conversation_id: An earlier conversation of the same principal with the same agent.
            idempotency_key: The same key with the same request gives the same run, for 24 hours.
            files: Ids of files of the same principal.
            digest: Of the request's content; made from the arguments when it is left out.
            on_busy: What the message does to a busy conversation, instead of what the agent or the settings say.

        Raises:
            NotFound: no such agent, or no such conversation or file of this principal.
            Conflict: the key was used for another request, or the conversation is busy and the agent refuses.
            InvalidRequest: the message is empty or too long.
        """
        definition = self._agent(agent, principal)
        files = tuple(dict.fromkeys(files))
        self._check_text(text, files)
        _check_storable("conversation_id", conversation_id)
        _check_storable("idempotency_key", idempotency_key)
        for file in files:
            _check_storable("files", file if isinstance(file, str) else None)
        submission = Submission(
            run_id=new_id("run"),
            message_id=new_id("msg"),
            conversation_id=conversation_id or new_id("conv"),
            new_conversation=conversation_id is None,
            agent=agent,
            principal=principal,
            text=clean_text(text),
            files=files,
            idempotency_key=idempotency_key,
            digest=digest or encode_json([agent, text, conversation_id, list(files)]),
            on_busy=on_busy or self._on_busy(definition),
        )
        worker = self._worker
        if worker is not None:
            worker.take_up(submission.conversation_id, submission.run_id)
        place = worker.reserve() if worker is not None else None
        if worker is None or place is None:
            submitted = await self._store.submit(submission)
            if worker is not None:
                _take_on(worker, submitted)
            return submitted
        submission = replace(submission, claim_by=place)
        try:
            stored = self._store.submit(submission)
        except StoreUnavailable:
            worker.unreserve()
            raise
        # Not after the await: a caller that gives up must not leave a run that is claimed here and nobody executes.
        stored.add_done_callback(partial(self._begin, submission, worker))
        return await asyncio.shield(stored)

    def _begin(self, submission: Submission, worker: Worker, stored: asyncio.Future[Submitted]) -> None:
        worker.unreserve()
        if stored.cancelled():
            return
        failure = stored.exception()
        if isinstance(failure, StoreUnavailable):
            finding = asyncio.get_running_loop().create_task(self._find_out(submission, worker))
            self._findings.add(finding)
            finding.add_done_callback(self._findings.discard)
        elif failure is None:
            _take_on(worker, stored.result(), () if submission.new_conversation else None)

    async def _find_out(self, submission: Submission, worker: Worker) -> None:
        """Find out whether a submission landed although its answer was an error, and execute it if it did."""
        pause = self.settings.poll
        while self._open:
            await asyncio.sleep(pause)
            try:
                await self._store.get_run(submission.run_id, submission.principal)
                found = await self._store.submit(submission)  # it is there, so this finds it
            except NotFound:
                return
            except StoreUnavailable:
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            _take_on(worker, found)
            return

    async def retry(self, run_id: str, principal: Principal, agent: str | None = None) -> Run:
        """Submit the message of a run that has ended once more, and return the new run; the old one stays as it is.

        The new run is in the same conversation, and all its calls have new ids, so what the old one did is not known
        to be done. In a busy conversation it waits behind, where the agent does not refuse.

        Raises:
            NotFound: no such run of this principal (and agent, when given), or its agent exists no more.
            Conflict: the run has not ended (`run_not_ended`), or the conversation is busy and the agent refuses.
        """
        run = await self._store.get_run(run_id, principal, agent)
        if not run.status.final:
            raise Conflict(
                f"the run {run_id!r} is {run.status.value}; wait until it has ended, or cancel it, to retry it",
                code="run_not_ended",
            )
        message, *_ = await self._store.run_messages(run_id, principal)
        on_busy = self._on_busy(self._agent(run.agent, principal))
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
            run_id: The run that the call must belong to, when the caller named one.
            agent: The agent that the run must belong to, when the caller named one.
            owner: Whose run it is, when the operator decides; then no rule about the approver counts.

        Raises:
            NotFound: no such approval for this principal.
            Forbidden: the run's owner, who is not the approver.
            Conflict: decided otherwise, expired, or over.
            InvalidRequest: the edited arguments do not fit the tool, or come with a decline.
        """
        place = parse_call_id(call_id)
        if place is None or (run_id is not None and place[0] != run_id):
            raise NotFound("approval", call_id)
        try:
            view = await self._store.get_call(call_id, owner or principal)
        except NotFound:  # in the same words as for a call that needs no approval
            raise NotFound("approval", call_id) from None
        if (agent is not None and view.agent != agent) or view.call.approval is None:
            raise NotFound("approval", call_id)
        allowed = owner is None and await self._approvers.allow(view, principal)
        verdict = Verdict(
            call_id=call_id,
            run_id=place[0],
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
        self._hub.erased(await self._store.erase(conversation_id, principal, agent))

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

    def readable(self, principal: Principal) -> tuple[str, ...]:
        """Return the agents of which a principal may read what others of its tenant own."""
        if not principal.roles:
            return ()
        return tuple(agent.name for agent in self.agents(principal) if agent.readers in principal.roles)

    async def _find_log(self, principal: Principal, **of: str | None) -> LogPosition:
        return await self._store.find_log(principal, **of, readable=self.readable(principal))

    def _agent(self, name: str, principal: Principal) -> AgentDefinition:
        agent = self.catalog.agents.get(name)
        if agent is None or not agent.exists_for(principal):
            raise NotFound("agent", name)
        return agent

    def _on_busy(self, agent: AgentDefinition) -> OnBusy:
        return agent.on_busy or self.settings.on_busy

    def _check_text(self, text: str, files: tuple[str, ...]) -> None:
        if not text.strip() and not files:
            raise InvalidRequest("the message is empty", code="message_empty")
        if len(text) > self.settings.max_message:
            message = f"the message has {len(text)} characters; the limit is {self.settings.max_message}"
            raise InvalidRequest(message, code="message_too_long")


def _take_on(worker: Worker, submitted: Submitted, history: tuple[Message, ...] | None = None) -> None:
    """Execute the run if it was claimed here; else it may be an earlier one, found by its key."""
    if submitted.rows is not None:
        worker.begin(submitted.rows, history)
    else:
        worker.take_up(submitted.run.conversation_id, submitted.run.id)


def _check_storable(name: str, value: str | None) -> None:
    if value is not None and clean_text(value) != value:
        raise InvalidRequest(f"{name} {value!r} holds characters that cannot be stored", code="text_not_storable")
