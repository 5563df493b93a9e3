"""How one thing is made: what a class's constructor or a provider's function asks for, and the type that it gives."""

from __future__ import annotations

import collections.abc
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.annotations import UnresolvedAnnotation, members, only_member, resolve, strip_annotated
from amoxi_py.declare.callables import innermost, is_generator
from amoxi_py.declare.ingredient import Ingredient
from amoxi_py.declare.marks import LocalNames, get_mark, option_names
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.provides import CALL, PROCESS, ProvidesMark
from amoxi_py.declare.singleton import SingletonMark
from amoxi_py.declare.tool import ToolMark

_ITERATORS = (
    collections.abc.Iterator,
    collections.abc.Iterable,
    collections.abc.Generator,
    collections.abc.AsyncIterator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncGenerator,
)
_TOO_PLAIN = (type(None), object, Any, str, bytes, int, float, bool, list, dict, tuple, set, frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a thing is made.

    Attributes:
        kind: The type that it is asked for by.
        ingredients: What making it takes.
        open: From the ingredients by name to what gives the thing when it is entered, and closes it when it is left.
        per_call: Whether it is made for one attempt of a call, not once per process.
        function: The provider, or None for a class.
        where: What it is declared by, for messages.
    """

    kind: Any
    ingredients: tuple[Ingredient, ...]
    open: Callable[..., AbstractAsyncContextManager[Any]]
    per_call: bool = False
    function: Callable[..., Any] | None = None
    where: str

    @property
    def what(self) -> str:
        """Whose parameters the ingredients are, for messages."""
        return "the constructor" if self.function is None else "the function"


def read_class(cls: type[Any], mistakes: Mistakes) -> Recipe:
    """Read how a class is made: it is a context manager, or its instance simply is there."""
    where = class_where(cls)

    @asynccontextmanager
    async def open_it(**ingredients: Any) -> Any:
        instance = cls(**ingredients)
        if hasattr(cls, "__aenter__") and hasattr(cls, "__aexit__"):
            async with instance:
                yield instance
        elif hasattr(cls, "__enter__") and hasattr(cls, "__exit__"):
            with instance:
                yield instance
        else:
            yield instance

    return Recipe(kind=cls, ingredients=_ingredients_of_class(cls, where, mistakes), open=open_it, where=where)


def read_provider(function: Callable[..., Any], mark: ProvidesMark, mistakes: Mistakes) -> Recipe | None:
    """Read what a provider gives and asks for; None when it gives nothing that can be asked for (and note why)."""
    where = provider_where(function)
    mistakes.add_options(where, "provides", mark.unknown, option_names(ProvidesMark))
    if mark.scope not in (PROCESS, CALL):
        mistakes.add(where, f"`scope={mark.scope!r}` must be 'process' or 'call'")
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError, NameError) as error:
        mistakes.add(where, f"its signature cannot be read ({error}); wrap it in a function with typed parameters")
        return None
    kind = _given_kind(function, signature.return_annotation, mark.names, mistakes)
    parameters = list(signature.parameters.values())
    ingredients = _ingredients(function, parameters, "the function", mark.names, where, mistakes)
    if kind is None:
        return None
    return Recipe(
        kind=kind,
        ingredients=ingredients,
        open=_opener(function),
        per_call=mark.scope == CALL,
        function=function,
        where=where,
    )


def _given_kind(function: Callable[..., Any], annotation: Any, names: LocalNames, mistakes: Mistakes) -> Any:
    """Return the type that a provider gives, or None when its return type names none (and note why)."""
    where = provider_where(function)
    if annotation is inspect.Signature.empty:
        mistakes.add(
            where, "it has no return type, and gives what that says; write one, such as `-> Iterator[Session]`"
        )
        return None
    try:
        hint = strip_annotated(resolve(annotation, function, names))
    except UnresolvedAnnotation as error:
        mistakes.add(where, f"what it returns {error}")
        return None
    if _yields(function):
        if get_origin(hint) not in _ITERATORS:
            shown = "AsyncIterator" if inspect.isasyncgenfunction(_unwrapped(function)) else "Iterator"
            mistakes.add(where, f"it is a generator, so its return type must be `{shown}[...]` of what it gives")
            return None
        hint = strip_annotated(get_args(hint)[0])
    alternatives = members(hint)
    if len(alternatives) != 1:
        mistakes.add(where, f"its return type {shown_kind(hint)!r} names several types; give one, such as their base")
        return None
    if any(alternatives[0] is plain for plain in _TOO_PLAIN):
        mistakes.add(
            where,
            f"it gives {shown_kind(alternatives[0])!r}, which many things are; "
            "return a class of your own, or a `NewType`",
        )
        return None
    return alternatives[0]


def class_where(cls: type[Any]) -> str:
    """Return how messages name a class that is made."""
    return f"{cls.__module__}: {'singleton' if get_mark(cls, SingletonMark) else 'class'} {cls.__qualname__!r}"


def provider_where(function: Callable[..., Any]) -> str:
    """Return how messages name a provider."""
    named = innermost(function)
    name = getattr(named, "__qualname__", type(named).__qualname__)
    return f"{getattr(named, '__module__', '?')}: provider {name!r}"


def shown_kind(kind: Any) -> str:
    """Return a type as a developer wrote it, or nearly."""
    return kind.__qualname__ if isinstance(kind, type) and not get_args(kind) else str(kind)


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    unwrapped: Callable[..., Any] = inspect.unwrap(innermost(function))
    return unwrapped


def _yields(function: Callable[..., Any]) -> bool:
    """Whether it gives its thing by a `yield`; one that `contextlib` has wrapped already counts."""
    return is_generator(_unwrapped(function))


def _opener(function: Callable[..., Any]) -> Callable[..., AbstractAsyncContextManager[Any]]:
    """Return what makes a provider's thing, whatever kind of function it is."""
    entered = _yields(function)

    @asynccontextmanager
    async def open_it(**ingredients: Any) -> Any:
        made = function(**ingredients)
        if inspect.isawaitable(made):
            made = await made
        if inspect.isasyncgen(made):
            made = asynccontextmanager(lambda: made)()
        elif inspect.isgenerator(made):
            made = contextmanager(lambda: made)()
        elif not entered:
            made = nullcontext(made)
        if hasattr(made, "__aenter__"):
            async with made as thing:
                yield thing
        else:
            with made as thing:
                yield thing

    return open_it


def _ingredients_of_class(cls: type[Any], where: str, mistakes: Mistakes) -> tuple[Ingredient, ...]:
    if inspect.isabstract(cls) or getattr(cls, "_is_protocol", False):
        mistakes.add(where, "the class is abstract, so it cannot be made; mark a class that implements it")
        return ()
    constructor = cls.__init__
    if constructor is object.__init__:
        return ()
    parameters = list(inspect.signature(constructor).parameters.values())[1:]
    return _ingredients(constructor, parameters, "the constructor", _names_of(cls), where, mistakes)


def _names_of(cls: type[Any]) -> LocalNames:
    """Return the names around the class, as one of the decorators on it or in it saw them."""
    for thing in (cls, *vars(cls).values()):
        mark = get_mark(thing, SingletonMark) or get_mark(thing, AgentMark) or get_mark(thing, ToolMark)
        if mark is not None:
            return mark.names
    return LocalNames()


def _ingredients(
    function: Callable[..., Any],
    parameters: list[inspect.Parameter],
    what: str,
    names: LocalNames,
    where: str,
    mistakes: Mistakes,
) -> tuple[Ingredient, ...]:
    found = []
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        optional = parameter.default is not parameter.empty
        at = f"{where}: parameter {parameter.name!r} of {what}"
        kind = _kind(function, parameter, names, at, mistakes)
        if kind is not None:
            found.append(Ingredient(name=parameter.name, kind=kind, optional=optional))
    return tuple(found)


def _kind(
    function: Callable[..., Any], parameter: inspect.Parameter, names: LocalNames, at: str, mistakes: Mistakes
) -> Any:
    optional = parameter.default is not parameter.empty
    if parameter.kind is parameter.POSITIONAL_ONLY:
        if not optional:
            mistakes.add(at, "it is positional only, and things are injected by name; remove the `/`")
    elif parameter.annotation is parameter.empty:
        if not optional:
            mistakes.add(at, "it has no type, and things are injected by type; write one, or give it a default")
    else:
        try:
            return only_member(resolve(parameter.annotation, function, names))
        except UnresolvedAnnotation as error:
            if not optional:
                mistakes.add(at, str(error))
    return None
