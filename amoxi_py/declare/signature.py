"""From a function's signature to the parameters that a model fills, and the ones that get the context."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from amoxi_py.declare.annotations import UnresolvedAnnotation, context_types, injected_kind, resolve
from amoxi_py.declare.callables import speaks_async
from amoxi_py.declare.context import SyncToolContext, ToolContext
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.marks import LocalNames
from amoxi_py.declare.mistakes import Mistakes

_WIRE_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolParameter:
    """A parameter that a model fills: its type, and its default, which is `inspect.Parameter.empty` for none."""

    name: str
    hint: Any
    default: Any = _EMPTY
    field: FieldInfo | None = None

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is _EMPTY and self.factory is None

    @property
    def factory(self) -> Callable[[], Any] | None:
        """What makes the default, when pydantic's `Field` says how."""
        field = self.field
        return None if field is None else field.default_factory  # type: ignore[return-value]  # never given any data


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What a function takes and returns.

    Attributes:
        parameters: Those that a model fills.
        contexts: The names of those that get the context.
        injected: Those that are marked with `Inject`.
        returns: The type of what is returned.
    """

    parameters: tuple[ToolParameter, ...] = ()
    contexts: tuple[str, ...] = ()
    injected: tuple[Ingredient, ...] = ()
    returns: Any = _EMPTY

    def names(self) -> frozenset[str]:
        """The names that a model fills."""
        return frozenset(parameter.name for parameter in self.parameters)

    def given(self) -> frozenset[str]:
        """The names that no model knows of."""
        return frozenset((*self.contexts, *(ingredient.name for ingredient in self.injected)))


def read_signature(
    function: Callable[..., Any], names: LocalNames, where: str, mistakes: Mistakes, *, method: bool
) -> ToolSignature:
    """Read what a function takes and returns; `method` leaves its first parameter out, the instance."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"its signature cannot be read ({error}); wrap it in a function with typed parameters")
        return ToolSignature()
    declared = list(signature.parameters.values())
    if method:
        if not declared or declared[0].kind is inspect.Parameter.KEYWORD_ONLY:
            mistakes.add(where, "the method takes no `self`; add it, or make it a @staticmethod")
            return ToolSignature()
        declared = declared[1:]
    bound = function.keywords if isinstance(function, functools.partial) else {}
    parameters: list[ToolParameter] = []
    contexts: list[str] = []
    injected: list[Ingredient] = []
    for parameter in declared:
        if parameter.name in bound:
            continue
        at = f"{where}: parameter {parameter.name!r}"
        hint = _hint(function, parameter, names, at, mistakes)
        if hint is _EMPTY:
            continue
        kinds = context_types(hint)
        if kinds:
            _check_context(kinds, function, at, mistakes)
            contexts.append(parameter.name)
        elif (kind := injected_kind(hint)) is not None:
            injected.append(Ingredient(name=parameter.name, kind=kind, optional=parameter.default is not _EMPTY))
        elif not _WIRE_NAME.fullmatch(parameter.name):
            mistakes.add(at, "providers accept names of ASCII letters, digits and `_` only, up to 64; rename it")
        else:
            parameters.append(_parameter(parameter, hint))
    returns = _returns(function, signature, names, where, mistakes)
    return ToolSignature(
        parameters=tuple(parameters), contexts=tuple(contexts), injected=tuple(injected), returns=returns
    )


def _hint(
    function: Callable[..., Any], parameter: inspect.Parameter, names: LocalNames, at: str, mistakes: Mistakes
) -> Any:
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        shown = str(parameter).split(":", maxsplit=1)[0]
        mistakes.add(at, f"a model cannot fill `{shown}`; declare each argument by name, or one list or dict")
        return _EMPTY
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        mistakes.add(at, "it is positional only, and a model gives arguments by name; remove the `/`")
        return _EMPTY
    if parameter.annotation is _EMPTY:
        mistakes.add(
            at,
            "it has no type, so a model cannot know what to send; "
            f"write one, such as `{parameter.name}: str`, or `{parameter.name}: ToolContext` for the context",
        )
        return _EMPTY
    try:
        return resolve(parameter.annotation, function, names)
    except UnresolvedAnnotation as error:
        mistakes.add(at, str(error))
        return _EMPTY


def _check_context(kinds: frozenset[Any], function: Callable[..., Any], at: str, mistakes: Mistakes) -> None:
    if speaks_async(function):
        if all(issubclass(kind, SyncToolContext) for kind in kinds):
            mistakes.add(at, "an async tool takes `ToolContext`, not `SyncToolContext`")
    elif all(issubclass(kind, ToolContext) for kind in kinds):
        mistakes.add(at, "a sync tool takes `SyncToolContext`, not `ToolContext`; or make the tool `async def`")


def _parameter(parameter: inspect.Parameter, hint: Any) -> ToolParameter:
    default = parameter.default
    if isinstance(default, FieldInfo):
        value = _EMPTY if default.is_required() or default.default_factory is not None else default.default
        return ToolParameter(name=parameter.name, hint=hint, default=value, field=default)
    extras = getattr(hint, "__metadata__", ())
    field = next((extra for extra in reversed(extras) if isinstance(extra, FieldInfo)), None)
    if default is _EMPTY and field is not None and not field.is_required() and field.default_factory is None:
        default = field.default
    return ToolParameter(name=parameter.name, hint=hint, default=default, field=field)


def _returns(
    function: Callable[..., Any], signature: inspect.Signature, names: LocalNames, where: str, mistakes: Mistakes
) -> Any:
    if signature.return_annotation is _EMPTY:
        return _EMPTY
    try:
        return resolve(signature.return_annotation, function, names)
    except UnresolvedAnnotation as error:
        mistakes.add(where, f"what it returns {error}")
        return _EMPTY
