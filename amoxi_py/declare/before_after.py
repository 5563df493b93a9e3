"""`@before_model`, `@after_model`, `@before_tool`: functions of the app that see what a model is asked and answers.

The functions themselves stay as they were.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark
from amoxi_py.ports.chat_model import ModelRequest, Reply


@dataclass(frozen=True, slots=True)
class Refuse:
    """What `@before_tool` answers when a call must not be made; the text is the call's result, for the model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call that a model asks for, before anything of it has happened.

    Attributes:
        call_id: The framework's own id of the call.
        tool: The tool's name.
        arguments: They fit the tool; plain JSON values.
    """

    call_id: str
    tool: str
    arguments: Mapping[str, Any]


B = TypeVar("B", bound=Callable[..., ModelRequest | Awaitable[ModelRequest | None] | None])
A = TypeVar("A", bound=Callable[..., Reply | Awaitable[Reply | None] | None])
T = TypeVar("T", bound=Callable[..., Mapping[str, Any] | Refuse | Awaitable[Mapping[str, Any] | Refuse | None] | None])


@dataclass(frozen=True, slots=True, kw_only=True)
class HookMark:
    """What a hook was declared with, as it was written; it is checked when the app is built."""

    agents: Sequence[Any] = ()
    unknown: tuple[str, ...] = ()
    names: LocalNames


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeModelMark(HookMark):
    """Says that a function sees requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterModelMark(HookMark):
    """Says that a function sees replies."""

    streams: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeToolMark(HookMark):
    """Says that a function sees calls."""

    tools: Sequence[Any] = ()


@overload
def before_model(function: B, /) -> B: ...
@overload
def before_model(*, agents: Sequence[type[Any] | str] = ()) -> Callable[[B], B]: ...
def before_model(function: Any = None, /, **options: Any) -> Any:
    """Have a function asked before each request to a model: `(ctx, request) -> ModelRequest | None`.

    It may give another request: with other instructions, messages, tools or options. Nothing of that is stored, so the
    next request is made of what is stored again. None changes nothing. Several are asked in the order of their
    declaration. Parameters besides are given singletons by their types. It may be sync (in a thread) or async, or a
    method of a `@singleton`.

    Args:
        function: The function, when there are no options.
        options: What the second form takes:

            - `agents`: for which agents: classes, or names on the wire. Default all.
    """
    return _decorate(BeforeModelMark, "before_model", function, options)


@overload
def after_model(function: A, /) -> A: ...
@overload
def after_model(*, agents: Sequence[type[Any] | str] = (), streams: bool = False) -> Callable[[A], A]: ...
def after_model(function: Any = None, /, **options: Any) -> Any:
    """Have a function asked about each reply of a model, before it is stored: `(ctx, reply) -> Reply | None`.

    It may give another reply, which is stored in its place. A process that dies meanwhile has stored nothing: the model
    is asked again, and so is the function. Nobody sees the text before the function has. For the rest it is as with
    `@before_model`.

    Args:
        function: The function, when there are no options.
        options: What the second form takes:

            - `agents`: for which agents: classes, or names on the wire. Default all.
            - `streams`: True shows the text while it comes, before the function has seen it.
    """
    return _decorate(AfterModelMark, "after_model", function, options)


@overload
def before_tool(function: T, /) -> T: ...
@overload
def before_tool(
    *, agents: Sequence[type[Any] | str] = (), tools: Sequence[Callable[..., Any] | type[Any] | str] = ()
) -> Callable[[T], T]: ...
def before_tool(function: Any = None, /, **options: Any) -> Any:
    """Have a function asked before a call that a model wants: `(ctx, call) -> None | arguments | Refuse(text)`.

    `call` is a `PlannedCall`. None lets it pass; other arguments take the place of the model's, wherever the call is
    stored or shown, also to the person who approves it; `Refuse` ends it with that text. For the rest it is as with
    `@before_model`.

    A call that a program makes without an agent, by MCP, is seen too, with `ctx.agent` `tool:<name>`, but only where
    `agents` is left out: what must hold for each call of a tool names `tools` alone.

    Args:
        function: The function, when there are no options.
        options: What the second form takes:

            - `agents`: for calls of which agents: classes, or names on the wire; direct calls are of none. Default all,
              and direct calls.
            - `tools`: for calls of which tools: classes with tools, functions, single methods, or names. Default all.
    """
    return _decorate(BeforeToolMark, "before_tool", function, options)


def _decorate(kind: type[HookMark], name: str, function: Any, options: dict[str, Any]) -> Any:
    if function is not None and options:
        raise TypeError(f"@{name} takes either a function or options")
    known, unknown = known_options(kind, options)
    mark = kind(names=local_names(sys._getframe(2)), unknown=unknown, **known)

    def decorate(target: Any) -> Any:
        set_mark(target, mark, name)
        return target

    return decorate if function is None else decorate(function)
