"""The app of a test: its declarations, settings that owe nothing to the machine, and its parts with stand-ins."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from amoxi_py.app.declarations import PROVIDED
from amoxi_py.app.runtime import Runtime, StandIns
from amoxi_py.config.load import load_settings
from amoxi_py.config.settings import Settings
from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.definitions import AgentDefinition
from amoxi_py.declare.marks import get_mark
from amoxi_py.declare.provides import ProvidesMark
from amoxi_py.declare.scan import Declarations, build_declarations, scan_package
from amoxi_py.declare.singleton import SingletonMark
from amoxi_py.models.lookup import resolve_model
from amoxi_py.ports.chat_model import ChatModel

PROFILE = "test"
_OWN_STORE = {"ai.store.type": "file", "server.stop-grace-s": 1.0}

AnyModel = ChatModel | str
"""A model object, or the name of one that asks nobody outside: `offline`."""


_IMPATIENT = {"ai.models.max-wait-s": 5}  # no test waits minutes for a model whose script says that it is away


def settings_of_test(folder: Path, store: Path, given: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of the app in `folder`, without a look at the environment of this process.

    Args:
        folder: Where `application.json` (and `application-test.json`) may be.
        store: The folder of the store.
        given: Settings by key, which win over the files.

    Raises:
        ConfigError: a setting is unknown or bad.
    """
    return load_settings(
        folder,
        profile=PROFILE,
        environ={},
        given={**_OWN_STORE, "ai.store.path": str(store), **_IMPATIENT, **(given or {})},
    )


def declarations_of(
    agent: type[Any] | str | None,
    package: str | None,
    replaced: Collection[type[Any]] = (),
    hooks: Collection[Any] = (),
) -> Declarations:
    """Return what an app's package declares, or without one what an agent's class does with all that it refers to.

    A function that is marked with `@provides` is found around the agent, and in imported modules of its package;
    `hooks` are not looked for, but given, where there is no package.

    Raises:
        DeclarationError: the declarations cannot work.
        TypeError: there is neither a class nor a package, or what is replaced is nothing that anything asks for.
    """
    if package is not None and hooks:
        raise TypeError("`hooks` is for an agent without its package; those of a package are found")
    if package is not None:
        found = scan_package(package, provided=(*PROVIDED, *replaced))
    elif isinstance(agent, type):
        if get_mark(agent, AgentMark) is None:
            raise TypeError(f"{agent.__qualname__!r} is no agent; mark the class with @agent")
        found = build_declarations([agent, *hooks], provided=(*PROVIDED, *replaced), nearby=_providers_beside(agent))
    else:
        raise TypeError(
            f"the agent {agent!r} is a name; give its class, or say which app it is of with `package='app'`"
        )
    _check_replaced(found, replaced)
    return found


def agent_of(declarations: Declarations, agent: type[Any] | str) -> AgentDefinition:
    """Return an agent by its class or its name on the wire; raise `LookupError` when it is not there."""
    agents = declarations.catalog.agents
    if isinstance(agent, str):
        found = agents.get(agent)
    else:
        where = f"{agent.__module__}.{agent.__qualname__}"
        found = next((one for one in agents.values() if one.where == where), None)
    if found is None:
        raise LookupError(f"there is no agent {agent!r}; the app has: {', '.join(sorted(agents)) or 'none'}")
    return found


def models_of_test(
    model: AnyModel | Mapping[str, AnyModel], agents: Iterable[str], asked: Iterable[str] = ()
) -> dict[str, ChatModel]:
    """Return the models of agents, by name: the one that a test names, or those that it names by agent.

    Args:
        model: What the test gives; an agent that it names none for has the offline model.
        agents: The names of all agents.
        asked: The names of those that the test must not forget.

    Raises:
        ConfigError: one is none.
        LookupError: there is no such agent, or one that is asked has no model.
    """
    names = list(agents)
    if not isinstance(model, Mapping):
        return dict.fromkeys(names, resolve_model(model, {}))
    unknown, forgotten = sorted(model.keys() - set(names)), sorted(set(asked) - model.keys())
    if unknown:
        raise LookupError(f"`model` names {unknown[0]!r}, which is no agent; the app has: {', '.join(sorted(names))}")
    if forgotten:
        raise LookupError(f"`model` has none for {forgotten[0]!r}; give it one: model={{{forgotten[0]!r}: ...}}")
    return {name: resolve_model(model.get(name, "offline"), {}) for name in names}


def agents_asked(declarations: Declarations, agent: AgentDefinition) -> list[AgentDefinition]:
    """Return an agent, all that it may ask, and all that those may ask, each once."""
    found: dict[str, AgentDefinition] = {}
    new = [agent]
    while new:
        found.update((one.name, one) for one in new)
        asked = [tool.asks for one in new for tool in one.tools if tool.asks is not None]
        new = [declarations.catalog.agents[name] for name in dict.fromkeys(asked) if name not in found]
    return list(found.values())


@asynccontextmanager
async def open_parts(settings: Settings, declarations: Declarations, stand_ins: StandIns) -> AsyncIterator[Runtime]:
    """Start the parts of an app without a web server, and stop them at the end; they execute what they are given.

    Others may use the same store, with other models and instances: their runs are not executed here.
    """
    runtime = Runtime(settings, declarations, executes="own_runs", stand_ins=stand_ins)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


def _providers_beside(agent: type[Any]) -> list[Any]:
    top = agent.__module__.split(".")[0]
    mark = get_mark(agent, AgentMark)
    places: list[Mapping[str, Any]] = [] if mark is None else [mark.names.function]
    modules = [module for name, module in list(sys.modules.items()) if name.split(".")[0] == top]
    places += [dict(getattr(module, "__dict__", {})) for module in modules]
    things = [thing for place in places for thing in place.values()]
    return [thing for thing in things if not isinstance(thing, type) and get_mark(thing, ProvidesMark) is not None]


def _check_replaced(declarations: Declarations, replaced: Collection[type[Any]]) -> None:
    asked = declarations.injected
    for kind in replaced:
        if kind not in asked and get_mark(kind, SingletonMark) is None:
            known = ", ".join(sorted(getattr(one, "__qualname__", str(one)) for one in asked)) or "none"
            raise TypeError(f"`replace` gives {kind.__qualname__!r}, which nothing asks for; asked for are: {known}")
