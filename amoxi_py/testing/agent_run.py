"""What a run in a test came to: its events, messages and calls, in the words and shapes that readers of HTTP get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from amoxi_py.domain.encoding import decode_json
from amoxi_py.domain.event import Event, message_json
from amoxi_py.domain.message import Message
from amoxi_py.domain.run import Run
from amoxi_py.ports.chat_model import ModelRequest
from amoxi_py.testing.scene import Scratch


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One event of the run's log, such as `tool.called`."""

    id: int
    type: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call of a tool.

    Attributes:
        call_id: The framework's own id of the call.
        tool: The tool's name.
        arguments: As the model wrote them.
        status: How far it got, such as `done`, `failed`, `declined`, `stopped`, `unknown`.
        result: What the model was told.
        edited_arguments: What a person approved in their place, or None.
    """

    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    status: str
    result: Any
    edited_arguments: Mapping[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        """Whether the model was told of anything but success."""
        return self.status != "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRecord:
    """One message of the conversation, with the calls it asked for."""

    role: str
    text: str
    calls: tuple[CallRecord, ...]
    status: str


@dataclass(frozen=True, kw_only=True)
class AgentRun:
    """A run that has ended, with everything that was recorded of it.

    Attributes:
        run: Its status, output, error, attempt and usage.
        events: The run's log, in order. A text that was read late has no deltas.
        messages: The whole conversation, the earlier runs of it too.
        requests: What the model was asked for this run, in order.
        model_failures: What was wrong with failed requests of the model.
        files: The bytes of the files that its tools saved and its answers show, by name.
        children: The runs of agents that it asked, in the order of the calls. Of one of them `messages` are its own,
            and `requests` are all that its agent's model was asked in this test.
    """

    run: Run
    events: tuple[EventRecord, ...]
    messages: tuple[MessageRecord, ...]
    requests: tuple[ModelRequest, ...]
    model_failures: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    children: tuple[AgentRun, ...] = ()
    first_message: int = field(default=0, repr=False)
    scratch: Scratch | None = field(default=None, repr=False, compare=False)

    @property
    def output(self) -> str | None:
        """What the agent said last; None when the run did not complete."""
        return self.run.output

    @property
    def result(self) -> Any:
        """The structured result of an agent with `result=`, as plain JSON values; None when there is none."""
        return None if self.run.result is None else decode_json(self.run.result)

    @property
    def status(self) -> str:
        """How the run ended: `completed`, `failed` or `cancelled`."""
        return self.run.status.value

    @property
    def calls(self) -> tuple[CallRecord, ...]:
        """All calls of this run, in the order in which the model asked for them."""
        return tuple(call for message in self.messages[self.first_message :] for call in message.calls)

    @property
    def progress(self) -> tuple[str, ...]:
        """The progress lines of its tools."""
        return tuple(event.data["text"] for event in self.events if event.type == "tool.progress")

    def child(self, agent: str) -> AgentRun:
        """Return the one run of an agent that it asked.

        Raises:
            AssertionError: it was not asked, or more than once.
        """
        found = [child for child in self.children if child.run.agent == agent]
        if len(found) != 1:
            asked = ", ".join(child.run.agent for child in self.children) or "nobody"
            raise AssertionError(f"{agent!r} was asked {len(found)} times, not once; asked: {asked}")
        return found[0]

    def call(self, tool: str) -> CallRecord:
        """Return the one call of a tool.

        Raises:
            AssertionError: it was not called, or more than once.
        """
        found = [call for call in self.calls if call.tool == tool]
        if len(found) != 1:
            called = ", ".join(call.tool for call in self.calls) or "nothing"
            raise AssertionError(f"{tool!r} was called {len(found)} times, not once; called: {called}")
        return found[0]


def event_record(event: Event) -> EventRecord:
    """Return an event as readers get it."""
    return EventRecord(id=event.seq, type=event.type.label, data=event.data)


def message_records(messages: Sequence[Message]) -> tuple[MessageRecord, ...]:
    """Return messages as readers get them."""
    return tuple(_message_record(message_json(message)) for message in messages)


def _message_record(told: Mapping[str, Any]) -> MessageRecord:
    names = [field.name for field in fields(CallRecord)]
    calls = tuple(CallRecord(**{name: call[name] for name in names if name in call}) for call in told["calls"])
    return MessageRecord(role=told["role"], text=told["text"], calls=calls, status=told["status"])
