"""Functions that belong to a tool (`needs_approval`, `reconcile`): they get the tool's arguments that they name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amoxi_py.declare.annotations import UnresolvedAnnotation, context_types, injected_parameters, resolve
from amoxi_py.declare.callables import as_async, is_generator
from amoxi_py.declare.callee import Callee, attribute_of, callee_in_class, owners_of
from amoxi_py.declare.context import CallContext
from amoxi_py.declare.definitions import Instances
from amoxi_py.declare.ingredient import Ingredient, Wishes
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
    wishes: Wishes,
) -> Hook | None:
    """Return how the function or method of an option is called, or None when it cannot be (and note why)."""
    callee = hook_callee(option, hook, owner, where, mistakes)
    if callee is None:
        return None
    try:
        declared = callee.parameters()
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"the signature of its `{option}` cannot be read: {error}")
        return None
    if is_generator(callee.function):
        mistakes.add(where, f"its `{option}` is a generator; return the answer")
    injected = injected_parameters(callee.function, declared, names)
    wishes.add(f"{where}: its `{option}`", injected)
    declared = [p for p in declared if p.name not in {one.name for one in injected}]
    context = _context(callee.function, declared, tool, names)
    wanted = [p for p in declared if p.name != context and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_KEYWORD for p in declared)
    known = tool.names()
    _check_parameters(option, declared, context, known, where, mistakes)
    passed = known if takes_all else known & {parameter.name for parameter in wanted}
    defaults = {p.name for p in wanted if p.default is not p.empty}
    return _bind(callee, context, passed, _fill(tool, passed - defaults), injected)


def _check_parameters(
    option: str,
    declared: list[inspect.Parameter],
    context: str | None,
    known: frozenset[str],
    where: str,
    mistakes: Mistakes,
) -> None:
    for parameter in declared:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            mistakes.add(
                where, f"its `{option}` takes {parameter.name!r} positional only, but gets it by name; remove the `/`"
            )
        elif parameter.name not in known and parameter.name != context and parameter.default is parameter.empty:
            fields = ", ".join(sorted(known)) or "none"
            mistakes.add(
                where,
                f"its `{option}` takes {parameter.name!r}, which is no parameter of the tool; those are: {fields}",
            )


def hook_callee(option: str, hook: object, owner: type[Any] | None, where: str, mistakes: Mistakes) -> Callee | None:
    """Return the function or the method that an option means, or None when it means none (and note why)."""
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
    attribute = _attribute_in(owner, hook)
    if owner is not None and attribute is not None:
        return callee_in_class(owner, attribute)
    holder = next(iter(owners_of(hook, ())), None) if inspect.isfunction(hook) else None
    if holder is not None and callee_in_class(holder, attribute_of(holder, hook) or "").owner is not None:
        mistakes.add(
            where,
            f"`{option}`: {hook.__qualname__!r} is a method of another class; use one of the tool's own, or a function",
        )
        return None
    return Callee(function=hook)


def _attribute_in(owner: type[Any] | None, hook: Any) -> str | None:
    """Return the name of a method that is given as it stands in the class body, which an heir may have replaced."""
    if owner is None:
        return None
    found = attribute_of(owner, hook)
    if found is None and any(attribute_of(base, hook) is not None for base in owner.__mro__):
        return str(hook.__name__)
    return found


def _context(
    function: Callable[..., Any], declared: list[inspect.Parameter], tool: ToolSignature, names: LocalNames
) -> str | None:
    """Return the parameter that gets the context: by its type, else the first one that can be nothing else."""
    typed = {p.name: hint for p in declared if (hint := _hint(function, p, names)) is not None}
    for name, hint in typed.items():
        if context_types(hint):
            return name
    first = next((p for p in declared if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY)), None)
    if first is None or first.name in tool.names() or typed.get(first.name, Any) is not Any:
        return None
    return first.name


def _hint(function: Callable[..., Any], parameter: inspect.Parameter, names: LocalNames) -> Any:
    if parameter.annotation is parameter.empty:
        return None
    try:
        return resolve(parameter.annotation, function, names)
    except UnresolvedAnnotation:
        return None


def _fill(tool: ToolSignature, names: frozenset[str]) -> Callable[[], dict[str, Any]]:
    optional = [parameter for parameter in tool.parameters if parameter.name in names and not parameter.required]

    def fill() -> dict[str, Any]:
        return {p.name: p.factory() if p.factory is not None else p.default for p in optional}

    return fill


def _bind(
    callee: Callee,
    context: str | None,
    passed: frozenset[str],
    fill: Callable[[], Mapping[str, Any]],
    injected: tuple[Ingredient, ...],
) -> Hook:
    run = as_async(callee.function)

    async def call(instances: Instances, ctx: CallContext, arguments: dict[str, Any]) -> Any:
        given = {**fill(), **{name: value for name, value in arguments.items() if name in passed}}
        if context is not None:
            given[context] = ctx
        bound = callee.bind(instances)
        if not injected:
            return await run(ctx, bound, given)
        return await instances.inject(injected, ctx, lambda things: run(ctx, bound, {**given, **things}))

    return call
