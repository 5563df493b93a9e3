"""One call of a tool, from its arguments to its one recorded result: tries, timeouts, interruptions, reconciling."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import Done, Instances, NotDone, ToolDefinition, Unknown
from amoxi_py.domain.encoding import clean_text, decode_json, encode_json
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.retry import RetryPolicy, retry_delay
from amoxi_py.domain.settle import HALF_DONE_TEXT, UNKNOWN_TEXT
from amoxi_py.domain.tool_call import CallStatus, Effect, StepRecord, ToolCall
from amoxi_py.engine.context import AgentContext, CallToolContext, Interrupted, SyncCallContext
from amoxi_py.engine.exits import cancelled_from_outside
from amoxi_py.engine.files import CallFiles, Files, FilesOfCall, FilesToRead
from amoxi_py.engine.journal import Journal
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.progress import ProgressLines
from amoxi_py.engine.steps import Steps, error_text
from amoxi_py.errors import ArgumentsInvalid, LeaseLost, StepError, ToolError, ValueNotStorable
from amoxi_py.ports.store import CallResult, NewStep
from amoxi_py.ports.transactions import Work

log = logging.getLogger("amoxi_py.tools")

Key = tuple[int, int]
"""The turn of a call and its place in it."""

_RETRY = RetryPolicy(first=0.2, longest=5.0)
_SOON = 1.0
_LOOKING = 60.0
DECLINED_TEXT = "The person declined this action."
EXPIRED_TEXT = "Nobody decided in time, so this action was not done."


class CallHost(Struct, frozen=True, kw_only=True):
    """What the calls of one run share; `saved` is told the ids of files that they save."""

    run: AgentContext
    instances: Instances
    journal: Journal
    keeper: LeaseKeeper
    max_result: int
    lingering: set[asyncio.Future[Any]]
    files: Files
    saved: Callable[[str], None]


class _Returned(Struct, frozen=True):
    value: Any


class _Raised(Struct, frozen=True):
    error: BaseException


class _TimedOut(Struct, frozen=True):
    seconds: float
    context: CallToolContext
    task: asyncio.Task[Any]

    async def ends(self) -> bool:
        """Return whether the code of the try ends soon, now that it was told to stop."""
        try:
            async with asyncio.timeout(_SOON):
                await asyncio.wait((self.task,))
                while self.context.stopped:
                    await asyncio.wait(tuple(self.context.stopped))
        except TimeoutError:
            return False
        return True


_Outcome = _Returned | _Raised | _TimedOut


class CallExecution:
    """Executes one started call; `interrupted` when an earlier worker had started it.

    `values` are the tool's arguments when they were read already. `follow` names the call that starts in its place, in
    the commit that records its result.
    """

    def __init__(
        self,
        host: CallHost,
        call: ToolCall,
        tool: ToolDefinition | None,
        records: tuple[StepRecord, ...],
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
        self._values = values
        self._interrupted = interrupted
        self._context: CallToolContext | None = None
        self._progress = ProgressLines(host.journal, call)

    @property
    def repeats_at_no_cost(self) -> bool:
        """Whether the call can be cut off now and run again elsewhere; a thread cannot be cut off."""
        return self._tool is None or (self._repeatable(self._tool) and not self._tool.sync)

    async def run(self) -> ToolCall:
        """Execute the call, record its result, and return the settled call."""
        try:
            status, value = await self._settle()
            return await self._record(status, value)
        finally:
            self._context = None  # it knows this object: together they would wait for the garbage collector

    def close(self) -> None:
        """Let nothing more of the running try have an effect."""
        if self._context is not None:
            self._context.close()

    async def _settle(self) -> tuple[CallStatus, Any]:
        tool = self._tool
        if tool is None:
            return _gone(self._call, interrupted=self._interrupted)
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
        return await self._try(tool, arguments)

    def _told_to_stop(self) -> bool:
        """Whether it was this try that was interrupted; a context kept from another call says so on its own."""
        context = self._context
        return self._host.journal.closed or context is None or context.signal.cancelled

    def _repeatable(self, tool: ToolDefinition) -> bool:
        return self._call.effect.repeatable and tool.effect.repeatable

    async def _try(self, tool: ToolDefinition, arguments: dict[str, Any]) -> tuple[CallStatus, Any]:
        while True:
            outcome = await self._attempt(tool, arguments)
            if isinstance(outcome, _Raised) and isinstance(outcome.error, Interrupted) and self._told_to_stop():
                raise LeaseLost(self._host.run.run_id)
            if isinstance(outcome, _Returned):
                return self._encode(tool, outcome.value)
            self._tell(outcome)
            if isinstance(outcome, _TimedOut) and not self._repeatable(tool):
                found = await self._look(tool, arguments, repeat=False, over=outcome.ends)
                if found is not None:
                    return found
                await self._start_again(failed=False)
                continue
            pause = self._pause_before_retry(tool, outcome)
            if pause is None:
                return CallStatus.FAILED, _failure_text(tool, outcome)
            await asyncio.sleep(pause)
            await self._start_again(failed=True)

    def _tell(self, outcome: _Raised | _TimedOut) -> None:
        """Log a try that came to nothing. What a `ToolError` says is for the model, and may hold anything."""
        if isinstance(outcome, _TimedOut):
            log.error("%s took longer than %g s", self._place(), outcome.seconds)
            return
        kind = type(outcome.error).__qualname__
        if _text_for_model(outcome.error) is not None:
            log.info("%s raised %s", self._place(), kind)
        else:
            log.error("%s raised %s", self._place(), kind, exc_info=outcome.error)

    def _place(self) -> str:
        call, run = self._call, self._host.run
        return f"run {run.run_id}, call {call.id}, tool {call.tool!r}, attempt {run.attempt}, try {max(call.tries, 1)}"

    def _pause_before_retry(self, tool: ToolDefinition, outcome: _Outcome) -> float | None:
        if isinstance(outcome, _Raised) and _text_for_model(outcome.error) is not None:
            return None
        policy = replace(_RETRY, tries=tool.retries + 1)
        return retry_delay(policy, self._call.failures + 1, chance=random.random())  # noqa: S311 - spreads tries

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
        files = FilesToRead(files=self._host.files, principal=self._host.run.principal, where=where)
        context = self._new_context(tool, Steps.refusing(where), files)
        start = lambda: reconcile(self._host.instances, context[1], arguments)  # noqa: E731 - a def says no more
        outcome = await self._guard(context, start, tool.timeout or _LOOKING)
        found = outcome.value if isinstance(outcome, _Returned) else None
        if isinstance(found, NotDone):
            return None if ended else (CallStatus.UNKNOWN, f"{UNKNOWN_TEXT} It may still be going on.")
        if isinstance(found, Done):
            return self._encode(tool, found.value)
        if isinstance(outcome, _Raised):
            log.warning("%s: reconcile failed with %s", self._place(), type(outcome.error).__qualname__)
        reason = f" {clean_text(found.reason)}" if isinstance(found, Unknown) and found.reason else ""
        return CallStatus.UNKNOWN, UNKNOWN_TEXT + reason

    async def _attempt(self, tool: ToolDefinition, arguments: dict[str, Any]) -> _Outcome:
        await self._prove()
        context = self._new_context(tool, self._steps(), self._files())
        return await self._guard(context, lambda: tool.call(self._host.instances, context[1], arguments), tool.timeout)

    async def _prove(self) -> None:
        await self._host.keeper.prove(self._host.run.run_id)
        if self._host.journal.closed:  # interrupted before it began
            raise LeaseLost(self._host.run.run_id)

    def _steps(self) -> Steps:
        return Steps(
            records=self._records.values(), record=self._record_step, commit=self._commit_step, prove=self._prove
        )

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

    def _new_context(self, tool: ToolDefinition, steps: Steps, files: CallFiles) -> tuple[CallToolContext, CallContext]:
        context = CallToolContext(
            run=self._host.run,
            call_id=self._call.id,
            attempt=max(self._call.tries, 1),
            steps=steps,
            progress=self._progress.add,
            files=files,
        )
        self._context = context
        return context, SyncCallContext(context) if tool.sync else context

    async def _guard(
        self,
        context: tuple[CallToolContext, CallContext],
        start: Callable[[], Awaitable[Any]],
        timeout: float | None,
    ) -> _Outcome:
        """Run a tool's code, and keep whatever it does from the loop and from us.

        Only a timeout needs a task of its own: when the run is interrupted, the whole call is left behind.
        """
        if timeout is None:
            outcome = await _outcome_of(start)
            context[0].closed = True
            return outcome
        task = asyncio.get_running_loop().create_task(_outcome_of(start))
        try:
            done, _ = await asyncio.wait((task,), timeout=timeout)
        except asyncio.CancelledError:
            self._abandon(context[0], task)
            raise
        if done:
            context[0].closed = True
            return _Raised(asyncio.CancelledError()) if task.cancelled() else task.result()
        self._abandon(context[0], task)
        return _TimedOut(timeout, context[0], task)

    def _abandon(self, context: CallToolContext, task: asyncio.Task[_Outcome]) -> None:
        context.close()
        task.cancel()
        self._host.lingering.add(task)
        task.add_done_callback(self._host.lingering.discard)

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

    async def _commit_step(self, name: str, work: Work, threaded: bool) -> StepRecord:
        turn, n = self.key
        record = await self._host.journal.commit_step(turn, n, name, work, threaded=threaded)
        self._records[name] = record
        return record

    def _encode(self, tool: ToolDefinition, value: Any) -> tuple[CallStatus, Any]:
        try:
            return CallStatus.DONE, tool.encode_result(value)
        except ValueNotStorable as error:
            log.error("the result of %s cannot be stored: %s", tool.where, error)
            done = "" if tool.effect.repeatable else " The action itself was done; do not repeat it."
            return CallStatus.FAILED, f"The tool gave a result that cannot be stored: {error}.{done}"

    async def _record(self, status: CallStatus, value: Any) -> ToolCall:
        if status is CallStatus.UNKNOWN:
            log.error("%s: its outcome is unknown", self._place())
        settled = settled_call(self._call, status, value, self._host.max_result)
        journal = self._host.journal
        events = (*self._progress.rest(), completed_event(settled))
        following = self._follow(self.key)
        starts = () if following is None else (following,)
        await journal.write(journal.change(results=(call_result(settled),), starts=starts, events=events))
        return settled


async def _outcome_of(start: Callable[[], Awaitable[Any]]) -> _Outcome:
    try:
        return _Returned(await start())
    except BaseException as error:
        if cancelled_from_outside(error):
            raise
        return _Raised(error)


def _gone(call: ToolCall, *, interrupted: bool) -> tuple[CallStatus, Any]:
    gone = f"The tool {call.tool!r} does not exist any more"
    if interrupted:
        return CallStatus.UNKNOWN, f"{UNKNOWN_TEXT} {gone}."
    return CallStatus.FAILED, f"{gone}; nothing was done."


def _failure_text(tool: ToolDefinition, outcome: _Outcome) -> str:
    if isinstance(outcome, _TimedOut):
        stopped = f"The tool took longer than {outcome.seconds:g} s and was stopped."
        return stopped if tool.effect is Effect.READ_ONLY else f"{stopped} {HALF_DONE_TEXT}"
    assert isinstance(outcome, _Raised)
    return (_text_for_model(outcome.error) or "").strip() or "The tool failed."


def _text_for_model(error: BaseException) -> str | None:
    """Return what an error was raised to tell the model, or None."""
    if isinstance(error, ToolError):
        return error_text(error)
    return error.text if isinstance(error, StepError) and error.for_model else None


def read_arguments(tool: ToolDefinition, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the tool's Python values; raise `ArgumentsInvalid`, also when a validator of the app itself fails."""
    try:
        return tool.read_arguments(arguments)
    except ArgumentsInvalid:
        raise
    except Exception as error:
        log.exception("a validator of %s failed", tool.where)
        raise ArgumentsInvalid((("", f"a check of the tool failed ({type(error).__qualname__})"),)) from error


def settled_call(call: ToolCall, status: CallStatus, value: Any, max_result: int) -> ToolCall:
    """Return the call with its result, cut when it is longer than a model is given."""
    text = encode_json(value)
    if len(text) > max_result:
        whole = value if isinstance(value, str) else text
        note = f"\n[cut: this result had {len(text)} bytes; the limit is {max_result}]"
        text = encode_json(whole[: max(max_result - 200, 0)] + note)
        while len(text) > max_result and len(whole) > 0:  # letters of other alphabets take six bytes each
            whole = whole[: len(whole) * max_result // (len(text) + 200)]
            text = encode_json(whole + note)
    return replace(call, status=status, result=text)


def call_result(call: ToolCall) -> CallResult:
    """Return the result of a settled call as it is stored."""
    assert call.result is not None
    return CallResult(turn=call.turn, n=call.n, status=call.status, result=call.result)


def completed_event(call: ToolCall) -> NewEvent:
    """Return the event that tells of a settled call."""
    return NewEvent(type=EventType.TOOL_COMPLETED, turn=call.turn, n=call.n, subject=call)
