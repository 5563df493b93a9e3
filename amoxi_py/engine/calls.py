"""One call of a tool, from its arguments to its one recorded result: tries, timeouts, waits, interruptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import Done, Instances, NotDone, ToolDefinition, Unknown
from amoxi_py.domain.encoding import clean_text, decode_json, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.settle import UNKNOWN_TEXT
from amoxi_py.domain.tool_call import CallStatus, Effect, StepRecord, ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.asides import settled_within
from amoxi_py.engine.attempts import Outcome, Raised, Returned, TimedOut, guarded
from amoxi_py.engine.call_memories import CallMemories, MemoriesOfCall, MemoriesToRead
from amoxi_py.engine.context import AgentContext, CallToolContext, Interrupted
from amoxi_py.engine.files import CallFiles, Files, FilesOfCall, FilesToRead
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.log_facts import about
from amoxi_py.engine.memories import Memories
from amoxi_py.engine.outcomes import failure_text, pause_before_retry, result_of, tell
from amoxi_py.engine.progress import ProgressLines
from amoxi_py.engine.results import call_result, completed_event, gone
from amoxi_py.engine.steps import Steps
from amoxi_py.engine.sync_context import SyncCallContext
from amoxi_py.engine.tracing import RunSpans
from amoxi_py.engine.waits import IN_PLACE, Waits
from amoxi_py.errors import ArgumentsInvalid, LeaseLost
from amoxi_py.ports.changes import NewStep, NewWait
from amoxi_py.ports.transactions import Work

log = logging.getLogger("amoxi_py.tools")

RecordLast = Callable[[ToolCall, tuple[NewEvent, ...]], Awaitable[None]]
Key = tuple[int, int]
"""The turn of a call and its place in it."""

_LOOKING = 60.0


class CallHost(Struct, frozen=True, kw_only=True):
    """What the calls of one run share; `saved` is told the ids of files that they save.

    `now` is the store's time, `load` reads the rows of the run anew. `record_last` records, in a run of one call, its
    result with the end of the run. `steps` counts those that are executed and replayed.
    """

    run: AgentContext
    instances: Instances
    journal: Journal
    keeper: LeaseKeeper
    max_result: int
    lingering: set[asyncio.Future[Any]]
    files: Files
    memories: Memories
    saved: Callable[[str], None]
    now: Callable[[], float]
    load: Callable[[], Awaitable[RunRows]]
    spans: RunSpans
    steps: dict[str, int]
    record_last: RecordLast | None = None


class _Waiting(Struct, frozen=True):
    wait: Wait


class CallExecution:
    """Executes one started call; `interrupted` when its code ran before: under another worker, or until it had to wait.

    `records` and `waits` are what it recorded, also when it comes to no result because it waits. `values` are the
    tool's arguments when they were read already. `follow` names the call that starts in its place, in the commit that
    records its result.
    """

    def __init__(
        self,
        host: CallHost,
        call: ToolCall,
        tool: ToolDefinition | None,
        records: Iterable[StepRecord],
        waits: Iterable[Wait],
        values: dict[str, Any] | None,
        *,
        interrupted: bool,
        follow: Callable[[Key], Key | None],
    ) -> None:
        self.key = (call.turn, call.n)
        self._follow = follow
        self._host = host
        self._call = call
        self._tool = tool
        self._records = {record.name: record for record in records}
        self._waits = {wait.k: wait for wait in waits}
        self._values = values
        self._interrupted = interrupted
        self._context: CallToolContext | None = None
        self._progress = ProgressLines(host.journal, call)
        self._timed_out: set[int] = set()

    @property
    def repeats_at_no_cost(self) -> bool:
        """Whether the call can be cut off now and run again elsewhere; a thread cannot be cut off."""
        return self._tool is None or (self._repeatable(self._tool) and not self._tool.sync)

    @property
    def records(self) -> tuple[StepRecord, ...]:
        """The outcomes of its steps so far."""
        return tuple(self._records.values())

    @property
    def waits(self) -> tuple[Wait, ...]:
        """What it has waited for so far."""
        return tuple(self._waits.values())

    async def run(self) -> ToolCall:
        """Execute the call, record its result, and return the settled call; the started one when it has to wait."""
        about(call_id=self._call.id)
        try:
            with self._host.spans.tool(self._call) as span:
                found = await self._settle()
                if isinstance(found, _Waiting):
                    if span is not None:
                        span.waits(found.wait.kind)
                    return replace(self._call, wait=found.wait)
                settled = await self._record(*found)
                if span is not None:
                    span.settled(settled)
                return settled
        finally:
            self._context = None  # it knows this object: together they would wait for the garbage collector

    def close(self) -> None:
        """Let nothing more of the running try have an effect."""
        if self._context is not None:
            self._context.close()

    async def _settle(self) -> tuple[CallStatus, Any] | _Waiting:
        tool = self._tool
        if tool is None:
            return gone(self._call, interrupted=self._interrupted)
        try:
            arguments = self._values
            if arguments is None:
                arguments = read_arguments(tool, decode_json(self._call.effective_arguments))
        except ArgumentsInvalid as error:
            changed = "The tool does not take these arguments any more"
            if self._interrupted and self._call.effect is not Effect.READ_ONLY:
                return CallStatus.UNKNOWN, f"{UNKNOWN_TEXT} {changed}: {error}"
            return CallStatus.FAILED, f"{changed}, so nothing was done: {error}"
        if self._interrupted:
            found = await self._look(tool, arguments, repeat=self._repeatable(tool))
            if found is not None:
                return found
            await self._start_again(failed=False)
            await self._look_at_waits()
        return await self._try(tool, arguments)

    def _told_to_stop(self) -> bool:
        """Whether it was this try that was interrupted; a context kept from another call says so on its own."""
        context = self._context
        return self._host.journal.closed or context is None or context.signal.cancelled

    def _repeatable(self, tool: ToolDefinition) -> bool:
        return self._call.effect.repeatable and tool.effect.repeatable

    async def _try(self, tool: ToolDefinition, arguments: dict[str, Any]) -> tuple[CallStatus, Any] | _Waiting:
        while True:
            outcome = await self._attempt(tool, arguments)
            if isinstance(outcome, _Waiting):
                return outcome
            if isinstance(outcome, Raised) and isinstance(outcome.error, Interrupted) and self._told_to_stop():
                raise LeaseLost(self._host.run.run_id)
            if isinstance(outcome, Returned):
                return result_of(tool, outcome.value)
            tell(outcome, self._place())
            if isinstance(outcome, TimedOut) and not self._repeatable(tool):
                found = await self._look(tool, arguments, repeat=False, over=outcome.ends)
                if found is not None:
                    return found
                await self._start_again(failed=False)
                continue
            pause = pause_before_retry(tool, outcome, self._call.failures)
            if pause is None:
                return CallStatus.FAILED, failure_text(tool, outcome)
            await asyncio.sleep(pause)
            await self._start_again(failed=True)

    def _place(self) -> str:
        call, run = self._call, self._host.run
        return f"run {run.run_id}, call {call.id}, tool {call.tool!r}, attempt {run.attempt}, try {max(call.tries, 1)}"

    async def _look(
        self,
        tool: ToolDefinition,
        arguments: dict[str, Any],
        *,
        repeat: bool,
        over: Callable[[], Awaitable[bool]] | None = None,
    ) -> tuple[CallStatus, Any] | None:
        """Return what an interrupted call came to, or None when it may run again.

        `over` says whether the interrupted code has ended: while it goes on, what is not done may still be.
        """
        if repeat:
            return None
        reconcile = tool.reconcile
        if reconcile is None:
            return CallStatus.UNKNOWN, UNKNOWN_TEXT
        ended = over is None or await over()
        where = "reconcile"
        principal = self._host.run.principal
        files = FilesToRead(files=self._host.files, principal=principal, where=where)
        memories = MemoriesToRead(self._host.memories, principal, where)
        context = self._new_context(tool, Steps.refusing(where), Waits.elsewhere(where), files, memories)
        start = lambda: reconcile(self._host.instances, context[1], arguments)  # noqa: E731 - a def says no more
        outcome = await guarded(context[0], start, tool.timeout or _LOOKING, self._host.lingering)
        found = outcome.value if isinstance(outcome, Returned) else None
        if isinstance(found, NotDone):
            return None if ended else (CallStatus.UNKNOWN, f"{UNKNOWN_TEXT} It may still be going on.")
        if isinstance(found, Done):
            return result_of(tool, found.value)
        if isinstance(outcome, Raised):
            log.warning("%s: reconcile failed with %s", self._place(), type(outcome.error).__qualname__)
        reason = f" {clean_text(found.reason)}" if isinstance(found, Unknown) and found.reason else ""
        return CallStatus.UNKNOWN, UNKNOWN_TEXT + reason

    async def _attempt(self, tool: ToolDefinition, arguments: dict[str, Any]) -> Outcome | _Waiting:
        await self._prove()
        context = self._new_context(tool, self._steps(), self._waits_of(tool), self._files(), self._memories())
        start = lambda: tool.call(self._host.instances, context[1], arguments)  # noqa: E731 - a def says no more
        outcome = await guarded(context[0], start, tool.timeout, self._host.lingering)
        wait = context[0].waits_for
        if wait is None:
            return outcome
        if isinstance(outcome, Raised) and isinstance(outcome.error, Exception):
            log.warning("%s raised while it ended in order to wait", self._place(), exc_info=outcome.error)
        return _Waiting(wait)

    async def _prove(self) -> None:
        await self._host.keeper.prove(self._host.run.run_id)
        if self._host.journal.closed:  # interrupted before it began
            raise LeaseLost(self._host.run.run_id)

    def _steps(self) -> Steps:
        return Steps(
            records=self._records.values(),
            record=self._record_step,
            commit=self._commit_step,
            prove=self._prove,
            redaction=self._host.journal.redaction,
            counts=self._host.steps,
        )

    def _waits_of(self, tool: ToolDefinition) -> Waits:
        if not self._repeatable(tool):
            return Waits.of_unsafe_tool()
        in_place = IN_PLACE if tool.timeout is None else 0.0  # the time of a wait is not the tool's own
        return Waits(
            records=self._waits,
            record=self._record_wait,
            timed_out=self._record_timeout,
            now=self._host.now,
            in_place=in_place,
        )

    async def _look_at_waits(self) -> None:
        """Find out whether something came in the last moment: since the call started again nothing can any more."""
        if any(wait.value is None and wait.kind != "sleep" for wait in self._waits.values()):
            await self._load_waits()

    async def _load_waits(self) -> None:
        rows = await self._host.load()
        self._waits.update((wait.k, wait) for wait in rows.waits.get(self.key, ()))

    def _files(self) -> FilesOfCall:
        return FilesOfCall(
            files=self._host.files,
            principal=self._host.run.principal,
            where="the tool",
            call_id=self._call.id,
            lease=self._host.journal.lease,
            prove=self._prove,
            saved=self._host.saved,
        )

    def _memories(self) -> MemoriesOfCall:
        host = self._host
        return MemoriesOfCall(host.memories, host.run.principal, self._call.id, self._prove, host.journal.persist)

    def _new_context(
        self, tool: ToolDefinition, steps: Steps, waits: Waits, files: CallFiles, memories: CallMemories
    ) -> tuple[CallToolContext, CallContext]:
        context = CallToolContext(
            run=self._host.run,
            call_id=self._call.id,
            attempt=max(self._call.tries, 1),
            steps=steps,
            waits=waits,
            progress=lambda text: None if waits.repeating else self._progress.add(text),
            files=files,
            memories=memories,
        )
        self._context = context
        return context, SyncCallContext(context) if tool.sync else context

    async def _start_again(self, *, failed: bool) -> None:
        key = (self._call.turn, self._call.n)
        journal = self._host.journal
        if failed:
            await journal.write(journal.change(retries=(key,)))
            self._records = {name: record for name, record in self._records.items() if not record.failed}
        else:
            await journal.write(journal.change(starts=(key,)))
        self._call = replace(self._call, tries=self._call.tries + 1, failures=self._call.failures + failed)

    async def _record_step(self, record: StepRecord) -> None:
        journal = self._host.journal
        self._records[record.name] = record
        step = NewStep(turn=self._call.turn, n=self._call.n, record=record)
        await journal.write(journal.change(steps=(step,)))

    async def _record_wait(self, wait: Wait) -> Wait:
        turn, n = self.key
        journal = self._host.journal
        self._waits[wait.k] = wait = journal.redaction.wait(wait)
        events = self._progress.rest()
        if wait.kind == "question":
            asking = replace(self._call, wait=wait)
            events += (NewEvent(type=EventType.QUESTION_ASKED, turn=turn, n=n, subject=asking),)
        await journal.write(journal.change(waits=(NewWait(turn=turn, n=n, wait=wait),), events=events))
        if wait.kind == "signal":  # it may have come before
            await self._load_waits()
        return self._waits[wait.k]

    async def _record_timeout(self, wait: Wait) -> Wait:
        """Tell that a question is not asked any more; what came in the last moment counts."""
        if wait.k in self._timed_out:
            return wait
        self._timed_out.add(wait.k)
        await self._load_waits()
        wait = self._waits[wait.k]
        if wait.value is None and wait.kind == "question":
            (turn, n), journal = self.key, self._host.journal
            data = encode_json({"k": wait.k})
            over = NewEvent(type=EventType.QUESTION_CLOSED, turn=turn, n=n, data=data, subject=self._call)
            await journal.write(journal.change(events=(over,)))
        return wait

    async def _commit_step(self, name: str, work: Work, threaded: bool) -> StepRecord:
        turn, n = self.key
        record = await self._host.journal.commit_step(turn, n, name, work, threaded=threaded)
        self._records[name] = record
        return record

    async def _record(self, status: CallStatus, value: Any) -> ToolCall:
        if status is CallStatus.UNKNOWN:
            log.error("%s: its outcome is unknown", self._place())
        journal = self._host.journal
        value = journal.redaction.value(value)
        record_last, limit = self._host.record_last, self._host.max_result
        direct = record_last is not None
        settled = await settled_within(self._call, status, value, limit, journal, self._files, direct=direct)
        events = (*self._progress.rest(), completed_event(settled))
        if record_last is not None:
            await record_last(settled, events)
            return settled
        following = self._follow(self.key)
        starts = () if following is None else (following,)
        await journal.write(journal.change(results=(call_result(settled),), starts=starts, events=events))
        return settled


def read_arguments(tool: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the tool's Python values; raise `ArgumentsInvalid`, also when a validator of the app itself fails."""
    try:
        return tool.read_arguments(arguments)
    except ArgumentsInvalid:
        raise
    except Exception as error:
        log.exception("a validator of %s failed", tool.where)
        raise ArgumentsInvalid((("", f"a check of the tool failed ({type(error).__qualname__})"),)) from error
