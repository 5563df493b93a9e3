"""What readers get of durable storage: calls, conversations, and where a log is read; lists come in pages."""

from __future__ import annotations

from typing import Generic, TypeVar

from msgspec import Struct

from amoxi_py.domain.event import Event, EventType
from amoxi_py.domain.message import Message
from amoxi_py.domain.principal import Principal
from amoxi_py.domain.tool_call import ToolCall
from amoxi_py.domain.wait import Wait

T = TypeVar("T")


class CallView(Struct, frozen=True, kw_only=True):
    """A call with what a decision about it needs to know.

    `waits` are all that it has waited for, in order, where the call was asked for by its id.
    """

    call: ToolCall
    run_id: str
    agent: str
    conversation_id: str
    requested_by: Principal
    waits: tuple[Wait, ...] = ()


class Conversation(Struct, frozen=True, kw_only=True):
    """What readers see of a conversation; times are seconds since 1970."""

    id: str
    agent: str
    title: str
    created_at: float
    updated_at: float


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list, and the cursor for the next ones, or None at its end."""

    items: tuple[T, ...]
    next_cursor: str | None = None


class ConversationPage(Struct, frozen=True, kw_only=True):
    """A conversation and some of its messages, oldest first.

    `last_event_id` joins the page to a stream: the events after it bring what is not in the messages, once.
    """

    conversation: Conversation
    messages: Page[Message]
    last_event_id: int


class LogPosition(Struct, frozen=True, kw_only=True):
    """Where a reader of a log starts.

    Keys are the store's own. `run` is None for a whole conversation. `last_seq` is the last number of the
    conversation's log; `first_seq` that of the first event of the run (of the newest run, for a conversation).
    `ended_seq` is the number of the run's terminal event, or None while it goes on.
    """

    conversation: int
    run: int | None
    first_seq: int
    last_seq: int
    ended_seq: int | None = None


class LogPage(Struct, frozen=True, kw_only=True):
    """The next events of a log; `more` is False when nothing came after them at that moment."""

    events: tuple[Event, ...]
    more: bool


def event_size(event: Event) -> int:
    """Return how many characters of text an event keeps in memory; what every event has beside is not counted."""
    size = len(event.stored) if isinstance(event.stored, str) else 0
    if event.type is EventType.TOOL_PROGRESS:  # it tells only the id of its call, and one call has many
        return size
    if isinstance(event.subject, ToolCall):
        size += _call_size(event.subject)
    elif event.subject is not None:
        size += len(event.subject.text) + sum(map(_call_size, event.subject.calls))
    return size


def _call_size(call: ToolCall) -> int:
    edited = None if call.approval is None else call.approval.arguments
    wait = call.wait
    asked = 0 if wait is None else len(wait.name) + len(wait.schema or "") + len(wait.value or "")
    return len(call.arguments) + len(call.result or "") + len(edited or "") + asked
