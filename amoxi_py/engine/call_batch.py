"""The calls of one reply, worked on together: bounded, each result recorded when it is there.

Those that a person approves, and those that have waited long enough, go on at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import Limits, Work, next_action, waiting
from amoxi_py.domain.run import RunRows
from amoxi_py.domain.tool_call import CallStatus, StepRecord, ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.calls import CallExecution, CallHost, Key
from amoxi_py.engine.children import asks, begun, children_of, waits_for_child
from amoxi_py.engine.results import DECLINED_TEXT, EXPIRED_TEXT, call_result, completed_event, settled_call
from amoxi_py.errors import Conflict

_NO_WORK = Work()


class BatchHost(Struct, frozen=True, kw_only=True):
    """What a batch needs of its run.

    `patience` is how many seconds after its expiry an approval is taken for expired; `values` are arguments that were
    read already.
    """

    calls: CallHost
    agent: AgentDefinition
    parallel: int
    patience: float
    values: dict[Key, dict[str, Any]]


class Recorded:
    """What the calls of a run have recorded, by (turn, n): the outcomes of their steps, and what they waited for."""

    def __init__(self, rows: RunRows) -> None:
        self.steps: dict[Key, tuple[StepRecord, ...]] = dict(rows.steps)
        self.waits: dict[Key, tuple[Wait, ...]] = dict(rows.waits)

    def learn(self, rows: RunRows, running: Collection[Key] = ()) -> None:
        """Take over what is stored, but for the calls whose code runs here: they know more."""
        self.steps.update((key, found) for key, found in rows.steps.items() if key not in running)
        self.waits.update((key, found) for key, found in rows.waits.items() if key not in running)


class CallBatch:
    """The calls of `message`.

    `fresh` are the ones that were started by this execution; the code of other started ones ran before, and `recorded`
    holds what they recorded.
    """

    def __init__(
        self,
        host: BatchHost,
        message: Message,
        *,
        fresh: frozenset[Key],
        recorded: Recorded,
    ) -> None:
        self.message = message
        self._host = host
        self._fresh = set(fresh)
        self._recorded = recorded
        self._running: dict[asyncio.Task[ToolCall], CallExecution] = {}
        self._following: dict[Key, ToolCall] = {}
        self._starting: set[Key] = set()  # chosen already, while that is written
        self._news = False
        self._alarm: asyncio.Future[None] | None = None

    def news(self) -> None:
        """Tell that something came from outside that a call may wait for, such as a decision or an answer."""
        self._news = True
        self._wake()

    async def work(self) -> None:
        """Work until all calls are settled, or all that are left wait."""
        while True:
            await self._record_starts_and_refusals()
            self._launch()
            if not self._running and not self._news:
                return
            await self._wait()
            for task in [task for task in self._running if task.done()]:
                self._take(task.result(), self._running.pop(task))
            if self._news:
                self._news = False
                await self._learn()

    def _take(self, call: ToolCall, execution: CallExecution) -> None:
        key = execution.key
        self._put(call)
        if not call.status.settled:  # it waits
            self._recorded.steps[key] = execution.records
            self._recorded.waits[key] = execution.waits
            self._fresh.discard(key)
            self._news |= bool(self._running)  # what it waits for may have been passed over while its code ended
        if key in self._following:
            self._put_started(self._following.pop(key))

    async def _learn(self) -> None:
        rows = await self._host.calls.load()
        running = {execution.key for execution in self._running.values()}
        self._recorded.learn(rows, running)
        self.message = updated(self.message, rows, running)

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
        """Return when a call has ended, or something has come that one may wait for."""
        if self._news or any(task.done() for task in self._running):
            return
        loop = asyncio.get_running_loop()
        self._alarm = loop.create_future()
        pause = self._until_a_time()
        timer = None if pause is None else loop.call_later(pause, self._wake)
        try:
            await self._alarm
        finally:
            if timer is not None:
                timer.cancel()

    def _until_a_time(self) -> float | None:
        """Return for how long no approval expires and no wait ends by itself."""
        now, running = self._host.calls.now(), {execution.key for execution in self._running.values()}
        times = []
        for call in self.message.calls:
            if call.status is CallStatus.OPEN and call.approval is not None and call.approval.decision is None:
                expires_at = call.approval.expires_at
                times.append(None if expires_at is None else expires_at + self._host.patience)
            elif waiting(call, now) and call.wait is not None and (call.turn, call.n) not in running:
                times.append(call.wait.until)
        known = [time for time in times if time is not None]
        return max(min(known) - now, 0.01) if known else None

    def _wake(self, _ended: object = None) -> None:
        if self._alarm is not None and not self._alarm.done():
            self._alarm.set_result(None)

    async def _record_starts_and_refusals(self) -> None:
        work = self._next_work()
        starts = self._with_places(work.start)
        if not starts and not work.refused:
            return
        refused = [self._refuse(call) for call in work.refused]
        journal = self._host.calls.journal
        change = journal.change(
            starts=tuple((call.turn, call.n) for call in starts),
            children=children_of(self._host.agent, starts),
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
            self.news()
            return
        for call in refused:
            self._put(call)
        for call in starts:
            self._put_started(call)

    def _with_places(self, startable: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        """Return those that can start now: so many as have a place, and child runs as many again."""
        if not startable:
            return ()
        now, agent, parallel = self._host.calls.now(), self._host.agent, self._host.parallel
        started = [call for call in self.message.calls if call.status is CallStatus.STARTED]
        free_for_code = parallel - sum(not waiting(call, now) for call in started)
        free_for_children = parallel - sum(map(waits_for_child, started))
        with_code = [call for call in startable if not asks(agent, call.tool)]
        asking = [call for call in startable if asks(agent, call.tool)]
        return (*with_code[: max(free_for_code, 0)], *asking[: max(free_for_children, 0)])

    def _next_work(self) -> Work:
        """Return the calls that can start now, but for those that were chosen already, and those that are refused."""
        if all(call.status is not CallStatus.OPEN for call in self.message.calls):
            return _NO_WORK
        action = next_action((self.message,), 0, Limits(), self._host.calls.now(), self._host.patience)
        if not isinstance(action, Work):
            return _NO_WORK
        start = tuple(call for call in action.start if (call.turn, call.n) not in self._starting)
        return replace(action, start=start)

    def _follow(self, ended: Key) -> Key | None:
        """Choose the call that starts in the place of one that ends; it is launched once that is durable."""
        startable = [call for call in self._next_work().start if not asks(self._host.agent, call.tool)]
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
        self._put(begun(self._host.agent, call, self._host.calls.now()))

    def _launch(self) -> None:
        running = {execution.key for execution in self._running.values()}
        now = self._host.calls.now()
        for call in self.message.calls:
            key = (call.turn, call.n)
            if call.status is not CallStatus.STARTED or key in running or waiting(call, now):
                continue
            fresh = key in self._fresh
            if not fresh and call.wait is not None and len(self._running) >= self._host.parallel:
                continue  # it has waited, and others have its place meanwhile
            execution = CallExecution(
                self._host.calls,
                call,
                self._host.agent.tool(call.tool),
                self._recorded.steps.get(key, ()),
                self._recorded.waits.get(key, ()),
                self._host.values.pop(key, None),
                interrupted=not fresh,
                follow=self._follow,
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


def updated(message: Message, rows: RunRows, running: Collection[Key] = ()) -> Message:
    """Return a reply with what came for its calls from outside, but for those whose code runs here.

    Of an open call that is a decision; of one that waits, an answer, or its end.
    """
    stored = {call.n: call for call in rows.messages[-1].calls}

    def news_of(call: ToolCall) -> ToolCall:
        found = stored.get(call.n)
        if found is None or call.status.settled or (call.turn, call.n) in running:
            return call
        if call.status is CallStatus.OPEN:
            return replace(call, approval=found.approval or call.approval)
        return call if call.wait is None else found

    return replace(message, calls=tuple(map(news_of, message.calls)))
