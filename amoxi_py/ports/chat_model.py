"""The port to a language model: one request in, pieces of text and one finished reply out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from amoxi_py.domain.usage import NO_USAGE, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model sees it; `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMessage:
    """What a person said."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """A call as it stands in a reply; `arguments` is the text that the model wrote for them."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantMessage:
    """What the model said earlier, with the calls it asked for (their arguments are texts of JSON objects)."""

    text: str
    calls: tuple[CallRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """The one result of one call; `content` is text, or the text of a JSON value."""

    call_id: str
    tool: str
    content: str
    is_error: bool = False


ModelMessage = UserMessage | AssistantMessage | ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """All that a model is asked with.

    Every assistant message with calls is followed directly by exactly one result per call, in order.
    """

    instructions: str
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The finished reply: the whole text, and the calls as the model wrote them.

    `cut` is True when the provider ended it at its length limit.
    """

    text: str
    calls: tuple[CallRequest, ...] = ()
    usage: Usage = NO_USAGE
    cut: bool = False


class ChatModel(Protocol):
    """A language model. It raises `ModelFailed` for every failure of the provider, and nothing else."""

    @property
    def name(self) -> str:
        """The name for logs and usage, such as `openai:gpt-5`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | Reply]:
        """Ask the model; yield pieces of text as they come and, last, the one finished `Reply`.

        A stream that ends without a `Reply` is a failure. Closing the iterator ends the request.
        """
        ...
