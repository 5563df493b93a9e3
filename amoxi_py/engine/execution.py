"""Executes one claimed run: rows -> next action -> act -> record, until it ends, waits, or is taken away."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from msgspec.structs import replace

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import AskModel, Limits, Pause, Work, next_action
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.run import Run, RunFailure, RunRows, RunStatus
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine.asides import settled_within
from amoxi_py.engine.asking import Asking
from amoxi_py.engine.budget import BudgetUsedUp, Spent
from amoxi_py.engine.call_batch import BatchHost, CallBatch, Recorded, updated
from amoxi_py.engine.calls import CallHost, RecordLast
from amoxi_py.engine.children import answer_of, asks, children_of, telling_of, without_held_back
from amoxi_py.engine.context import AgentContext
from amoxi_py.engine.deltas import Deltas, NoDeltas
from amoxi_py.engine.direct import found_for
from amoxi_py.engine.endings import discarding, end_event, ended_run, settle_open
from amoxi_py.engine.exits import belongs_to_run, cancelled_from_outside
from amoxi_py.engine.files import FilesOfCall
from amoxi_py.engine.final_results import INVALID, missed_too_often, take_result
from amoxi_py.engine.hooks import RunHooks
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.log_facts import about
from amoxi_py.engine.model_tries import ModelTries, end_of_tries
from amoxi_py.engine.parts import Parts
from amoxi_py.engine.play import Play
from amoxi_py.engine.results import call_result, completed_event
from amoxi_py.engine.shown_files import ShownFiles, files_shown
from amoxi_py.engine.tracing import RunSpans
from amoxi_py.engine.turns import ReplyReader, reply_events, tool_specs
from amoxi_py.errors import LeaseLost, ModelFailed
from amoxi_py.ports.changes import CallResult, Change

log = logging.getLogger("amoxi_py.runs")

_LATE_DECISION = 1.0
"""An approval is taken for expired this much later than decisions are refused: one made just in time is seen first."""
_NEWS = frozenset({EventType.APPROVAL_DECIDED, EventType.QUESTION_ANSWERED, EventType.SIGNAL_RECEIVED})
"""What tells that a call may go on which waited for somebody."""


_NO_CALLS: frozenset[tuple[int, int]] = frozenset()


class RunExecution:
    """One run under one lease. `interrupt` ends it from outside; what it has recorded stays.

    `lingering` holds the code of tools that was told to stop and has not ended yet. `ended` is what the run came to,
    when it came to its end here.
    """

    _record_last: RecordLast | None = None

    def __init__(
        self,
        parts: Parts,
        keeper: LeaseKeeper,
        rows: RunRows,
        history: tuple[Message, ...] | None,
        *,
        new: bool = False,
        values: dict[str, Any] | None = None,
    ) -> None:
        self.lease = rows.lease
        self.lingering: set[asyncio.Future[Any]] = set()
        self.ended: Run | None = None
        self._ending = False
        self._ended_seq: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._news = False
        self._parts = parts
        self._keeper = keeper
        self._rows = rows
        self._agent = found_for(parts.catalog, rows.agent)
        self._messages = list(rows.messages)
        self._recorded = Recorded(rows)
        self._spent = Spent(rows.usage)
        self._tries = ModelTries(rows.model_failures, parts.settings)
        self._crashes = rows.crashes
        self._journal = Journal(parts.store, rows.lease, telling_of(rows), parts.redaction)
        saved: list[str] | None = [] if rows.attempt == 1 and len(rows.messages) == 1 else None
        self._files = ShownFiles(parts.store, self._journal, rows.principal, saved)
        self._batch: CallBatch | None = None
        self._fresh = frozenset((call.turn, call.n) for call in rows.messages[-1].calls) if new else _NO_CALLS
        self._values = {} if values is None else dict.fromkeys(self._fresh, values)
        self._context = AgentContext(
            run_id=rows.lease.run_id,
            conversation_id=rows.conversation_id,
            agent=rows.agent,
            principal=rows.principal,
            attempt=rows.attempt,
            threads=parts.threads,
            lingering=self.lingering,
        )
        self._hooks = RunHooks(parts, self._context)
        self._spans = RunSpans(self._context, parent=rows.trace)
        self._asking = Asking(parts, self._journal, self._context, rows, history, self._spent, self._hooks, self._spans)

    async def run(self) -> None:
        """Execute until the run has ended or waits.

        Raises:
            LeaseLost: the run is not ours any more.
        """
        belongs_to_run()
        rows = self._rows
        about(run_id=self.lease.run_id, conversation_id=rows.conversation_id, principal=rows.principal.id)
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

        While a change is on its way it may be the start of a call, which nobody could tell from one that ran; nor could
        anybody of one that has started and not begun.
        """
        if self._journal.pending or self._fresh:
            return False
        return self._batch is None or self._batch.repeats_at_no_cost

    def is_of(self, principal: Principal, agent: str | None) -> bool:
        """Whether this principal owns the run (of this agent, when given)."""
        return self._rows.principal.owner_key == principal.owner_key and agent in (None, self._rows.agent)

    async def wait_for(self, told: asyncio.Future[None], timeout: float) -> None:
        """Return when a future is done, or when nothing of the run is left here: its end may have been told before."""
        leaving = () if self._task is None else (self._task,)
        await asyncio.wait((told, *leaving), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def outcome(self) -> Run | None:
        """Return what the run came to when it came to its end here, else None; for who was told that it has ended."""
        if self.ended is None and self._ending and self._task is not None:  # no code of the app is left in it
            await asyncio.wait((self._task,))
        return self.ended

    def _watch(self, event: Event | None) -> None:
        if event is None:
            self._checking = asyncio.get_running_loop().create_task(self._check_lease())
            return
        if event.type is EventType.RUN_COMPLETED:
            self._ended_seq = event.seq
        elif event.type in _NEWS or self._ends_child(event):
            self._hear_news()
        elif event.type is EventType.RUN_CANCELLED:
            now = self._parts.clock.now()
            ended = ended_run(self._rows, RunStatus.CANCELLED, now, self._spent.whole)
            self._spans.ended(ended)
            self._parts.measures.run_ended(ended)
            self.interrupt()

    def _ends_child(self, event: Event) -> bool:
        """Whether it tells of the end of a run that was asked for here, or may do so."""
        if event.type is not EventType.TOOL_COMPLETED or self._agent is None:
            return False
        return not isinstance(event.subject, ToolCall) or asks(self._agent, event.subject.tool)

    def _hear_news(self) -> None:
        self._news = True
        if self._batch is not None:
            self._batch.news()

    async def _check_lease(self) -> None:
        """Find out what was missed: a decision, an answer, or the end of the run."""
        try:
            await self._load()
        except LeaseLost:
            self.interrupt()
            return
        self._hear_news()

    async def _load(self) -> RunRows:
        return await self._journal.persist(lambda: self._parts.store.load(self.lease))

    async def _execute(self) -> None:
        agent = self._agent
        if agent is None:
            message = f"the agent {self._rows.agent!r} does not exist any more"
            await self._end(RunFailure(code="agent_unknown", message=message))
            return
        if self._rows.attempt > 1 or (len(self._messages) > 1 and not self._fresh):
            turn = self._messages[-1].turn
            log.info("run %s goes on after turn %d, in attempt %d", self.lease.run_id, turn, self._rows.attempt)
        if self._rows.partial is not None:
            await self._discard(self._rows.partial)
        play = self._play_of(agent)
        limits = self._limits(agent)
        while True:
            now = self._parts.clock.now()
            last = without_held_back(agent, self._messages[-1], self._parts.settings.parallel_calls)
            action = next_action((*self._messages[:-1], last), self._crashes, limits, now, _LATE_DECISION)
            if isinstance(action, AskModel):
                if await self._ask(play, action.turn):
                    return
            elif isinstance(action, Work):
                await self._work(play)
                if self._ending:
                    return
            elif isinstance(action, Pause):
                if await self._pause(action.until, action.kinds):
                    return
            else:
                await self._end(action.failure)
                return

    def _limits(self, agent: AgentDefinition) -> Limits:
        return Limits(max_turns=agent.max_turns, max_attempts=self._parts.settings.max_attempts)

    def _play_of(self, agent: AgentDefinition) -> Play:
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
            memories=self._parts.memories,
            hooks=self._hooks,
            values=self._values,
            mcp_approvals=settings.mcp_approvals,
        )
        host = CallHost(
            run=self._context,
            instances=self._parts.instances,
            journal=self._journal,
            keeper=self._keeper,
            max_result=settings.max_result,
            lingering=self.lingering,
            files=self._parts.files,
            memories=self._parts.memories,
            saved=self._files.note,
            now=clock.now,
            load=self._load,
            spans=self._spans,
            record_last=self._record_last,
            steps=self._parts.measures.steps,
        )
        calls = BatchHost(
            calls=host,
            agent=agent,
            parallel=settings.parallel_calls,
            patience=_LATE_DECISION,
            values=reader.values,
        )
        return Play(agent=agent, tools=tool_specs(agent, self._context), reader=reader, calls=calls)

    # -- the model's turn

    async def _ask(self, play: Play, turn: int) -> bool:
        """Ask the model and record its reply; return whether the run has ended or waits."""
        if play.agent.result is not None and missed_too_often(self._messages):
            await self._end(INVALID)
            return True
        message_id = new_id("msg")
        deltas = Deltas(self._journal, message_id) if self._shows_text() else NoDeltas()
        try:
            reply = await self._asking.reply(play.agent, play.tools, self._messages, deltas, self._tries.failures)
        except BudgetUsedUp as stop:
            await self._end(stop.failure)
            return True
        except ModelFailed as error:
            return await self._model_failed(error, message_id if deltas.stored else None)
        result = None
        if play.agent.result is not None:
            reply, result = take_result(play.agent.result, reply)
        message = await play.reader.read(reply, turn, message_id)
        files = await self._files.to_show(self._messages)
        if files:
            message = replace(message, files=files)
        ended = not message.calls
        started = [call for call in message.calls if call.status is CallStatus.STARTED]
        change = self._journal.change(
            message=message,
            children=children_of(play.agent, started),
            usage=self._spent.to_store(),
            model_failures=self._tries.answered(),
            end="completed" if ended else None,
            result=result,
            for_parent=await self._for_parent(message, result=result) if ended else None,
            instructions=self._asking.new_instructions,
            events=tuple(reply_events(message, ended=ended)),
        )
        self._ending = ended
        self._fresh = frozenset((call.turn, call.n) for call in started)
        stored_at = await self._journal.write(change)
        self._messages.append(message)
        self._crashes = 0
        self._asking.new_instructions = None
        if ended:
            self._note_end(RunStatus.COMPLETED, stored_at, output=message.text, result=result)
        return ended

    def _shows_text(self) -> bool:
        """Whether a reply is shown while it comes: nobody follows a child, and what hooks must see first is held."""
        redaction = self._parts.redaction
        held = self._hooks.hold_text or (redaction.active and redaction.longest is None)
        return not (self._rows.ancestors or held)

    async def _model_failed(self, error: ModelFailed, partial: str | None) -> bool:
        pause = self._tries.failed(error)
        log.warning("run %s: model request %d failed: %s", self.lease.run_id, self._tries.failures, error)
        parts = discarding(partial) if partial is not None else {}
        if pause is None:
            await self._end(end_of_tries(error), **parts)
            return True
        change = self._journal.change(model_failures=self._tries.failures, usage=self._spent.to_store(), **parts)
        if pause.in_place:
            await self._journal.write(change)
            await asyncio.sleep(pause.seconds)
            return False
        return await self._pause(self._parts.clock.now() + pause.seconds, ("model",), change)

    async def _discard(self, partial: str) -> None:
        await self._journal.write(self._journal.change(**discarding(partial)))

    # -- the calls of a reply

    async def _work(self, play: Play) -> None:
        """Work on the calls of the last reply until all are settled, or all that are left wait."""
        fresh, self._fresh = self._fresh, _NO_CALLS
        self._batch = CallBatch(play.calls, self._messages[-1], fresh=fresh, recorded=self._recorded)
        if self._news:  # it came before there was a batch to tell
            self._news = False
            self._batch.news()
        try:
            await self._batch.work()
        finally:
            self._batch.stop()
            self._messages[-1] = self._batch.message
        self._crashes = 0

    # -- ends and pauses

    async def _pause(self, until: float | None, kinds: tuple[str, ...], change: Change | None = None) -> bool:
        """Let the run wait; return False, with what has come, when there is nothing to wait for any more."""
        if await self._journal.pause(change or self._journal.change(), until, kinds):
            return True
        rows = await self._load()
        self._recorded.learn(rows)
        self._messages[-1] = updated(self._messages[-1], rows)
        return False

    async def _end(self, failure: RunFailure | None, **parts: Any) -> None:
        events = parts.pop("events", ())
        if failure is not None:
            log.error("run %s failed in attempt %d: %s", self.lease.run_id, self._rows.attempt, failure.code)
        results = settle_open(self._messages)
        change = self._journal.change(
            end="completed" if failure is None else "failed",
            failure=failure,
            usage=self._spent.to_store(),
            for_parent=await self._for_parent(failure=failure),
            results=tuple(call_result(call) for call in results),
            events=(*events, *(completed_event(call) for call in results), end_event(failure)),
            **parts,
        )
        self._ending = True
        stored_at = await self._journal.write(change)
        if failure is not None:
            self._note_end(RunStatus.FAILED, stored_at, error=failure)
        else:
            self._note_end(RunStatus.COMPLETED, stored_at, **self._output())

    def _output(self) -> dict[str, str | None]:
        return {"output": self._messages[-1].text}

    async def _for_parent(
        self, *last: Message, result: str | None = None, failure: RunFailure | None = None
    ) -> CallResult | None:
        """Return what the end of a child run gives to its parent; `last` is a message that is not recorded yet."""
        if not self._rows.ancestors:
            return None
        messages = (*self._messages, *last)
        shown, principal = files_shown(messages), self._rows.principal
        files = await self._journal.persist(lambda: self._parts.store.find_files(shown, principal)) if shown else ()
        text, longest = messages[-1].text, self._parts.settings.max_result
        call, status, value = answer_of(self._rows, text=text, result=result, failure=failure, files=files)
        return call_result(
            await settled_within(call, status, value, longest, self._journal, lambda: self._files_of(call))
        )

    def _files_of(self, call: ToolCall) -> FilesOfCall:
        """Return the files of the call that this run answers."""
        return FilesOfCall(
            files=self._parts.files,
            principal=self._rows.principal,
            where="the run",
            call_id=call.id,
            lease=self.lease,
            prove=lambda: self._keeper.prove(self.lease.run_id),
            saved=self._files.note,
        )

    def _note_end(self, status: RunStatus, stored_at: float | None, **parts: Any) -> None:
        """Keep what the run came to, so that who waits for it here need not read it; it is what the store would say.

        What runs below it have used is not known here.
        """
        if stored_at is None:
            return
        ended = ended_run(self._rows, status, stored_at, self._spent.whole, **parts)
        self._spans.ended(ended)
        self._asking.ended(self._messages, self._ended_seq)
        self._parts.measures.run_ended(ended)
        asked = any(call.wait is not None and call.wait.kind == "child" for one in self._messages for call in one.calls)
        self.ended = None if asked else ended
