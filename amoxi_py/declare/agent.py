"""`@agent`: declares a class as an agent; the class itself stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, overload

from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark
from amoxi_py.domain.principal import Principal

C = TypeVar("C", bound=type[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMark:
    """The options of an agent as they were written; they are checked when the app is built."""

    tools: Sequence[Any] = ()
    model: Any = None
    model_options: Mapping[str, Any] | None = None
    description: str | None = None
    max_turns: int = 20
    on_busy: Literal["replace", "queue", "reject"] | None = None
    expose: bool = True
    allow: Callable[[Principal], bool] | None = None
    readers: str | None = None
    unknown: tuple[str, ...] = ()
    names: LocalNames


@overload
def agent(cls: C, /) -> C: ...
@overload
def agent(
    *,
    tools: Sequence[Any] = (),
    model: Any = None,
    model_options: Mapping[str, Any] | None = None,
    description: str | None = None,
    max_turns: int = 20,
    on_busy: Literal["replace", "queue", "reject"] | None = None,
    expose: bool = True,
    allow: Callable[[Principal], bool] | None = None,
    readers: str | None = None,
) -> Callable[[C], C]: ...
def agent(cls: Any = None, /, **options: Any) -> Any:
    """Make a class an agent, under its name in kebab-case.

    It is told its docstring, or what its method `instructions(self, ctx)` returns, asked once per run.

    Args:
        cls: The class, when there are no options.
        options: What the second form takes:

            - `tools`: classes with tools, functions, single methods; 128 tools at most.
            - `model`: `"openai:<model>"`, `"offline"` or a ChatModel; default the setting. What is made of a name is
              closed when the process stops; a ChatModel is yours to close, in a singleton's `__aexit__` for example.
            - `model_options`: such as temperature, passed on.
            - `description`: for lists and for other agents; default the docstring's first paragraph.
            - `max_turns`: the most model replies in one run, default 20.
            - `on_busy`: what a second message does: `replace`, `queue` or `reject`; default the setting.
            - `expose`: False makes an inner agent that no door shows.
            - `allow`: `(principal) -> bool`; for others the agent does not exist.
            - `readers`: `"role:<name>"`; who has that role, and the tenant of a run's owner, may read the run, its
              conversation and their events by id. Default nobody. Lists show everybody's own alone.

    Raises:
        TypeError: a class and options at once. Mistakes in options are told when the app starts, all together.
    """
    if cls is not None and options:
        raise TypeError("@agent takes either a class or options")
    known, unknown = known_options(AgentMark, options)
    mark = AgentMark(names=local_names(sys._getframe(1)), unknown=unknown, **known)

    def decorate(cls: C) -> C:
        set_mark(cls, mark, "agent")
        return cls

    return decorate if cls is None else decorate(cls)
