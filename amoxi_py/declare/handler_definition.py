"""From a function that is marked with `@on` to the definition of a handler; everything that cannot work is noted."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from amoxi_py.declare.annotations import UnresolvedAnnotation, only_member, resolve
from amoxi_py.declare.callables import as_async, is_generator
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.on import OnMark
from amoxi_py.declare.step import is_seconds
from amoxi_py.domain.event import EventType
from amoxi_py.domain.run_event import RunEvent

_BY_LABEL = {kind.label: kind for kind in EventType if kind is not EventType.MESSAGE_DELTA}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,127}")

CallHandler = Callable[[Instances, Any, RunEvent], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerDefinition:
    """A declared handler of events.

    Attributes:
        name: Under which the store remembers what it has handled.
        events: The types that it is called for.
        timeout: Seconds for one try, or None.
        where: Module and qualified name, for messages to the developer.
        injected: Its parameters beside the event.
        call: `(instances, host, event) -> awaitable`; a sync handler runs in the pool that the host gives.
    """

    name: str
    events: frozenset[EventType]
    timeout: float | None
    where: str
    injected: tuple[Ingredient, ...]
    call: CallHandler


def define_handler(callee: Callee, mark: OnMark, mistakes: Mistakes) -> HandlerDefinition:
    """Return the definition of a handler, and note every mistake in it."""
    where = f"{callee.module}: handler {callee.qualified_name!r}"
    name = callee.name if mark.name is None else mark.name
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        mistakes.add(where, f"`name={name!r}` must be a letter, then letters, digits and any of `_.:-`, up to 128")
    if mark.timeout is not None and not is_seconds(mark.timeout):
        mistakes.add(where, f"`timeout={mark.timeout!r}` must be seconds, more than 0, or None")
    if is_generator(callee.function):
        mistakes.add(where, "it is a generator, so calling it would do nothing; take the `yield` out")
    event, injected = _parameters(callee, mark, where, mistakes)
    return HandlerDefinition(
        name=str(name),
        events=_events(mark, where, mistakes),
        timeout=mark.timeout,
        where=where,
        injected=injected,
        call=_bind(callee, event, injected),
    )


def _events(mark: OnMark, where: str, mistakes: Mistakes) -> frozenset[EventType]:
    if not mark.events:
        mistakes.add(where, '@on needs the types of events that it is for: @on("run.failed")')
    for label in mark.events:
        if label == EventType.MESSAGE_DELTA.label:
            mistakes.add(where, "'message.delta' does not stay in the log; take 'message.completed'")
        elif not isinstance(label, str) or label not in _BY_LABEL:
            mistakes.add(where, f"there is no event {label!r}; the events are: {', '.join(sorted(_BY_LABEL))}")
    return frozenset(_BY_LABEL[label] for label in mark.events if isinstance(label, str) and label in _BY_LABEL)


def _parameters(
    callee: Callee, mark: OnMark, where: str, mistakes: Mistakes
) -> tuple[str | None, tuple[Ingredient, ...]]:
    """Return the name of the parameter that takes the event, and the others."""
    try:
        declared = callee.parameters()
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"its signature cannot be read: {error}")
        return None, ()
    read = [_read_parameter(parameter, callee, mark, where, mistakes) for parameter in declared]
    known = [one for one in read if one is not None]
    events = [one.name for one in known if one.kind is RunEvent]
    if not events:
        mistakes.add(where, "it takes no event; give it a parameter `event: RunEvent`")
    for name in events[1:]:
        mistakes.add(
            f"{where}: parameter {name!r}", f"the event goes to {events[0]!r} already; take one of the two out"
        )
    return next(iter(events), None), tuple(one for one in known if one.kind is not RunEvent)


def _read_parameter(
    parameter: inspect.Parameter, callee: Callee, mark: OnMark, where: str, mistakes: Mistakes
) -> Ingredient | None:
    optional = parameter.default is not parameter.empty
    at = f"{where}: parameter {parameter.name!r}"
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return None
    if parameter.kind is parameter.POSITIONAL_ONLY:
        problem = "it is positional only, and things are given by name; remove the `/`"
    elif parameter.annotation is not parameter.empty:
        try:
            kind = only_member(resolve(parameter.annotation, callee.function, mark.names))
            return Ingredient(name=parameter.name, kind=kind, optional=optional)
        except UnresolvedAnnotation as error:
            problem = str(error)
    elif parameter.name == "event":
        return Ingredient(name=parameter.name, kind=RunEvent, optional=optional)
    else:
        problem = "it has no type, and things are injected by type; write one, or give it a default"
    if not optional:
        mistakes.add(at, problem)
    return None


def _bind(callee: Callee, event: str | None, injected: tuple[Ingredient, ...]) -> CallHandler:
    call = as_async(callee.function)

    async def handle(instances: Instances, host: RunContext, told: RunEvent) -> Any:
        given: dict[str, Any] = {} if event is None else {event: told}
        bound = callee.bind(instances)
        return await instances.inject(injected, host, lambda things: call(host, bound, {**given, **things}))

    return handle
