"""The calls of one reply, worked on together: bounded, each result recorded when it is there, approved ones at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import Limits, Work, next_action
from amoxi_py.domain.tool_call import CallStatus, StepRecord, ToolCall
from amoxi_py.engine.calls import (
    DECLINED_TEXT,
    EXPIRED_TEXT,
    CallExecution,
    CallHost,
    Key,
    call_result,
    completed_event,
    settled_call,
)
from amoxi_py.errors import Conflict

_NO_WORK = Work()


class BatchHost(Struct, frozen=True, kw_only=True):
    """What a batch needs of its run.

    `reload` reads the message with the decisions made meanwhile; `values` are arguments that were read already.
    """

    calls: CallHost
    agent: AgentDefinition
    parallel: int
    now: Callable[[], float]
    reload: Callable[[Message], Awaitable[Message]]
    values: dict[Key, dict[str, Any]]


class CallBatch:
    """The calls of `message`.

    `fresh` are the ones that were started by this execution; other started ones were interrupted, and `steps` holds
    what they recorded.
    """

    def __init__(
        self,
        host: BatchHost,
        message: Message,
        *,
        fresh: frozenset[Key],
        steps: dict[Key, tuple[StepRecord, ...]],
    ) -> None:
        self.message = message
        self._host = host
        self._fresh = set(fresh)
        self._steps = steps
        self._running: dict[asyncio.Task[ToolCall], CallExecution] = {}
        self._following: dict[Key, ToolCall] = {}
        self._starting: set[Key] = set()  # chosen already, while that is written
        self._decisions = False
        self._news: asyncio.Future[None] | None = None

    def decided(self) -> None:
        """Tell that a person decided about one of the calls."""
        self._decisions = True
        self._wake()

    async def work(self) -> None:
        """Work until all calls are settled, or all that are left wait for a person."""
        while True:
            await self._record_starts_and_refusals()
            self._launch()
            if not self._running and not self._decisions:
                return
            await self._wait()
            for task in [task for task in self._running if task.done()]:
                key = self._running.pop(task).key
                self._put(task.result())
                if key in self._following:
                    self._put_started(self._following.pop(key))
            if self._decisions:
                self._decisions = False
                self.message = await self._host.reload(self.message)

    @property
    def repeats_at_no_cost(self) -> bool:
        """Whether all running calls can be cut off now and run again elsewhere."""
        return all(execution.repeats_at_no_cost for execution in self._running.values())

    def close(self) -> None:
        """Let nothing more of the running calls have an effect."""
        for execution in self._running.values():
            execution.close()

    def stop(self) -> None:
        """Close, and end what can be ended; what cannot lingers."""
        lingering: set[asyncio.Future[Any]] = self._host.calls.lingering
        self.close()
        for task in self._running:
            task.cancel()
            lingering.add(task)
            task.add_done_callback(lingering.discard)
            task.add_done_callback(_look_away)
        self._running.clear()

    async def _wait(self) -> None:
        """Return when a call has ended or a decision has come."""
        if self._decisions or any(task.done() for task in self._running):
            return
        loop = asyncio.get_running_loop()
        self._news = loop.create_future()
        pause = self._until_expiry()
        timer = None if pause is None else loop.call_later(pause, self._wake)
        try:
            await self._news
        finally:
            if timer is not None:
                timer.cancel()

    def _until_expiry(self) -> float | None:
        open_ones = [call.approval for call in self.message.calls if call.status is CallStatus.OPEN and call.approval]
        times = [one.expires_at for one in open_ones if one.decision is None and one.expires_at is not None]
        return max(min(times) - self._host.now(), 0.01) if times else None

    def _wake(self, _ended: object = None) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def _record_starts_and_refusals(self) -> None:
        work = self._next_work()
        free = self._host.parallel - sum(call.status is CallStatus.STARTED for call in self.message.calls)
        starts = work.start[: max(free, 0)]
        if not starts and not work.refused:
            return
        refused = [self._refuse(call) for call in work.refused]
        journal = self._host.calls.journal
        change = journal.change(
            starts=tuple((call.turn, call.n) for call in starts),
            expired=tuple((call.turn, call.n) for call in work.refused if _undecided(call)),
            results=tuple(call_result(call) for call in refused),
            events=tuple(completed_event(call) for call in refused),
        )
        self._starting.update(change.starts)
        try:
            await journal.write(change)
        except Conflict:  # somebody decided in the last moment
            await journal.void(change)
            self._starting.difference_update(change.starts)
            self.decided()
            return
        for call in refused:
            self._put(call)
        for call in starts:
            self._put_started(call)

    def _next_work(self) -> Work:
        """Return the calls that can start now, but for those that were chosen already, and those that are refused."""
        if all(call.status is not CallStatus.OPEN for call in self.message.calls):
            return _NO_WORK
        action = next_action((self.message,), 0, Limits(), self._host.now())
        if not isinstance(action, Work):
            return _NO_WORK
        start = tuple(call for call in action.start if (call.turn, call.n) not in self._starting)
        return replace(action, start=start)

    def _follow(self, ended: Key) -> Key | None:
        """Choose the call that starts in the place of one that ends; it is launched once that is durable."""
        startable = self._next_work().start
        if not startable:
            return None
        chosen = self._following[ended] = startable[0]
        key = (chosen.turn, chosen.n)
        self._starting.add(key)
        return key

    def _put_started(self, call: ToolCall) -> None:
        key = (call.turn, call.n)
        self._starting.discard(key)
        self._fresh.add(key)
        self._put(replace(call, status=CallStatus.STARTED, tries=call.tries + 1))

    def _launch(self) -> None:
        running = {execution.key for execution in self._running.values()}
        for call in self.message.calls:
            key = (call.turn, call.n)
            if call.status is CallStatus.STARTED and key not in running:
                tool = self._host.agent.tool(call.tool)
                records = self._steps.get(key, ())
                interrupted = key not in self._fresh
                values = self._host.values.pop(key, None)
                execution = CallExecution(
                    self._host.calls, call, tool, records, values, interrupted=interrupted, follow=self._follow
                )
                task = asyncio.get_running_loop().create_task(execution.run())
                task.add_done_callback(self._wake)
                self._running[task] = execution

    def _put(self, changed: ToolCall) -> None:
        calls = tuple(changed if call.n == changed.n else call for call in self.message.calls)
        self.message = replace(self.message, calls=calls)

    def _refuse(self, call: ToolCall) -> ToolCall:
        approval = call.approval
        assert approval is not None
        text = DECLINED_TEXT if approval.decision == "decline" else EXPIRED_TEXT
        if approval.reason:
            text += f" Reason: {approval.reason}"
        return settled_call(call, CallStatus.DECLINED, text, self._host.calls.max_result)


def _look_away(task: asyncio.Task[ToolCall]) -> None:
    """Take note of how an abandoned call ended, which is of no interest to anybody any more."""
    if not task.cancelled():
        task.exception()


def _undecided(call: ToolCall) -> bool:
    return call.approval is not None and call.approval.decision is None
