"""`@agent`: declares a class as an agent; the class itself stays as it was."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, overload

from amoxi_py.declare.compaction import Compaction
from amoxi_py.declare.marks import LocalNames, known_options, local_names, set_mark
from amoxi_py.domain.budget import Budget
from amoxi_py.domain.principal import Principal

if TYPE_CHECKING:
    from pydantic import BaseModel

    from amoxi_py.ports.chat_model import ChatModel

C = TypeVar("C", bound=type[Any])


class ForeignModel(Protocol):
    """A model object of pydantic-ai, which need not be installed."""

    @property
    def model_name(self) -> str:
        """Its name at the provider."""
        ...

    @property
    def system(self) -> str:
        """The provider."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMark:
    """The options of an agent as they were written; they are checked when the app is built."""

    tools: Sequence[Any] = ()
    agents: Sequence[type[Any]] = ()
    model: Any = None
    model_options: Mapping[str, Any] | None = None
    description: str | None = None
    max_turns: int = 20
    on_busy: Literal["replace", "queue", "reject"] | None = None
    expose: bool = True
    allow: Callable[[Principal], bool] | None = None
    readers: str | None = None
    compaction: Compaction | bool | None = None
    result: Any = None
    budget: Budget | None = None
    memory: bool = False
    unknown: tuple[str, ...] = ()
    names: LocalNames


@overload
def agent(cls: C, /) -> C: ...
@overload
def agent(
    *,
    tools: Sequence[Any] = (),
    agents: Sequence[type[Any]] = (),
    model: str | ChatModel | ForeignModel | Sequence[str | ChatModel | ForeignModel] | Callable[..., Any] | None = None,
    model_options: Mapping[str, Any] | None = None,
    description: str | None = None,
    max_turns: int = 20,
    on_busy: Literal["replace", "queue", "reject"] | None = None,
    expose: bool = True,
    allow: Callable[[Principal], bool] | None = None,
    readers: str | None = None,
    compaction: Compaction | bool | None = None,
    result: type[BaseModel] | None = None,
    budget: Budget | None = None,
    memory: bool = False,
) -> Callable[[C], C]: ...
def agent(cls: Any = None, /, **options: Any) -> Any:
    """Make a class an agent, under its name in kebab-case.

    It is told its docstring, or what its method `instructions(self, ctx)` returns, asked once per run.

    Args:
        cls: The class, when there are no options.
        options: What the second form takes:

            - `tools`: classes with tools, functions, single methods; 128 tools at most.
            - `agents`: classes of agents that it may ask, each by a tool `ask_<agent>`. A call is a run of its own,
              as durable as any, and this one waits for its answer. They must not go round in a circle.
            - `model`: `"anthropic:<model>"`, `"openai:<model>"`, any other `"<provider>:<model>"` through pydantic-ai,
              `"offline"`, or a model object; a list of these, where each is asked when the one before it cannot answer;
              or a function `(ctx) -> one of these`, asked when a process takes up a run. Default the setting. What is
              made of a name is closed when the process stops; an object is yours to close, in a singleton's
              `__aexit__` for example.
            - `model_options`: such as temperature, max_tokens and effort, passed on to the model.
            - `description`: for lists and for other agents; default the docstring's first paragraph.
            - `max_turns`: the most model replies in one run, default 20.
            - `on_busy`: what a second message does: `replace`, `queue` or `reject`; default the setting.
            - `expose`: False makes an inner agent that no door shows.
            - `allow`: `(principal) -> bool`; for others the agent does not exist.
            - `readers`: `"role:<name>"`; who has that role, and the tenant of a run's owner, may read the run, its
              conversation and their events by id. Default nobody. Lists show everybody's own alone.
            - `result`: a pydantic model: the form of the run's `result`. Its `output` stays a text.
            - `budget`: a `Budget`: what a run may use at most, with all runs below it; then it fails.
            - `compaction`: a `Compaction` that says when old turns of a long conversation give way to a summary, or
              False for never. Default near the end of the model's window, where that is known.
            - `memory`: True lets it remember what it learns of who asks, over all of their conversations: it has the
              tools `remember`, `recall` and `forget`, and the memories that fit a run's message best stand in its
              instructions.

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
