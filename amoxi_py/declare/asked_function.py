"""Functions of the app that decide who may do what: they are given what is asked about, and singletons by type."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from amoxi_py.declare.annotations import UnresolvedAnnotation, resolve, strip_annotated
from amoxi_py.declare.callables import AsyncCaller, as_async, is_generator
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.context import RunContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.mistakes import Mistakes

RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedFunction:
    """A function that can be asked.

    Attributes:
        callee: The function, or the method of a singleton.
        given: The names of the parameters that get what is asked about, in order.
        wanted: The types of what is injected, by parameter.
    """

    callee: Callee
    given: tuple[str, ...]
    wanted: Mapping[str, type[Any]] = field(default_factory=dict)
    run: AsyncCaller

    def types(self) -> tuple[type[Any], ...]:
        """Return the types of what is injected, and the class whose method this is."""
        owner = self.callee.owner
        return (*self.wanted.values(), *(() if owner is None else (owner,)))

    async def ask(self, instances: Instances, run_in_thread: RunInThread, *values: Any) -> Any:
        """Return what the function answers; a sync one is asked in a thread. Raises what it raises."""
        arguments = dict(zip(self.given, values, strict=True))
        arguments |= {name: instances.get(kind) for name, kind in self.wanted.items()}
        host = cast(RunContext, _Host(run_in_thread))
        return await self.run(host, self.callee.bind(instances), arguments)


@dataclass(frozen=True, slots=True)
class _Host:
    run_in_thread: RunInThread


def read_asked_function(
    callee: Callee, form: str, given: int, what: str, names: LocalNames, where: str, mistakes: Mistakes
) -> AskedFunction | None:
    """Return how a function is asked, or None when it cannot be (and note why).

    Args:
        callee: The function.
        form: Its signature as messages show it, such as `(request) -> Principal | None`.
        given: How many parameters get what is asked about; they come first.
        what: What the function is for messages, such as "`approver`".
        names: Names that its annotations may use.
        where: What is declared.
        mistakes: Where mistakes are noted.
    """
    try:
        declared = callee.parameters()
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"the signature of {what} cannot be read: {error}")
        return None
    if is_generator(callee.function):
        mistakes.add(where, f"{what} is a generator; return the answer")
        return None
    first, others = declared[:given], declared[given:]
    if len(first) < given or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in first):
        mistakes.add(where, f"{what} must be a function `{form}`; what it takes besides is injected by type")
        return None
    wanted: dict[str, type[Any]] = {}
    for parameter in others:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = _kind(callee, parameter, names)
        if kind is not None and parameter.kind is not parameter.POSITIONAL_ONLY:
            wanted[parameter.name] = kind
        elif parameter.default is parameter.empty:
            mistakes.add(
                where,
                f"{what} takes {parameter.name!r} besides `{form}`: what is injected needs a class as its type, "
                "such as a @singleton's",
            )
    return AskedFunction(
        callee=callee, given=tuple(p.name for p in first), wanted=wanted, run=as_async(callee.function)
    )


def _kind(callee: Callee, parameter: inspect.Parameter, names: LocalNames) -> type[Any] | None:
    if parameter.annotation is parameter.empty or parameter.default is not parameter.empty:
        return None
    try:
        hint = strip_annotated(resolve(parameter.annotation, callee.function, names))
    except UnresolvedAnnotation:
        return None
    return hint if isinstance(hint, type) else None
