"""The port to a language model: one request in, pieces of text and one finished reply out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from amoxi_py.domain.usage import NO_USAGE, Usage
from amoxi_py.errors import ModelFailed


class ToolSpec(Struct, frozen=True, kw_only=True):
    """A tool as a model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class SentFile(Struct, frozen=True, kw_only=True):
    """A picture or a document that came with a person's message, for a model that can look at it."""

    id: str
    name: str
    media_type: str
    data: bytes


class UserMessage(Struct, frozen=True, kw_only=True):
    """What a person said. `notes` are lines that the framework adds, one for each file that came with it.

    `files` are those of the files whose bytes are shown to the model; a model that cannot look at one has its note.
    """

    text: str
    notes: tuple[str, ...] = ()
    files: tuple[SentFile, ...] = ()

    @property
    def content(self) -> str:
        """The text with the notes, as a provider gets it."""
        return "\n".join(filter(None, (self.text, *self.notes))) if self.notes else self.text


class CallRequest(Struct, frozen=True, kw_only=True):
    """A call as it stands in a reply; `arguments` is the text that the model wrote for them."""

    id: str
    name: str
    arguments: str


class AssistantMessage(Struct, frozen=True, kw_only=True):
    """What the model said earlier, with the calls it asked for (their arguments are texts of JSON objects).

    `kept` is what the model's `Reply` gave to be kept.
    """

    text: str
    calls: tuple[CallRequest, ...] = ()
    kept: str | None = None


class ToolResult(Struct, frozen=True, kw_only=True):
    """The one result of one call; `content` is text, or the text of a JSON value."""

    call_id: str
    tool: str
    content: str
    is_error: bool = False


ModelMessage = UserMessage | AssistantMessage | ToolResult


class ModelRequest(Struct, frozen=True, kw_only=True):
    """All that a model is asked with.

    Every assistant message with calls is followed directly by exactly one result per call, in order. `failures` counts
    the tries of this turn that have failed, as it is stored: a chain of models begins with another one then.
    """

    instructions: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    failures: int = 0


class TextDelta(Struct, frozen=True, kw_only=True):
    """A piece of the reply's text."""

    text: str


class Reply(Struct, frozen=True, kw_only=True):
    """The finished reply: the whole text, and the calls as the model wrote them.

    `cut` is True when the provider ended it at its length limit. `kept` is what the model wants to have back with this
    message in later requests, such as signed reasoning: JSON text that only the model itself reads, and only when it
    finds there that it is its own. `model` is the name of the one that gave it, where another one was asked: a chain,
    or what a function of the app chose.
    """

    text: str
    calls: tuple[CallRequest, ...] = ()
    usage: Usage = NO_USAGE
    cut: bool = False
    kept: str | None = None
    model: str | None = None


class Asked(Struct, frozen=True, kw_only=True):
    """Tells which model is asked from now on, where several may be: by a chain, or by what an app has chosen.

    `failed` is why the one before it gave no reply; nothing of that one's words was told.
    """

    model: str
    failed: ModelFailed | None = None


class ChatModel(Protocol):
    """A language model. It raises `ModelFailed` for every failure of the provider, and nothing else."""

    @property
    def name(self) -> str:
        """The name for logs and usage, such as `openai:gpt-5`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply | Asked]:
        """Ask the model; yield pieces of text as they come and, last, the one finished `Reply`.

        A model that asks others tells which by `Asked`. A stream that ends without a `Reply` is a failure. Closing the
        iterator ends the request.
        """
        ...
