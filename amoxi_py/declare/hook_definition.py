"""From functions that are marked as hooks to their definitions; everything that cannot work is noted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.agent_definition import agent_name
from amoxi_py.declare.asked_function import read_asked_function
from amoxi_py.declare.before_after import AfterModelMark, BeforeModelMark, BeforeToolMark, HookMark
from amoxi_py.declare.callables import is_async, is_generator
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.definitions import HookDefinition, Hooks, Instances, RedactDefinition
from amoxi_py.declare.marks import get_mark, option_names
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.redact import RedactMark

HOOK_MARKS: tuple[type[Any], ...] = (BeforeModelMark, AfterModelMark, BeforeToolMark, RedactMark)

_FORMS: dict[type[HookMark], tuple[str, str]] = {
    BeforeModelMark: ("before_model", "(ctx, request) -> ModelRequest | None"),
    AfterModelMark: ("after_model", "(ctx, reply) -> Reply | None"),
    BeforeToolMark: ("before_tool", "(ctx, call) -> None | arguments | Refuse(text)"),
}
ToolNames = Callable[[Any, str], Iterable[str]]


class HookReader:
    """Collects the hooks of an app in the order of their declaration, and makes them definitions when all is known."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._found: list[Callee] = []

    def add(self, callee: Callee) -> None:
        """Take a function, or a method of a singleton, with marks of hooks."""
        self._found.append(callee)

    def read(self, agents: Collection[str], tools: Collection[str], names_of: ToolNames) -> Hooks:
        """Return the hooks.

        Args:
            agents: The names of all agents.
            tools: The names of all tools that a model may call.
            names_of: Gives the names of the tools that an item of `tools=[...]` means.
        """
        agents, tools = frozenset(agents), frozenset(tools)

        def of(kind: type[HookMark]) -> tuple[HookDefinition, ...]:
            return tuple(self._of(kind, agents, tools, names_of))

        return Hooks(
            before_model=of(BeforeModelMark),
            after_model=of(AfterModelMark),
            before_tool=of(BeforeToolMark),
            redact=tuple(self._redactions()),
        )

    def _of(
        self, kind: type[HookMark], agents: frozenset[str], tools: frozenset[str], names_of: ToolNames
    ) -> Iterator[HookDefinition]:
        decorator, form = _FORMS[kind]
        for callee in self._found:
            mark = get_mark(callee.function, kind)
            if mark is None:
                continue
            where = f"{callee.module}: @{decorator} {callee.qualified_name!r}"
            self._mistakes.add_options(where, decorator, mark.unknown, option_names(kind))
            asked = read_asked_function(callee, form, 2, "it", mark.names, where, self._mistakes)
            if asked is None:
                continue
            streams = mark.streams if isinstance(mark, AfterModelMark) else False
            if not isinstance(streams, bool):
                self._mistakes.add(where, f"`streams={streams!r}` must be True or False")
            limited = mark.tools if isinstance(mark, BeforeToolMark) else ()
            yield HookDefinition(
                where=where,
                ask=asked.ask,
                wants=asked.types(),
                agents=self._agents(mark.agents, agents, where),
                tools=self._tools(limited, tools, names_of, where),
                streams=bool(streams),
            )

    def _agents(self, items: Any, known: frozenset[str], where: str) -> frozenset[str] | None:
        found = set()
        for item in self._listed("agents", items, where):
            is_agent = isinstance(item, type) and get_mark(item, AgentMark) is not None
            name = agent_name(item) if is_agent else item
            if isinstance(name, str) and name in known:
                found.add(name)
            else:
                shown = getattr(item, "__qualname__", item)
                self._mistakes.add(
                    where, f"`agents` names {shown!r}, which is no agent here; those are: {_list(known)}"
                )
        return frozenset(found) or None

    def _tools(self, items: Any, known: frozenset[str], names_of: ToolNames, where: str) -> frozenset[str] | None:
        found: set[str] = set()
        for item in self._listed("tools", items, where):
            if not isinstance(item, str):
                found.update(names_of(item, where))
            elif item in known:
                found.add(item)
            else:
                self._mistakes.add(where, f"`tools` names {item!r}, which is no tool here; those are: {_list(known)}")
        return frozenset(found) or None

    def _listed(self, option: str, items: Any, where: str) -> list[Any]:
        if isinstance(items, (str, type)) or not isinstance(items, Iterable):
            self._mistakes.add(where, f"`{option}={items!r}` must be a list")
            return []
        return list(items)

    def _redactions(self) -> Iterator[RedactDefinition]:
        for callee in self._found:
            mark = get_mark(callee.function, RedactMark)
            if mark is None:
                continue
            where = f"{callee.module}: @redact {callee.qualified_name!r}"
            self._mistakes.add_options(where, "redact", mark.unknown, option_names(RedactMark))
            if mark.longest is not None and (type(mark.longest) is not int or mark.longest < 1):
                self._mistakes.add(where, f"`longest={mark.longest!r}` must be a whole number of characters from 1 up")
            asked = read_asked_function(callee, "(text) -> str", 1, "it", mark.names, where, self._mistakes)
            if asked is None:
                continue
            if is_async(callee.function) or is_generator(callee.function):
                self._mistakes.add(where, "it is async, and texts are redacted where nothing can wait; make it a `def`")
            if asked.wanted:
                self._mistakes.add(
                    where, "it takes more than the text; make it a method of a @singleton that is given the rest"
                )
            yield RedactDefinition(where=where, bind=_binder(callee, asked.given[0]), longest=mark.longest)


def _binder(callee: Callee, parameter: str) -> Callable[[Instances], Callable[[str], Any]]:
    def bind(instances: Instances) -> Callable[[str], Any]:
        function = callee.bind(instances)
        return lambda text: function(**{parameter: text})

    return bind


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
