"""Runs that calls ask for: how a call becomes a child run, whose its events are, and what its end tells its parent.

A child run is executed like any other, by any worker. What is different about it is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from amoxi_py.declare.asked_agents import ask_tool_name
from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.domain.encoding import decode_json, encode_json_unicode
from amoxi_py.domain.event import EventType, NewEvent
from amoxi_py.domain.file import File
from amoxi_py.domain.ids import call_id, child_message_id, child_run_id
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Ancestor, RunFailure, RunRows
from amoxi_py.domain.tool_call import CallStatus, Effect, ToolCall
from amoxi_py.domain.wait import Wait
from amoxi_py.engine.calls import read_arguments
from amoxi_py.engine.transcript import file_note
from amoxi_py.errors import ArgumentsInvalid
from amoxi_py.ports.changes import NewChild

_FOR_PEOPLE = frozenset({EventType.APPROVAL_REQUESTED, EventType.QUESTION_ASKED, EventType.QUESTION_CLOSED})
_OF_CALLS = frozenset({EventType.TOOL_CALLED, EventType.TOOL_COMPLETED})


def begun(agent: AgentDefinition, call: ToolCall, now: float) -> ToolCall:
    """Return a call as it is once its start is recorded; one that asks an agent waits from then on."""
    begun = replace(call, status=CallStatus.STARTED, tries=call.tries + 1)
    if _asked_by(agent, call) is None:
        return begun
    return replace(begun, wait=Wait(k=1, kind="child", name=child_run_id(call.id), created_at=now))


def children_of(agent: AgentDefinition, starting: Iterable[ToolCall]) -> tuple[NewChild, ...]:
    """Return the runs that are to be stored with the start of these calls."""
    asking = [(call, _asked_by(agent, call)) for call in starting]
    return tuple(
        NewChild(
            turn=call.turn,
            n=call.n,
            run_id=child_run_id(call.id),
            message_id=child_message_id(call.id),
            agent=asked,
            text=decode_json(call.effective_arguments)["message"],
        )
        for call, asked in asking
        if asked is not None
    )


def waits_for_child(call: ToolCall) -> bool:
    """Whether a call is a child run that has not ended."""
    return call.status is CallStatus.STARTED and call.wait is not None and call.wait.kind == "child"


def asks(agent: AgentDefinition, tool: str) -> bool:
    """Whether a tool of an agent asks another one."""
    found = agent.tool(tool)
    return found is not None and found.asks is not None


def without_held_back(agent: AgentDefinition, message: Message, parallel: int) -> Message:
    """Return a reply without the calls that ask an agent and can only begin when one of the others has ended."""
    if sum(map(waits_for_child, message.calls)) < parallel:
        return message
    held_back = {one.n for one in message.calls if one.status is CallStatus.OPEN and asks(agent, one.tool)}
    return replace(message, calls=tuple(one for one in message.calls if one.n not in held_back))


class Telling(Struct, frozen=True, kw_only=True):
    """Says whose the events of a child run are.

    What a person has to do with is the root run's: a call that is to be decided about, a question, and what became of
    them. Progress is told as the progress of the root's own call. All else is the child's own.
    """

    root: Ancestor
    tool: str

    def __call__(self, events: Sequence[NewEvent]) -> tuple[NewEvent, ...]:
        """Return the events with that said."""
        return tuple(map(self._told, events))

    def _told(self, event: NewEvent) -> NewEvent:
        if event.type is EventType.TOOL_PROGRESS:
            call = stored_call(self.root, self.tool)
            return replace(event, turn=call.turn, n=call.n, subject=call, told_as="root_call")
        if event.type in _FOR_PEOPLE or (event.type in _OF_CALLS and _concerns_people(event.subject)):
            return replace(event, told_as="root")
        return event


def telling_of(rows: RunRows) -> Telling | None:
    """Return how the events of a run are told, or None for a root run, whose events are its own."""
    if not rows.ancestors:
        return None
    root, *between = rows.ancestors
    return Telling(root=root, tool=ask_tool_name(between[0].agent if between else rows.agent))


def answer_of(
    rows: RunRows, *, text: str, result: str | None, failure: RunFailure | None, files: Sequence[File]
) -> tuple[ToolCall, CallStatus, Any]:
    """Return the call that asked for a child run, how it is settled at the run's end, and with what.

    Args:
        rows: The child's.
        text: What it said last.
        result: Its structured result, JSON text, or None.
        failure: Why it failed, or None when it completed.
        files: Those that its tools saved for a person; the model that asked learns their ids.
    """
    call = stored_call(rows.ancestors[-1], ask_tool_name(rows.agent))
    if failure is not None:
        told = (
            f"The agent {rows.agent!r} did not finish: {failure.message} ({failure.code}). "
            "What it had done until then stays done."
        )
        return call, CallStatus.FAILED, told
    value = text if result is None else decode_json(result)
    if files:
        said = value if isinstance(value, str) else encode_json_unicode(value)
        value = "\n".join((said, *(file_note(file.id, file) for file in files)))
    return call, CallStatus.DONE, value


def stored_call(ancestor: Ancestor, tool: str) -> ToolCall:
    """Return the call of an ancestor that started the next run below it, as far as it is known there."""
    return ToolCall(
        id=call_id(ancestor.run_id, ancestor.turn, ancestor.n),
        turn=ancestor.turn,
        n=ancestor.n,
        tool=tool,
        arguments="{}",
        effect=Effect.IDEMPOTENT,
        status=CallStatus.STARTED,
    )


def _asked_by(agent: AgentDefinition, call: ToolCall) -> str | None:
    """Return the agent that a call asks, or None.

    One that was stored when a plain tool had this name may have other arguments: it asks nobody, and is settled like
    every call whose tool does not take its arguments any more.
    """
    tool = agent.tool(call.tool)
    if tool is None or tool.asks is None:
        return None
    try:
        read_arguments(tool, decode_json(call.effective_arguments))
    except ArgumentsInvalid:
        return None
    return tool.asks


def _concerns_people(subject: object) -> bool:
    return isinstance(subject, ToolCall) and subject.concerns_people
