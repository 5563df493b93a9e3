"""Executes one claimed run of a tool that was called directly: its one call, with which it ends."""

from __future__ import annotations

from typing import Any

from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.direct import direct_tool, told_result
from amoxi_py.domain.event import NewEvent
from amoxi_py.domain.ids import new_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.next_action import Limits
from amoxi_py.domain.run import RunRows, RunStatus
from amoxi_py.domain.tool_call import CallStatus, ToolCall
from amoxi_py.engine.direct import asked_call
from amoxi_py.engine.endings import end_event
from amoxi_py.engine.execution import RunExecution
from amoxi_py.engine.lease import LeaseKeeper
from amoxi_py.engine.parts import Parts
from amoxi_py.engine.play import Play
from amoxi_py.engine.results import call_result
from amoxi_py.engine.turns import reply_events


class DirectExecution(RunExecution):
    """A run of one tool. Its result and its end are one commit, after which `settled` is the call."""

    settled: ToolCall | None = None

    def _limits(self, agent: AgentDefinition) -> Limits:
        return Limits(max_attempts=self._parts.settings.max_attempts, direct=True)

    async def _ask(self, play: Play, turn: int) -> bool:
        """Record the call, which nobody has to be asked for; return whether that was the end, because it never runs."""
        message = await play.reader.read(asked_call(play.agent.name, self._messages[0]), turn, new_id("msg"))
        (call,) = message.calls
        over = call.status.settled
        events = tuple(reply_events(message, ended=over))
        if over:
            await self._end_with(call, message=message, events=events)
        else:
            await self._journal.write(self._journal.change(message=message, events=events))
        self._fresh = frozenset(((turn, 0),) if call.status is CallStatus.STARTED else ())
        self._messages.append(message)
        self._crashes = 0
        return over

    async def _record_last(self, call: ToolCall, events: tuple[NewEvent, ...]) -> None:
        await self._end_with(call, results=(call_result(call),), events=(*events, end_event(None)))

    async def _end_with(self, call: ToolCall, **parts: Any) -> None:
        self._ending = True
        stored_at = await self._journal.write(self._journal.change(end="completed", **parts))
        self.settled = call
        self._note_end(RunStatus.COMPLETED, stored_at, **_told(call))

    def _output(self) -> dict[str, str | None]:
        return _told(self._messages[-1].calls[0])


def execution_of(
    parts: Parts,
    keeper: LeaseKeeper,
    rows: RunRows,
    history: tuple[Message, ...] | None,
    *,
    new: bool,
    values: dict[str, Any] | None,
) -> RunExecution:
    """Return the execution of a run; for `new` and `values` see `Worker.begin`."""
    kind = RunExecution if direct_tool(rows.agent) is None else DirectExecution
    return kind(parts, keeper, rows, history, new=new, values=values)


def _told(call: ToolCall) -> dict[str, str | None]:
    assert call.result is not None
    output, result = told_result(call.result)
    return {"output": output, "result": result}
