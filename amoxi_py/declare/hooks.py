"""Functions that belong to a tool (`needs_approval`, `reconcile`): they get the tool's arguments that they name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amoxi_py.declare.annotations import UnresolvedAnnotation, context_types, resolve
from amoxi_py.declare.callables import as_async
from amoxi_py.declare.callee import Callee, attribute_of, callee_in_class
from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.signature import ToolSignature

Hook = Callable[[Instances, CallContext, dict[str, Any]], Awaitable[Any]]


def read_hook(
    option: str,
    hook: object,
    owner: type[Any] | None,
    tool: ToolSignature,
    names: LocalNames,
    where: str,
    mistakes: Mistakes,
) -> Hook | None:
    """Return how the function or method of an option is called, or None when it cannot be (and note why)."""
    callee = _callee(option, hook, owner, where, mistakes)
    if callee is None:
        return None
    try:
        declared = list(inspect.signature(callee.function).parameters.values())[1 if callee.owner else 0 :]
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"the signature of its `{option}` cannot be read: {error}")
        return None
    context = _context(callee.function, declared, tool, names)
    wanted = [p for p in declared if p.name != context and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in declared)
    known = tool.names()
    for parameter in wanted:
        if parameter.name not in known and parameter.default is parameter.empty:
            fields = ", ".join(sorted(known)) or "none"
            mistakes.add(
                where,
                f"its `{option}` takes {parameter.name!r}, which is no parameter of the tool; those are: {fields}",
            )
    passed = known if takes_all else known & {parameter.name for parameter in wanted}
    defaults = {p.name for p in wanted if p.default is not p.empty}
    return _bind(callee, context, passed, _fill(tool, passed - defaults))


def _callee(option: str, hook: object, owner: type[Any] | None, where: str, mistakes: Mistakes) -> Callee | None:
    if isinstance(hook, str):
        if owner is None:
            mistakes.add(
                where, f"`{option}={hook!r}` names a method, but the tool is no method; give the function itself"
            )
        elif not callable(getattr(owner, hook, None)):
            mistakes.add(where, f"`{option}={hook!r}`: {owner.__qualname__!r} has no such method")
        else:
            return callee_in_class(owner, hook)
        return None
    if not callable(hook):
        mistakes.add(where, f"`{option}={hook!r}` must be a function, or the name of a method")
        return None
    attribute = attribute_of(owner, hook) if owner is not None else None
    if owner is not None and attribute is not None:
        return callee_in_class(owner, attribute)
    return Callee(function=hook)


def _context(
    function: Callable[..., Any], declared: list[inspect.Parameter], tool: ToolSignature, names: LocalNames
) -> str | None:
    for parameter in declared:
        if parameter.annotation is not parameter.empty:
            try:
                if context_types(resolve(parameter.annotation, function, names)):
                    return parameter.name
            except UnresolvedAnnotation:
                continue
    first = next((p for p in declared if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY)), None)
    return first.name if first is not None and first.name not in tool.names() else None


def _fill(tool: ToolSignature, names: frozenset[str]) -> Callable[[], dict[str, Any]]:
    optional = [parameter for parameter in tool.parameters if parameter.name in names and not parameter.required]

    def fill() -> dict[str, Any]:
        return {p.name: p.factory() if p.factory is not None else p.default for p in optional}

    return fill


def _bind(callee: Callee, context: str | None, passed: frozenset[str], fill: Callable[[], Mapping[str, Any]]) -> Hook:
    run = as_async(callee.function)

    async def call(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> Any:
        given = {**fill(), **{name: value for name, value in arguments.items() if name in passed}}
        if context is not None:
            given[context] = ctx
        return await run(ctx, callee.bind(instances), given)

    return call
