"""Old turns of a long conversation give way to a summary when its model is asked; the log keeps them all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from amoxi_py.domain.encoding import clean_text, encode_json_unicode
from amoxi_py.domain.message import Message
from amoxi_py.errors import ModelFailed
from amoxi_py.ports.chat_model import (
    AssistantMessage,
    ModelMessage,
    ModelRequest,
    Reply,
    ToolResult,
    ToolSpec,
    UserMessage,
)

TOO_LONG = "model_context_too_long"
SUMMARISE = (
    "You keep the record of a conversation between a person and an assistant that uses tools. Write down what is "
    "needed to go on with it: what the person wants, what was found out and done, with every name, number, id, file "
    "and date exactly as it stands there, what was decided or declined, and what is still open. Leave out greetings "
    "and whatever was superseded. Write plain text, in the language of the conversation, and nothing but the record."
)
SUMMARY_HEAD = "[The record of the conversation up to here; the messages themselves are not shown any more.]"
_ASKED_HEAD = "[What the person asked last, and is being worked on.]"
_LONGEST_PART = 4000  # of one result or message in what is to be summarised; the rest says little more
SMALLEST_PIECE = 4000
USUAL_PIECE = 200_000
_PICTURE = 6000  # what a picture or a document takes, as letters of text

_MOST_SCHEMAS = 4096
_schemas: dict[int, tuple[Mapping[str, Any], int]] = {}  # by the identity of a schema, which is kept with its letters

AskPlainly = Callable[[ModelRequest], Awaitable[Reply]]


class Gauge:
    """Estimates tokens of text, and learns the ratio from what the provider counted."""

    def __init__(self) -> None:
        self._letters = 3.5

    def tokens(self, letters: int) -> int:
        """Return how many tokens so many letters are likely to be."""
        return int(letters / self._letters)

    def letters(self, tokens: float) -> int:
        """Return how many letters are likely to be so many tokens."""
        return int(tokens * self._letters)

    def learn(self, letters: int, tokens: int) -> None:
        """Take note of a request of so many letters that had so many tokens; small ones say little."""
        if letters > 2000 and tokens > 100:
            self._letters = min(max(letters / tokens, 1.0), 6.0)


def request_letters(request: ModelRequest, messages: int) -> int:
    """Return the letters of a request whose messages have so many."""
    return len(request.instructions) + sum(map(_tool_letters, request.tools)) + messages


def own_letters(request: ModelRequest) -> int:
    """Return the letters of a request."""
    return request_letters(request, sum(map(letters_of, request.messages)))


def _tool_letters(tool: ToolSpec) -> int:
    """Return the letters of a tool as a provider gets it; its schema is written once in the life of a process."""
    known = _schemas.get(id(tool.parameters))
    if known is None or known[0] is not tool.parameters:
        if len(_schemas) >= _MOST_SCHEMAS:
            _schemas.clear()
        known = _schemas[id(tool.parameters)] = (tool.parameters, len(encode_json_unicode(tool.parameters)))
    return len(tool.name) + len(tool.description) + known[1]


def letters_of(message: ModelMessage) -> int:
    """Return the letters that a message has, or what its files are worth."""
    if isinstance(message, UserMessage):
        return len(message.content) + _PICTURE * len(message.files)
    if isinstance(message, ToolResult):
        return len(message.content)
    calls = sum(len(call.name) + len(call.arguments) for call in message.calls)
    return len(message.text) + calls + len(message.kept or "")


def give_way(letters: Sequence[int], room: int) -> int:
    """Return how many of the oldest messages give way, so that the others have room; the newest one always stays."""
    left = room
    for kept, one in enumerate(reversed(letters)):
        left -= one
        if left < 0 and kept > 0:
            return len(letters) - kept
    return 0


class Told(Struct, frozen=True, kw_only=True):
    """What gives way: as the model was told of it, and the summary of what gave way before it."""

    messages: Sequence[ModelMessage]
    summary: str | None


async def summarise(told: Told, instructions: str | None, ask: AskPlainly, largest: int) -> str:
    """Return the record of what gives way, made piece by piece when it is long.

    Args:
        told: What gives way.
        instructions: In place of the usual.
        ask: Asks the model.
        largest: Letters of one piece at most.

    Raises:
        ModelFailed: the model cannot make one.
    """
    record, place = told.summary, 0
    parts = list(map(_part, told.messages))
    while place < len(parts):
        end = _piece(list(map(len, parts)), place, _room(largest, record))
        text = "\n\n".join(parts[place:end])
        before = "" if record is None else f"The record so far:\n{record}\n\nWhat came after it:\n"
        request = ModelRequest(
            instructions=instructions or SUMMARISE,
            messages=(UserMessage(text=f"{before}{text}\n\nWrite the record of all of it now."),),
        )
        reply = await ask(request)
        if not reply.text.strip():
            raise ModelFailed("the model gave no summary", code="model_empty_reply")
        record, place = clean_text(reply.text.strip()), end
    assert record is not None
    return record


def fitting(told: Sequence[ModelMessage], places: Sequence[int], largest: int, record: str | None) -> int:
    """Return how many of some messages one request for a summary takes, at least one.

    Args:
        told: What a model is told.
        places: Where in it each of the messages begins, and where the last one ends.
        largest: As for `summarise`.
        record: What gave way before them.
    """
    sizes = [sum(len(_part(message)) for message in told[start:end]) for start, end in pairwise(places)]
    return _piece(sizes, 0, _room(largest, record))


def summary_message(summary: str, asked: Message | None) -> UserMessage:
    """Return what stands in the place of what gave way; `asked` is the run's own message, when it is among that."""
    text = f"{SUMMARY_HEAD}\n{summary}"
    return UserMessage(text=text if asked is None else f"{text}\n\n{_ASKED_HEAD}\n{asked.text}")


def _room(largest: int, record: str | None) -> int:
    size = max(min(largest, USUAL_PIECE), SMALLEST_PIECE)
    return max(size - len(record or ""), SMALLEST_PIECE // 2)


def _piece(sizes: Sequence[int], start: int, room: int) -> int:
    end, left = start + 1, room - sizes[start]
    while end < len(sizes) and left > sizes[end]:
        left -= sizes[end]
        end += 1
    return end


def _part(message: ModelMessage) -> str:
    if isinstance(message, UserMessage):
        return f"Person: {_short(message.content)}"
    if isinstance(message, ToolResult):
        failed = ", which failed" if message.is_error else ""
        return f"Result of {message.tool}{failed}: {_short(message.content)}"
    return f"Assistant: {_short(_said(message))}"


def _said(message: AssistantMessage) -> str:
    calls = [f"[calls {call.name} with {call.arguments}]" for call in message.calls]
    return "\n".join(filter(None, (message.text, *calls)))


def _short(text: str) -> str:
    if len(text) <= _LONGEST_PART:
        return text
    half = _LONGEST_PART // 2
    return f"{text[:half]}\n[... {len(text) - _LONGEST_PART} letters are left out ...]\n{text[-half:]}"


def compacted_data(messages: int) -> str:
    """Return what `history.compacted` tells."""
    return encode_json_unicode({"messages": messages})
