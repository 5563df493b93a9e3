"""From annotations as they are written, postponed ones included, to types; and which of them mean a context."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from amoxi_py.declare.callables import innermost
from amoxi_py.declare.context import CallContext, RunContext, SyncToolContext, ToolContext
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.provides import Inject
from amoxi_py.domain.run_event import RunEvent

_CONTEXTS = (RunContext, CallContext, ToolContext, SyncToolContext)
_ALWAYS_KNOWN = {
    kind.__name__: kind for kind in (*_CONTEXTS, RunEvent)
}  # linters move these imports under TYPE_CHECKING


class UnresolvedAnnotation(Exception):
    """An annotation cannot be evaluated; the text says why, and the way out."""


def resolve(annotation: Any, function: Callable[..., Any], names: LocalNames) -> Any:
    """Return the type that an annotation of a function means.

    Raises:
        UnresolvedAnnotation: it uses a name that does not exist at run time, or is no type.
    """
    if annotation is None:
        return type(None)
    module_names = _globals_of(function)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        hints = typing.get_type_hints(
            holder, {**_ALWAYS_KNOWN, **names.classes, **module_names}, dict(names.function), include_extras=True
        )
    except NameError as error:
        raise UnresolvedAnnotation(
            f"has the type {_shown(annotation)}, in which {error.name!r} is unknown at run time; "
            "import it outside of `if TYPE_CHECKING:`, or define it above"
        ) from None
    except (TypeError, SyntaxError, AttributeError, ValueError, KeyError) as error:
        raise UnresolvedAnnotation(f"has the type {_shown(annotation)}, which cannot be read: {error}") from None
    return hints["it"]


def strip_annotated(hint: Any) -> Any:
    """Return the type without its `Annotated` extras."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint


def members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union, without None; a type that is no union is its only member."""
    hint = strip_annotated(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(strip_annotated(member) for member in get_args(hint) if member is not type(None))
    return (hint,)


def context_types(hint: Any) -> frozenset[type[RunContext]]:
    """Return the context types that a parameter accepts; empty when it is an ordinary parameter."""
    found = members(hint)
    if all(isinstance(member, type) and issubclass(member, RunContext) for member in found):
        return frozenset(found)
    return frozenset()


def only_member(hint: Any) -> Any:
    """Return the type itself, without `Annotated` and without an alternative of None."""
    alternatives = members(hint)
    return alternatives[0] if len(alternatives) == 1 else strip_annotated(hint)


def injected_kind(hint: Any) -> Any:
    """Return the type that a parameter is given because of `Inject`, or None when it has no such mark."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    extras = [extra for one in alternatives for extra in getattr(one, "__metadata__", ())]
    marked = any(extra is Inject or isinstance(extra, Inject) for extra in extras)
    return only_member(hint) if marked and not context_types(hint) else None


def injected_parameters(
    function: Callable[..., Any], parameters: Iterable[inspect.Parameter], names: LocalNames
) -> tuple[Ingredient, ...]:
    """Return the parameters of a function that are marked with `Inject`; what cannot be read is none."""
    found = []
    for parameter in parameters:
        if parameter.annotation is parameter.empty or parameter.kind is parameter.POSITIONAL_ONLY:
            continue
        try:
            kind = injected_kind(resolve(parameter.annotation, function, names))
        except UnresolvedAnnotation:
            continue
        if kind is not None:
            optional = parameter.default is not parameter.empty
            found.append(Ingredient(name=parameter.name, kind=kind, optional=optional))
    return tuple(found)


def _globals_of(function: Callable[..., Any]) -> Mapping[str, Any]:
    inner = innermost(function)
    inner = getattr(inner, "__func__", inner)
    inner = inspect.unwrap(inner)
    if not hasattr(inner, "__globals__"):
        inner = inspect.unwrap(type(inner).__call__)
    found: Mapping[str, Any] = getattr(inner, "__globals__", {})
    return found


def _shown(annotation: Any) -> str:
    return repr(annotation) if isinstance(annotation, str) else repr(str(annotation))
