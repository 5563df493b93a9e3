"""Executes one claimed run: rows -> next action -> act -> record, until it ends, waits, or is taken away."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import AgentDefinition, Catalog, Instances
from amoxi_py.domain.encoding import clean_text
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import AskModel, Limits, Wait, Work, next_action
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.retry import retry_delay
from amoxi_py.domain.run import Run, RunFailure, RunRows, RunStatus
from amoxi_py.domain.tool_call import CallStatus
from amoxi_py.engine.call_batch import BatchHost, CallBatch
from amoxi_py.engine.calls import CallHost, call_result, completed_event
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.deltas import Deltas
from amoxi_py.engine.endings import discarding, end_event, ended_run, settle_open
from amoxi_py.engine.exits import belongs_to_run, cancelled_from_outside
from amoxi_py.engine.files import Files
from amoxi_py.engine.hub import Hub
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.settings import EngineSettings
from amoxi_py.engine.threads import ThreadPool
from amoxi_py.engine.transcript import model_messages
from amoxi_py.engine.turns import ReplyReader, ask, reply_events, tool_specs
from amoxi_py.errors import LeaseLost, ModelFailed
from amoxi_py.ports.chat_model import ChatModel, ModelMessage, ModelRequest, Reply, ToolSpec
from amoxi_py.ports.clock import Clock
from amoxi_py.ports.store import Change, Store

log = logging.getLogger("amoxi_py.runs")

_LONGEST_WAIT_IN_PLACE = 2.0
_MODEL_SILENT = "the model could not answer; please try again later"
_FAILURE_TEXTS = {"instructions_failed": "the agent could not be started"}
_LATE_DECISION = 1.0
"""An approval is taken for expired this much later than decisions are refused: one made just in time is seen first."""


class Models(Protocol):
    """Finds the model of an agent for a run."""

    def model_for(self, agent: AgentDefinition, ctx: RunContext) -> ChatModel:
        """Return the model."""
        ...


class Parts(Struct, frozen=True, kw_only=True):
    """What executing needs of the process: made once, given to every run."""

    store: Store
    files: Files
    hub: Hub
    catalog: Catalog
    instances: Instances
    models: Models
    settings: EngineSettings
    clock: Clock
    threads: ThreadPool
    model_places: asyncio.Semaphore | None


class _Play(Struct, frozen=True, kw_only=True):
    """The agent of a run, and what its turns are made with."""

    agent: AgentDefinition
    tools: tuple[ToolSpec, ...]
    reader: ReplyReader
    calls: BatchHost


class RunExecution:
    """One run under one lease. `interrupt` ends it from outside; what it has recorded stays.

    `lingering` holds the code of tools that was told to stop and has not ended yet. `ended` is what the run came to,
    when it came to its end here.
    """

    def __init__(self, parts: Parts, keeper: LeaseKeeper, rows: RunRows, history: tuple[Message, ...] | None) -> None:
        self.lease = rows.lease
        self.lingering: set[asyncio.Future[Any]] = set()
        self.ended: Run | None = None
        self._ending = False
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._decided = False
        self._parts = parts
        self._keeper = keeper
        self._rows = rows
        self._messages = list(rows.messages)
        self._history = history
        self._told: list[ModelMessage] = []
        self._told_up_to = 0
        self._instructions = rows.instructions
        self._new_instructions: str | None = None
        self._usage = rows.usage
        self._model_failures = rows.model_failures
        self._crashes = rows.crashes
        self._journal = Journal(parts.store, rows.lease)
        self._saved: list[str] | None = [] if rows.attempt == 1 and len(rows.messages) == 1 else None
        self._batch: CallBatch | None = None
        self._fresh: frozenset[tuple[int, int]] = frozenset()
        self._context = AgentContext(
            run_id=rows.lease.run_id,
            conversation_id=rows.conversation_id,
            agent=rows.agent,
            principal=rows.principal,
            attempt=rows.attempt,
            threads=parts.threads,
            lingering=self.lingering,
        )

    async def run(self) -> None:
        """Execute until the run has ended or waits.

        Raises:
            LeaseLost: the run is not ours any more.
        """
        belongs_to_run()
        self._parts.hub.watch(self.lease.run, self.lease.conversation, self._watch)
        try:
            await self._execute()
        except (LeaseLost, GeneratorExit):
            raise
        except BaseException as error:
            if cancelled_from_outside(error):
                raise
            log.exception("run %s failed by an error of its server", self.lease.run_id)
            await self._end(RunFailure(code="internal_error", message="the server made an error"))
        finally:
            self._parts.hub.unwatch(self.lease.run, self.lease.conversation, self._watch)
            self._journal.close()
            self._batch = None  # it knows this object: together they would wait for the garbage collector

    def start(self) -> asyncio.Task[None]:
        """Begin to execute."""
        self._task = asyncio.get_running_loop().create_task(self.run())
        return self._task

    def interrupt(self) -> None:
        """End it here and now, with no further effect: it is cancelled, given away, or lost."""
        self._journal.close()
        if self._batch is not None:
            self._batch.close()
        if self._task is not None:
            self._task.cancel()

    @property
    def repeats_at_no_cost(self) -> bool:
        """Whether it can be interrupted now and go on elsewhere with nothing left unknown.

        While a change is on its way it may be the start of a call, which nobody could tell from one that ran.
        """
        return not self._journal.pending and (self._batch is None or self._batch.repeats_at_no_cost)

    def is_of(self, principal: Principal, agent: str | None) -> bool:
        """Whether this principal owns the run (of this agent, when given)."""
        return self._rows.principal.owner_key == principal.owner_key and agent in (None, self._rows.agent)

    async def wait_for(self, told: asyncio.Future[None], timeout: float) -> None:
        """Return when a future is done, or when nothing of the run is left here: its end may have been told before."""
        leaving = () if self._task is None else (self._task,)
        await asyncio.wait((told, *leaving), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def outcome(self) -> Run | None:
        """Return what the run came to when it came to its end here, else None; for who was told that it has ended."""
        if self._ending and self._task is not None:  # no code of the app is left in it
            await asyncio.wait((self._task,))
        return self.ended

    def _watch(self, event: Event | None) -> None:
        if event is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_lease())
            return
        if event.type is EventType.APPROVAL_DECIDED:
            self._hear_decision()
        elif event.type is EventType.RUN_CANCELLED:
            self.interrupt()

    def _hear_decision(self) -> None:
        self._decided = True
        if self._batch is not None:
            self._batch.decided()

    async def _check_lease(self) -> None:
        """Find out what was missed: a decision, or the end of the run."""
        try:
            await self._journal.persist(lambda: self._parts.store.load(self.lease))
        except LeaseLost:
            self.interrupt()
            return
        self._hear_decision()

    async def _execute(self) -> None:
        agent = self._parts.catalog.agents.get(self._rows.agent)
        if agent is None:
            message = f"the agent {self._rows.agent!r} does not exist any more"
            await self._end(RunFailure(code="agent_unknown", message=message))
            return
        if self._rows.attempt > 1 or len(self._messages) > 1:
            turn = self._messages[-1].turn
            log.info("run %s goes on after turn %d, in attempt %d", self.lease.run_id, turn, self._rows.attempt)
        if self._rows.partial is not None:
            await self._discard(self._rows.partial)
        play = self._play_of(agent)
        limits = Limits(max_turns=agent.max_turns, max_attempts=self._parts.settings.max_attempts)
        while True:
            action = next_action(tuple(self._messages), self._crashes, limits, self._expiry_time())
            if isinstance(action, AskModel):
                if await self._ask(play, action.turn):
                    return
            elif isinstance(action, Work):
                await self._work(play)
            elif isinstance(action, Wait):
                until = None if action.until is None else action.until + _LATE_DECISION
                if await self._pause(until, ("approval",)):
                    return
            else:
                await self._end(action.failure)
                return

    def _play_of(self, agent: AgentDefinition) -> _Play:
        settings, clock = self._parts.settings, self._parts.clock
        reader = ReplyReader(
            agent=agent,
            run=self._context,
            instances=self._parts.instances,
            parallel_calls=settings.parallel_calls,
            max_result=settings.max_result,
            now=clock.now,
            expire_after=settings.approvals_expire_after,
            files=self._parts.files,
            values={},
        )
        host = CallHost(
            run=self._context,
            instances=self._parts.instances,
            journal=self._journal,
            keeper=self._keeper,
            max_result=settings.max_result,
            lingering=self.lingering,
            files=self._parts.files,
            saved=self._note_saved,
        )
        calls = BatchHost(
            calls=host,
            agent=agent,
            parallel=settings.parallel_calls,
            now=self._expiry_time,
            reload=self._with_decisions,
            values=reader.values,
        )
        return _Play(agent=agent, tools=tool_specs(agent, self._context), reader=reader, calls=calls)

    def _expiry_time(self) -> float:
        return self._parts.clock.now() - _LATE_DECISION

    # -- the model's turn

    async def _ask(self, play: _Play, turn: int) -> bool:
        """Ask the model and record its reply; return whether the run has ended or waits."""
        message_id = new_id("msg")
        deltas = Deltas(self._journal, message_id)
        try:
            reply = await self._reply(play, deltas)
        except ModelFailed as error:
            return await self._model_failed(error, message_id if deltas.stored else None)
        message = await play.reader.read(reply, turn, message_id)
        files = await self._files_to_show()
        if files:
            message = replace(message, files=files)
        self._usage = self._usage + replace(reply.usage, requests=1)
        ended = not message.calls
        change = self._journal.change(
            message=message,
            usage=self._usage,
            model_failures=0 if self._model_failures else None,
            end="completed" if ended else None,
            instructions=self._new_instructions,
            events=tuple(reply_events(message, ended=ended)),
        )
        self._ending = ended
        self._fresh = frozenset((call.turn, call.n) for call in message.calls if call.status is CallStatus.STARTED)
        stored_at = await self._journal.write(change)
        self._messages.append(message)
        self._crashes = self._model_failures = 0
        self._new_instructions = None
        if ended:
            self._note_end(RunStatus.COMPLETED, stored_at, output=message.text)
        return ended

    async def _reply(self, play: _Play, deltas: Deltas) -> Reply:
        agent = play.agent
        if self._history is None:
            self._history = await self._journal.persist(lambda: self._parts.store.history(self.lease))
        untold = self._messages[self._told_up_to :]  # settled: the same at every turn
        if not self._told:
            self._told.extend(await self._for_model(self._history))
        self._told.extend(await self._for_model(untold))
        self._told_up_to = len(self._messages)
        if self._instructions is None:
            self._instructions = await self._ask_instructions(agent)
        request = ModelRequest(
            instructions=self._instructions,
            messages=tuple(self._told),
            tools=play.tools,
            options=agent.model_options,
        )
        model = self._parts.models.model_for(agent, self._context)
        if self._parts.model_places is None:
            return await ask(model, request, deltas)
        async with self._parts.model_places:
            return await ask(model, request, deltas)

    async def _for_model(self, messages: Sequence[Message]) -> tuple[ModelMessage, ...]:
        brought = [file_id for message in messages if message.role == "user" for file_id in message.files]
        if not brought:
            return model_messages(messages)
        principal = self._context.principal
        found = await self._journal.persist(lambda: self._parts.store.find_files(brought, principal))
        return model_messages(messages, {file.id: file for file in found})

    def _note_saved(self, file_id: str) -> None:
        if self._saved is not None and file_id not in self._saved:
            self._saved.append(file_id)

    async def _files_to_show(self) -> tuple[str, ...]:
        """Return the files that tools have saved since the last reply that showed some."""
        if self._saved is None:
            self._saved = list(await self._journal.persist(lambda: self._parts.store.files_of_run(self.lease)))
        if not self._saved:
            return ()
        shown = {file_id for message in self._messages if message.turn > 0 for file_id in message.files}
        return tuple(file_id for file_id in self._saved if file_id not in shown)

    async def _ask_instructions(self, agent: AgentDefinition) -> str:
        if isinstance(agent.instructions, str):
            return agent.instructions
        try:
            self._new_instructions = clean_text(await agent.instructions(self._parts.instances, self._context))
            return self._new_instructions
        except BaseException as error:
            if cancelled_from_outside(error):
                raise
            log.exception("the instructions of %s failed", agent.where)
            message = "the agent's instructions could not be made"
            raise ModelFailed(message, code="instructions_failed", retryable=False) from error

    async def _model_failed(self, error: ModelFailed, partial: str | None) -> bool:
        self._model_failures += 1
        log.warning("run %s: model request %d failed: %s", self.lease.run_id, self._model_failures, error)
        pause = None
        if error.retryable:
            policy = self._parts.settings.model_retry
            chance = random.random()  # noqa: S311 - spreads the tries of many runs
            pause = retry_delay(policy, self._model_failures, chance=chance, asked=error.retry_after)
        parts = discarding(partial) if partial is not None else {}
        if pause is None:
            failure = RunFailure(code=error.code, message=_FAILURE_TEXTS.get(error.code, _MODEL_SILENT))
            await self._end(failure, **parts)
            return True
        change = self._journal.change(model_failures=self._model_failures, **parts)
        if pause <= _LONGEST_WAIT_IN_PLACE:
            await self._journal.write(change)
            await asyncio.sleep(pause)
            return False
        return await self._pause(self._parts.clock.now() + pause, ("model",), change)

    async def _discard(self, partial: str) -> None:
        await self._journal.write(self._journal.change(**discarding(partial)))

    # -- the calls of a reply

    async def _work(self, play: _Play) -> None:
        """Work on the calls of the last reply until all are settled, or all that are left wait for a person."""
        self._batch = CallBatch(play.calls, self._messages[-1], fresh=self._fresh, steps=self._rows.steps)
        if self._decided:  # it came before there was a batch to tell
            self._decided = False
            self._batch.decided()
        try:
            await self._batch.work()
        finally:
            self._batch.stop()
            self._messages[-1] = self._batch.message
        self._crashes = 0

    async def _with_decisions(self, message: Message) -> Message:
        rows = await self._journal.persist(lambda: self._parts.store.load(self.lease))
        approvals = {call.n: call.approval for call in rows.messages[-1].calls}
        calls = tuple(replace(call, approval=approvals.get(call.n, call.approval)) for call in message.calls)
        return replace(message, calls=calls)

    # -- ends and pauses

    async def _pause(self, until: float | None, kinds: tuple[str, ...], change: Change | None = None) -> bool:
        """Let the run wait; return False, with fresh approvals, when there is nothing to wait for any more."""
        if await self._journal.pause(change or self._journal.change(), until, kinds):
            return True
        self._messages[-1] = await self._with_decisions(self._messages[-1])
        return False

    async def _end(self, failure: RunFailure | None, **parts: Any) -> None:
        events = parts.pop("events", ())
        if failure is not None:
            log.error("run %s failed in attempt %d: %s", self.lease.run_id, self._rows.attempt, failure.code)
        results = settle_open(self._messages)
        change = self._journal.change(
            end="completed" if failure is None else "failed",
            failure=failure,
            results=tuple(call_result(call) for call in results),
            events=(*events, *(completed_event(call) for call in results), end_event(failure)),
            **parts,
        )
        self._ending = True
        stored_at = await self._journal.write(change)
        if failure is not None:
            self._note_end(RunStatus.FAILED, stored_at, error=failure)
        else:
            self._note_end(RunStatus.COMPLETED, stored_at, output=self._messages[-1].text)

    def _note_end(self, status: RunStatus, stored_at: float | None, **parts: Any) -> None:
        """Keep what the run came to, so that who waits for it here need not read it; it is what the store would say."""
        if stored_at is None:
            return
        self.ended = ended_run(self._rows, status, stored_at, self._usage, **parts)
