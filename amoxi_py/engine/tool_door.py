"""The part of the door that calls tools without an agent: as durable runs, or, where that is as good, at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.definitions import Catalog, Instances, ToolDefinition
from amoxi_py.domain.direct import direct_agent, direct_tool
from amoxi_py.domain.encoding import clean_json, clean_text, decode_json, encode_json
from amoxi_py.domain.ids import call_id, new_id
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run
from amoxi_py.domain.settle import settle_call
from amoxi_py.domain.tool_call import Effect, ToolCall
from amoxi_py.engine.calls import read_arguments
from amoxi_py.engine.direct import CALL_KEY, asks_hooks, direct_call, started_reply
from amoxi_py.engine.files import Files
from amoxi_py.engine.gate import Gate
from amoxi_py.engine.hub import Hub
from amoxi_py.engine.instant_call import call_at_once
from amoxi_py.engine.landing import Landing
from amoxi_py.engine.measures import EngineMeasures
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.redaction import Redaction
from amoxi_py.engine.requests import check_storable, digest_of
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.tracing import submitting
from amoxi_py.engine.transcripts import Transcripts
from amoxi_py.engine.worker import Worker
from amoxi_py.errors import ArgumentsInvalid, InvalidRequest, NotFound, TooMany, ValueNotStorable
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import Store, Submission, Submitted
from amoxi_py.ports.views import CallView

log = logging.getLogger("amoxi_py.tools")


class ToolDoor:
    """Lists and calls tools for a principal; `Engine` is the rest of the same door.

    Attributes:
        on_enrolled: Told the id of this process's worker each time that it gets one; to be set before the start.
    """

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        instances: Instances,
        settings: EngineSettings,
        clock: Clock,
        redaction: Redaction,
        files: Files,
        memories: Memories,
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self.gate = Gate(settings.limits)
        self.redaction = redaction
        self.files = files
        self.memories = memories
        self._store = store
        self._instances = instances
        self._clock = clock
        self.measures = EngineMeasures()
        self.transcripts = Transcripts(store, settings.transcripts_ttl)
        self._hub = Hub()
        self._landing = Landing(store, settings.poll)
        self._threads = ThreadPool(settings.tool_threads)
        self._worker: Worker | None = None
        self.on_enrolled: Callable[[str], None] = lambda worker_id: None
        self._lingering: set[asyncio.Future[Any]] = set()
        self._callable = {name: tool for name, tool in catalog.tools.items() if tool.callable_directly}
        self._hooked = frozenset(name for name in catalog.tools if asks_hooks(catalog.hooks, name))

    def now(self) -> float:
        """Return the time of the store's clock, which is the same for all processes."""
        return self._clock.now()

    @property
    def executing(self) -> int:
        """How many runs are executed in this process now."""
        return 0 if self._worker is None else self._worker.executing

    @property
    def readers(self) -> int:
        """How many event streams are open in this process."""
        return self._hub.readers

    @property
    def active_conversations(self) -> int:
        """In how many conversations something is executed, followed or waited for in this process."""
        return len(self._hub.conversations())

    def tools(self, principal: Principal) -> tuple[ToolDefinition, ...]:
        """Return the tools that a program may call directly for this principal, in the order of the catalog.

        Those that may need an approval are not among them: nobody is there to ask.
        """
        return tuple(tool for tool in self._callable.values() if tool.exists_for(principal))

    def needs_run(self, tool: str) -> bool:
        """Whether a tool is only called as a run: it changes something, takes its context, or is for a hook to see."""
        found = self._callable.get(tool)
        if found is None or found.effect is not Effect.READ_ONLY:
            return True
        return found.takes_context or tool in self._hooked

    async def submit_call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        principal: Principal,
        idempotency_key: str | None = None,
        digest: str = "",
    ) -> Submitted:
        """Save a call of a tool as a run of its own, and return at once.

        The run's `agent` is `tool:<name>`. It has one call, whose result is the run's output, also when it is an
        error; it completes when that is settled.

        Args:
            tool: Its name.
            arguments: A JSON object.
            principal: Who calls; the run belongs to it.
            idempotency_key: The same key with the same arguments gives the same run, for 24 hours.
            digest: A hash of the request's content; made from the arguments when it is left out.

        Raises:
            NotFound: `tools` of this principal has no such tool.
            ArgumentsInvalid: the arguments do not fit.
            InvalidRequest: they are too long (`arguments_too_long`), or the key cannot be stored.
            Conflict: the key was used for another call.
            TooMany: no more is admitted now.
        """
        check_storable("idempotency_key", idempotency_key)
        definition = self._tool_for(tool, principal)
        plain, stored, values = self._read(definition, arguments)
        if idempotency_key is not None and not digest:  # of what came: what is hidden tells two calls apart, too
            digest = digest_of(direct_agent(tool), plain)
        return await self._land_call(
            definition, encode_json(stored), values, principal, idempotency_key=idempotency_key, digest=digest
        )

    async def call_of(self, run_id: str, principal: Principal) -> CallView:
        """Return the one call of a run of a tool, as far as it has come.

        Raises:
            NotFound: no run of this principal, or one of an agent.
        """
        if clean_text(run_id) != run_id:
            raise NotFound("run", run_id)
        try:
            view = await self._store.get_call(call_id(run_id, *CALL_KEY), principal)
        except NotFound:
            return await self._call_to_come(run_id, principal)
        own = view.requested_by.owner_key == principal.owner_key
        if not own or view.run_id != run_id or direct_tool(view.agent) is None:
            raise NotFound("run", run_id)
        return view

    async def call_now(self, tool: str, arguments: Mapping[str, Any], *, principal: Principal) -> ToolCall:
        """Call a tool of which `needs_run` is False at once, and return the settled call, which is stored nowhere.

        Raises:
            NotFound: `tools` of this principal has no such tool.
            ArgumentsInvalid: the arguments do not fit.
            TooMany: the principal has asked as often as it may in a minute.
            ValueError: it needs a run.
        """
        definition = self._tool_for(tool, principal)
        if self.needs_run(tool):
            raise ValueError(f"the tool {tool!r} needs a run; use submit_call")
        _, stored, values = self._read(definition, arguments)
        if self.settings.limits.requests_per_minute:
            await self._count_request(principal)
        called = await call_at_once(
            definition,
            encode_json(stored),
            values,
            principal=principal,
            instances=self._instances,
            threads=self._threads,
            lingering=self._lingering,
            files=self.files,
            memories=self.memories,
            redaction=self.redaction,
            max_result=self.settings.max_result,
        )
        self._store.measures.settled(called.tool, called.status.value)
        return called

    async def _end_what_lingers(self, deadline: float, *, told: bool) -> None:
        """Wait for code of calls that were given up, until this time of the loop, and then tell it to end once more.

        `told` is whether it is in the log already that threads go on.
        """
        clock = asyncio.get_running_loop().time
        while (ending := {*self._lingering, *self._threads.left_behind}) and (left := deadline - clock()) > 0:
            await asyncio.wait(ending, timeout=left)
        if self._lingering or (self._threads.left_behind and not told):
            log.warning("calls that were given up have not ended in time; what they use is closed all the same")
        for one in tuple(self._lingering):
            if isinstance(one, asyncio.Task):
                one.cancel()

    async def _retry_call(self, run: Run, arguments: str, principal: Principal) -> Submitted:
        tool = direct_tool(run.agent)
        assert tool is not None
        definition = self._tool_for(tool, principal)
        values = read_arguments(definition, decode_json(arguments))
        return await self._land_call(definition, arguments, values, principal, conversation_id=run.conversation_id)

    async def _land_call(
        self,
        tool: ToolDefinition,
        arguments: str,
        values: dict[str, Any],
        principal: Principal,
        *,
        conversation_id: str | None = None,
        idempotency_key: str | None = None,
        digest: str = "",
    ) -> Submitted:
        if len(arguments) > self.settings.max_message:
            message = f"the arguments are {len(arguments)} bytes of JSON; the limit is {self.settings.max_message}"
            raise InvalidRequest(message, code="arguments_too_long")
        run_id, agent = new_id("run"), direct_agent(tool.name)
        at_once = tool.name not in self._hooked
        submission = Submission(
            run_id=run_id,
            message_id=new_id("msg"),
            conversation_id=conversation_id or new_id("conv"),
            new_conversation=conversation_id is None,
            agent=agent,
            principal=principal,
            text=arguments,
            idempotency_key=idempotency_key,
            digest=digest,
            on_busy="queue",
            reply=started_reply(tool, run_id, arguments, self._clock.now()) if at_once else None,
        )
        return await self._land(submission, values if at_once else None)

    async def _land(self, submission: Submission, values: dict[str, Any] | None = None) -> Submitted:
        """Store a submission, in its span; `values` are those of `Landing.land`."""
        owner, may_replace = submission.principal.owner_key, submission.may_replace
        if submission.idempotency_key is None or (
            self.gate.is_shut(owner, may_replace=may_replace) and not await self._store.knows_key(submission)
        ):
            self.gate.enter(owner, may_replace=may_replace)
        with submitting(submission.agent, submission.run_id, submission.conversation_id) as trace:
            submission = submission if trace is None else replace(submission, trace=trace)
            try:
                submitted = await self._landing.land(submission, self._worker, values)
            except TooMany as error:
                self.gate.heard(owner, error)
                raise
        if submitted.created:
            self.gate.passed(owner)
        return submitted

    async def _count_request(self, principal: Principal) -> None:
        """Count what becomes no run."""
        owner = principal.owner_key
        self.gate.enter(owner, run=False)
        try:
            await self._store.count_request(principal)
        except TooMany as error:
            self.gate.heard(owner, error)
            raise

    def _tool_for(self, name: str, principal: Principal) -> ToolDefinition:
        tool = self._callable.get(name)
        if tool is None or not tool.exists_for(principal):
            raise NotFound("tool", name)
        return tool

    def _read(
        self, tool: ToolDefinition, arguments: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Return the arguments as plain JSON, as they are stored, and as the tool's Python values."""
        try:
            plain: dict[str, Any] = clean_json(dict(arguments))
            stored: dict[str, Any] = self.redaction.value(plain)
        except ValueNotStorable as error:
            raise ArgumentsInvalid((("", f"they cannot be stored: {error}"),)) from None
        return plain, stored, read_arguments(tool, stored)

    async def _call_to_come(self, run_id: str, principal: Principal) -> CallView:
        """Return the call of a run that has none yet, or that was ended before it had one."""
        run = await self._store.get_run(run_id, principal)
        tool = direct_tool(run.agent)
        if tool is None:
            raise NotFound("run", run_id)
        message, *_ = await self._store.run_messages(run_id, principal)
        definition = self.catalog.tools.get(tool)
        effect = Effect.UNSAFE if definition is None else definition.effect
        call = direct_call(tool, effect, run_id, message.text, started=False)
        if run.status.final:
            try:  # it may have been made, and the run have ended, since it was looked for
                return await self._store.get_call(call.id, principal)
            except NotFound:
                pass
            settled = settle_call(call)
            call = replace(call, status=settled.status, result=settled.result)
        return view_of(run, call)


def view_of(run: Run, call: ToolCall) -> CallView:
    """Return the call of a run as its readers get it."""
    return CallView(
        call=call,
        run_id=run.id,
        agent=run.agent,
        conversation_id=run.conversation_id,
        requested_by=run.principal,
    )
