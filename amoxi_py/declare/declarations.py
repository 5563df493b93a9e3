"""From declared things to the app's catalog: finds every tool and agent among them, and lists all mistakes at once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.agent_definition import WhatIsWrong, agent_where, define_agent, has_instructions_method
from amoxi_py.declare.asked_agents import ask_tool_name, link_agents, with_asked
from amoxi_py.declare.asked_function import AskedFunction
from amoxi_py.declare.authenticate import AuthenticateMark, read_authenticate
from amoxi_py.declare.callee import Callee, attribute_of, callee_in_class, is_method_of_a_class, owners_of
from amoxi_py.declare.configure import ConfigureFunction, ConfigureMark, read_configure
from amoxi_py.declare.definitions import AgentDefinition, Catalog, Hooks, ToolDefinition
from amoxi_py.declare.handler_definition import HandlerDefinition, define_handler
from amoxi_py.declare.hook_definition import HOOK_MARKS, HookReader
from amoxi_py.declare.ingredient import Ingredient, Wishes
from amoxi_py.declare.injection import read_recipes
from amoxi_py.declare.marks import get_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.on import OnMark
from amoxi_py.declare.provides import ProvidesMark
from amoxi_py.declare.settings import SettingsMark, check_settings, is_settings
from amoxi_py.declare.singleton import SingletonMark
from amoxi_py.declare.tool import ToolMark
from amoxi_py.declare.tool_definition import define_tool

WrongForDoors = Callable[[Catalog], Iterable[tuple[str, str]]]

_KINDS: tuple[type[Any], ...] = (
    ToolMark,
    AgentMark,
    SingletonMark,
    ConfigureMark,
    AuthenticateMark,
    OnMark,
    ProvidesMark,
    SettingsMark,
    *HOOK_MARKS,
)

_NOT_FOR_CLASSES: dict[type[Any], str] = {
    ProvidesMark: "@provides is for functions; mark the class with @singleton",
    ToolMark: "@tool is for functions and methods; mark the methods of the class",
    OnMark: "@on is for functions, and for methods of a class that is marked with @singleton",
    **dict.fromkeys(HOOK_MARKS, "a hook is a function, or a method of a class that is marked with @singleton"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """All that an app declares.

    Attributes:
        catalog: Its agents and tools.
        singletons: The classes to make once, for `open_instances`.
        configure: Functions to call with the web application, in order.
        authenticate: The app's own sign-in, or None.
        handlers: What is called for events.
        providers: Functions that give what is injected, for `open_instances`.
        settings: Models that claim a section of the settings.
        injected: All types that something asks for.
    """

    catalog: Catalog
    singletons: tuple[type[Any], ...] = ()
    configure: tuple[ConfigureFunction, ...] = ()
    authenticate: AskedFunction | None = None
    handlers: tuple[HandlerDefinition, ...] = ()
    providers: tuple[Callable[..., Any], ...] = ()
    settings: tuple[type[Any], ...] = ()
    injected: frozenset[Any] = frozenset()


def declared(thing: Any) -> bool:
    """Whether a decorator of ours marked this."""
    return any(get_mark(thing, kind) is not None for kind in _KINDS)


def build_declarations(
    things: Iterable[Any],
    *,
    provided: Collection[type[Any]] = (),
    mistakes: Mistakes | None = None,
    wrong_model: WhatIsWrong = lambda model: None,
    wrong_for_doors: WrongForDoors = lambda catalog: (),
    nearby: Iterable[Callable[..., Any]] = (),
) -> Declarations:
    """Build the catalog of decorated classes and functions, and of whatever these refer to.

    Args:
        things: Decorated classes and functions; what carries no mark is passed over.
        provided: Types that are injected from elsewhere, such as the engine's own.
        mistakes: What was found wrong before.
        wrong_model: Says why what an agent names as its model cannot be used, or None.
        wrong_for_doors: Says what the app's doors cannot show to their clients: where it is, and what is wrong.
        nearby: Functions that are marked with `@provides`; those count of which something asks for what they give.

    Raises:
        DeclarationError: with every mistake of all of them.
    """
    builder = _Builder(things, mistakes or Mistakes(), wrong_model)
    return builder.build(provided, nearby, wrong_for_doors)


class _Builder:
    def __init__(self, things: Iterable[Any], mistakes: Mistakes, wrong_model: WhatIsWrong) -> None:
        self._mistakes = mistakes
        self._wrong_model = wrong_model
        self._things = with_asked(things)
        self._classes = dict.fromkeys(thing for thing in self._things if isinstance(thing, type))
        self._singletons: dict[type[Any], None] = {}
        self._tools: dict[tuple[int, str], ToolDefinition] = {}
        self._kept: list[Any] = []  # keeps the ids in `_tools` from being used again
        self._agents: dict[type[Any], AgentDefinition] = {}
        self._configure: list[ConfigureFunction] = []
        self._sign_ins: list[tuple[str, AskedFunction | None]] = []
        self._handlers: list[HandlerDefinition] = []
        self._providers: list[Callable[..., Any]] = []
        self._settings: dict[type[Any], None] = {}
        self._wishes = Wishes()
        self._hooks = HookReader(mistakes)

    def build(
        self, provided: Collection[type[Any]], nearby: Iterable[Callable[..., Any]], wrong_for_doors: WrongForDoors
    ) -> Declarations:
        for thing in self._things:
            if isinstance(thing, type) and get_mark(thing, SingletonMark) is not None:
                self._singletons[thing] = None
        for thing in self._things:
            self._add(thing)
        tools = self._by_name(self._tools.values(), "tool", "rename one, or give `name=`")
        agents = self._by_name(link_agents(self._agents, self._mistakes), "agent", "rename a class")
        for agent in agents.values():
            taken = tools.get(ask_tool_name(agent.name))
            if taken is not None:
                self._mistakes.add(
                    taken.where,
                    f"the name {taken.name!r} belongs to the agent {agent.name!r} of this app; rename the tool",
                )
        handlers = self._by_name(self._handlers, "handler", "give one of them another `name=`")
        callable_names = {tool.name for agent in agents.values() for tool in agent.tools} | tools.keys()
        hooks = self._hooks.read(agents.keys(), callable_names, self._names_of_tools)
        self._want(hooks)
        recipes = read_recipes(
            self._singletons,
            provided,
            self._mistakes,
            providers=self._providers,
            nearby=nearby,
            wishes=self._wishes,
        )
        asked = {one.kind for recipe in recipes for one in recipe.ingredients}
        asked |= {wish.ingredient.kind for wish in self._wishes}
        asked |= {kind for one in self._configure for kind in one.wanted.values()}
        self._settings.update(dict.fromkeys(kind for kind in asked if is_settings(kind)))
        check_settings(self._settings, self._mistakes)
        catalog = Catalog(agents=agents, tools=tools, hooks=hooks)
        for where, sentence in wrong_for_doors(catalog):
            self._mistakes.add(where, sentence)
        self._mistakes.raise_if_any()
        return Declarations(
            catalog=catalog,
            singletons=tuple(recipe.kind for recipe in recipes if recipe.function is None),
            configure=tuple(self._configure),
            authenticate=self._sign_ins[0][1] if self._sign_ins else None,
            handlers=tuple(handlers.values()),
            providers=tuple(recipe.function for recipe in recipes if recipe.function is not None),
            settings=tuple(self._settings),
            injected=frozenset(asked),
        )

    def _add(self, thing: Any) -> None:
        where = f"{getattr(thing, '__module__', '?')}: {getattr(thing, '__qualname__', repr(thing))!r}"
        if isinstance(thing, type):
            self._add_class(thing, where)
            return
        if get_mark(thing, SingletonMark) is not None:
            self._mistakes.add(where, "@singleton is for classes; a function that gives a thing cannot be one")
        if get_mark(thing, AgentMark) is not None:
            self._mistakes.add(where, "@agent is for classes")
        if get_mark(thing, ConfigureMark) is not None:
            found = read_configure(thing, where, self._mistakes)
            self._configure += [] if found is None else [found]
        if get_mark(thing, AuthenticateMark) is not None:
            self._add_sign_in(Callee(function=thing))
        if get_mark(thing, OnMark) is not None:
            self._add_handler(thing, where)
        if _is_hook(thing):
            self._add_hook(thing, where)
        if get_mark(thing, ProvidesMark) is not None:
            self._providers.append(thing)
        if get_mark(thing, ToolMark) is not None:
            self._tools_of(thing, where, {})

    def _add_class(self, cls: type[Any], where: str) -> None:
        for kind, sentence in _NOT_FOR_CLASSES.items():
            if get_mark(cls, kind) is not None:
                self._mistakes.add(where, sentence)
        for name, member in vars(cls).items():
            if get_mark(member, ProvidesMark) is not None:
                self._mistakes.add(
                    where, f"the method {name!r} is marked with @provides; make it a function outside of the class"
                )
        if get_mark(cls, SettingsMark) is not None:
            self._settings[cls] = None
        mark = get_mark(cls, AgentMark)
        if mark is not None:
            self._add_agent(cls, mark)
        elif get_mark(cls, SingletonMark) is not None:
            for callee in self._callees_of(cls, where):
                self._define(callee)
            self._add_methods(cls)

    def _add_methods(self, cls: type[Any]) -> None:
        for name in dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base)):
            member = inspect.getattr_static(cls, name, None)
            if get_mark(member, AuthenticateMark) is not None:
                self._add_sign_in(callee_in_class(cls, name))
            if get_mark(member, OnMark) is not None:
                self._define_handler(callee_in_class(cls, name))
            if _is_hook(member):
                self._hooks.add(callee_in_class(cls, name))

    def _add_sign_in(self, callee: Callee) -> None:
        where = f"{callee.module}: {callee.qualified_name!r}"
        mark = get_mark(callee.function, AuthenticateMark)
        assert mark is not None, "it was found by its mark"
        if self._sign_ins:
            other = self._sign_ins[0][0]
            self._mistakes.add(where, f"an app has one @authenticate, and {other} is it; make one function of both")
        self._sign_ins.append((where, read_authenticate(callee, mark, where, self._mistakes)))

    def _add_handler(self, function: Any, where: str) -> None:
        if is_method_of_a_class(function):
            self._mistakes.add(where, "a method can be a handler of events in a class that is marked with @singleton")
        else:
            self._define_handler(Callee(function=function))

    def _define_handler(self, callee: Callee) -> None:
        mark = get_mark(callee.function, OnMark)
        assert mark is not None, "it was found by its mark"
        self._handlers.append(define_handler(callee, mark, self._mistakes))

    def _add_hook(self, function: Any, where: str) -> None:
        if is_method_of_a_class(function):
            self._mistakes.add(where, "a method can be a hook in a class that is marked with @singleton")
        else:
            self._hooks.add(Callee(function=function))

    def _names_of_tools(self, item: Any, where: str) -> list[str]:
        """Return the names of the tools of an app that an item of a hook's `tools` means."""
        return [self._define(callee).name for callee in self._resolve(item, where)]

    def _want(self, hooks: Hooks) -> None:
        """Note what functions of the app are given: approvers and the sign-in only what is there once per process."""
        wanted = [(tool.where, kind) for tool in self._tools.values() for kind in tool.wants]
        wanted += [(where, kind) for where, asked in self._sign_ins if asked is not None for kind in asked.types()]
        wanted += [(hook.where, kind) for hook in hooks.asked() for kind in hook.wants]
        for where, kind in wanted:
            self._wishes.add(where, [Ingredient(name="", kind=kind, optional=False)], once=True)
        for handler in self._handlers:
            self._wishes.add(handler.where, handler.injected)

    def _add_agent(self, cls: type[Any], mark: AgentMark) -> None:
        where = agent_where(cls)
        if has_instructions_method(cls):
            self._singletons[cls] = None
        if self._callees_of(cls, where):
            self._mistakes.add(
                where, "it has @tool methods itself; put them in a class of their own and name it in `tools`"
            )
        self._classes.update(dict.fromkeys(thing for thing in mark.names.function.values() if isinstance(thing, type)))
        found: dict[int, ToolDefinition] = {}
        if isinstance(mark.tools, (str, type)) or not isinstance(mark.tools, Iterable):
            self._mistakes.add(where, f"`tools={mark.tools!r}` must be a list")
        else:
            for item in mark.tools:
                self._tools_of(item, where, found)
        self._agents[cls] = define_agent(
            cls, mark, tuple(found.values()), self._mistakes, self._wishes, self._wrong_model
        )

    def _tools_of(self, item: Any, where: str, found: dict[int, ToolDefinition]) -> None:
        for callee in self._resolve(item, where):
            definition = self._define(callee)
            if id(definition) in found:
                self._mistakes.add(where, f"the tool {definition.name!r} stands twice in `tools`; name it once")
            found[id(definition)] = definition

    def _resolve(self, item: Any, where: str) -> list[Callee]:
        shown = getattr(item, "__qualname__", None) or repr(item)
        if isinstance(item, type):
            if get_mark(item, AgentMark) is not None:
                self._mistakes.add(where, f"{shown!r} in `tools` is an agent, not a tool; name it in `agents`")
                return []
            callees = self._callees_of(item, where)
            if not callees:
                self._mistakes.add(where, f"{shown!r} in `tools` has no methods that are marked with @tool")
            elif any(callee.owner is item for callee in callees):
                self._singletons[item] = None
            return callees
        if get_mark(item, ToolMark) is None:
            if any(get_mark(value, ToolMark) for cls in type(item).__mro__ for value in vars(cls).values()):
                self._mistakes.add(
                    where, f"{shown!r} in `tools` is an instance; name its class {type(item).__qualname__!r}"
                )
            elif callable(item):
                self._mistakes.add(where, f"{shown!r} in `tools` is no tool; mark it with @tool")
            else:
                self._mistakes.add(where, f"{shown!r} in `tools` is no class, function or method")
            return []
        if (
            isinstance(item, (classmethod, staticmethod))
            or not is_method_of_a_class(item)
            or not inspect.isfunction(item)
        ):
            return [Callee(function=item)]
        return self._method(item, where)

    def _method(self, function: Any, where: str) -> list[Callee]:
        owners = owners_of(function, {**self._classes, **self._singletons})
        if len(owners) != 1:
            why = "more than one class has it" if owners else "its class is not found"
            self._mistakes.add(where, f"the method {function.__qualname__!r} in `tools`: {why}; name the class instead")
            return []
        callee = callee_in_class(owners[0], attribute_of(owners[0], function) or function.__name__)
        if callee.owner is not None:
            self._singletons[callee.owner] = None
        return [callee]

    def _callees_of(self, cls: type[Any], where: str) -> list[Callee]:
        callees = []
        names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
        for name in names:
            members = [vars(base)[name] for base in cls.__mro__ if name in vars(base)]
            if get_mark(members[0], ToolMark) is not None:
                callees.append(callee_in_class(cls, name))
            elif members[0] is not None and any(get_mark(member, ToolMark) for member in members[1:]):
                self._mistakes.add(
                    where,
                    f"the method {cls.__qualname__ + '.' + name!r} takes the place of a tool without being one; "
                    "mark it with @tool, or set it to None",
                )
        return callees

    def _define(self, callee: Callee) -> ToolDefinition:
        inner: Any = callee.function.__func__ if isinstance(callee.function, MethodType) else callee.function
        bound_to = callee.function.__self__ if isinstance(callee.function, MethodType) else callee.owner
        key = (id(inner), str(id(bound_to)))
        if key not in self._tools:
            mark = get_mark(callee.function, ToolMark)
            assert mark is not None
            self._kept += [inner, bound_to]
            self._tools[key] = define_tool(callee, mark, self._mistakes, self._wishes)
        return self._tools[key]

    def _by_name(self, definitions: Iterable[Any], kind: str, way_out: str) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for definition in definitions:
            other = named.setdefault(definition.name, definition)
            if other is not definition:
                self._mistakes.add(
                    definition.where, f"the {kind} name {definition.name!r} is taken by {other.where}; {way_out}"
                )
        return named


def _is_hook(thing: Any) -> bool:
    return any(get_mark(thing, kind) is not None for kind in HOOK_MARKS)
