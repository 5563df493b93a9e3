"""Makes each `@singleton` once, gives its constructor what it asks for by type, and leaves it at the stop."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dishka import AsyncContainer, Provider, Scope, make_async_container
from dishka.exceptions import CycleDependenciesError

from amoxi_py.declare.agent import AgentMark
from amoxi_py.declare.annotations import UnresolvedAnnotation, members, resolve, strip_annotated
from amoxi_py.declare.marks import LocalNames, get_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.singleton import SingletonMark
from amoxi_py.declare.tool import ToolMark


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredient:
    """A constructor parameter: its type, and whether it may be left out."""

    name: str
    kind: Any
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a class is made."""

    cls: type[Any]
    ingredients: tuple[Ingredient, ...]


class OpenInstances:
    """The instances that were made, by class."""

    def __init__(self, made: Mapping[Any, Any]) -> None:
        self._made = made

    def get(self, kind: type[Any]) -> Any:
        """Return the instance; raise `LookupError` when there is none."""
        try:
            return self._made[kind]
        except KeyError:
            raise LookupError(f"nothing of type {kind.__qualname__!r} was made; declare it with @singleton") from None


@asynccontextmanager
async def open_instances(
    singletons: Iterable[type[Any]], values: Mapping[type[Any], Any] | None = None
) -> AsyncIterator[OpenInstances]:
    """Make every singleton, enter those that are context managers, and leave them in reverse order at the end.

    Args:
        singletons: The classes, as `read_recipes` gives them.
        values: Ready instances by type; such a type is not made, even when it is a singleton.

    Raises:
        DeclarationError: something cannot be made.
    """
    mistakes = Mistakes()
    made = dict(values or {})
    recipes = read_recipes(singletons, made.keys(), mistakes)
    mistakes.raise_if_any()
    container = _container(recipes, made.keys(), made)
    try:
        for recipe in recipes:
            made[recipe.cls] = await container.get(recipe.cls)
        yield OpenInstances(made)
    finally:
        await container.close()


def read_recipes(
    singletons: Iterable[type[Any]], provided: Collection[type[Any]], mistakes: Mistakes
) -> tuple[Recipe, ...]:
    """Read the constructors of these classes and of the singletons that they ask for, and note what cannot work.

    Args:
        singletons: Classes to make.
        provided: Types whose instances come from elsewhere.
        mistakes: Where a cycle, a missing type or an unreadable parameter is noted.
    """
    classes = dict.fromkeys(cls for cls in singletons if cls not in provided)
    queue, read = list(classes), dict[type[Any], tuple[Ingredient, ...]]()
    while queue:
        cls = queue.pop(0)
        read[cls] = _ingredients(cls, mistakes)
        for ingredient in read[cls]:
            kind = ingredient.kind
            if (
                isinstance(kind, type)
                and kind not in provided
                and kind not in classes
                and get_mark(kind, SingletonMark) is not None
            ):
                classes[kind] = None
                queue.append(kind)
    known = {*classes, *provided}
    recipes = []
    for cls in classes:
        kept = []
        for ingredient in read[cls]:
            if ingredient.kind in known:
                kept.append(ingredient)
            elif not ingredient.optional:
                mistakes.add(_where(cls), _missing(ingredient, known))
        recipes.append(Recipe(cls=cls, ingredients=tuple(kept)))
    _note_cycles(recipes, provided, mistakes)
    return tuple(recipes)


def _ingredients(cls: type[Any], mistakes: Mistakes) -> tuple[Ingredient, ...]:
    where = _where(cls)
    if inspect.isabstract(cls) or getattr(cls, "_is_protocol", False):
        mistakes.add(where, "the class is abstract, so it cannot be made; mark a class that implements it")
        return ()
    constructor = cls.__init__
    if constructor is object.__init__:
        return ()
    names = _names_of(cls)
    found = []
    for parameter in list(inspect.signature(constructor).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = _kind(constructor, parameter, names, where, mistakes)
        if kind is not None:
            optional = parameter.default is not parameter.empty
            found.append(Ingredient(name=parameter.name, kind=kind, optional=optional))
    return tuple(found)


def _names_of(cls: type[Any]) -> LocalNames:
    """Return the names around the class, as one of the decorators on it or in it saw them."""
    for thing in (cls, *vars(cls).values()):
        mark = get_mark(thing, SingletonMark) or get_mark(thing, AgentMark) or get_mark(thing, ToolMark)
        if mark is not None:
            return mark.names
    return LocalNames()


def _kind(
    constructor: Callable[..., Any], parameter: inspect.Parameter, names: LocalNames, where: str, mistakes: Mistakes
) -> Any:
    optional = parameter.default is not parameter.empty
    at = f"{where}: parameter {parameter.name!r} of the constructor"
    if parameter.kind is parameter.POSITIONAL_ONLY:
        if not optional:
            mistakes.add(at, "it is positional only, and things are injected by name; remove the `/`")
    elif parameter.annotation is parameter.empty:
        if not optional:
            mistakes.add(at, "it has no type, and things are injected by type; write one, or give it a default")
    else:
        try:
            hint = strip_annotated(resolve(parameter.annotation, constructor, names))
        except UnresolvedAnnotation as error:
            if not optional:
                mistakes.add(at, str(error))
            return None
        alternatives = members(hint)
        return alternatives[0] if len(alternatives) == 1 else hint
    return None


def _missing(ingredient: Ingredient, known: set[Any]) -> str:
    kind = ingredient.kind
    shown = kind.__qualname__ if isinstance(kind, type) else str(kind)
    heirs = (
        [cls.__qualname__ for cls in known if isinstance(cls, type) and kind in cls.__mro__]
        if isinstance(kind, type)
        else []
    )
    out = (
        f"ask for {' or '.join(sorted(heirs))} instead"
        if heirs
        else "mark the class with @singleton, or give a default"
    )
    return f"parameter {ingredient.name!r} of the constructor asks for {shown!r}, which nothing provides; {out}"


def _note_cycles(recipes: list[Recipe], provided: Collection[type[Any]], mistakes: Mistakes) -> None:
    remaining = list(recipes)
    while True:
        made = {recipe.cls for recipe in remaining}
        known = {*made, *provided}
        sound = [
            Recipe(cls=recipe.cls, ingredients=tuple(i for i in recipe.ingredients if i.kind in known))
            for recipe in remaining
        ]
        try:
            _container(sound, provided, {})
            return
        except CycleDependenciesError as error:
            circle = [factory.provides.type_hint for factory in error.path]
            names = " -> ".join(cls.__qualname__ for cls in (*circle, circle[0]))
            mistakes.add(
                _where(circle[0]), f"the constructors ask for each other in a circle: {names}; pass one of them later"
            )
            remaining = [recipe for recipe in remaining if recipe.cls not in circle]


def _container(
    recipes: Iterable[Recipe], provided: Iterable[type[Any]], values: Mapping[type[Any], Any]
) -> AsyncContainer:
    provider = Provider(scope=Scope.APP)
    for kind in provided:
        provider.from_context(provides=kind, scope=Scope.APP)
    for recipe in recipes:
        provider.provide(_factory(recipe), provides=recipe.cls)
    return make_async_container(provider, context=dict(values))


def _factory(recipe: Recipe) -> Callable[..., Any]:
    """Return an async generator function whose signature tells the container what the class asks for."""
    cls = recipe.cls

    async def make(**ingredients: Any) -> AsyncIterator[Any]:
        instance = cls(**ingredients)
        if hasattr(cls, "__aenter__") and hasattr(cls, "__aexit__"):
            async with instance:
                yield instance
        elif hasattr(cls, "__enter__") and hasattr(cls, "__exit__"):
            with instance:
                yield instance
        else:
            yield instance

    parameters = [
        inspect.Parameter(ingredient.name, inspect.Parameter.KEYWORD_ONLY, annotation=ingredient.kind)
        for ingredient in recipe.ingredients
    ]
    make.__name__ = cls.__name__
    make.__annotations__ = {ingredient.name: ingredient.kind for ingredient in recipe.ingredients}
    make.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # any function may carry one
    return make


def _where(cls: type[Any]) -> str:
    return f"{cls.__module__}: {'singleton' if get_mark(cls, SingletonMark) else 'class'} {cls.__qualname__!r}"
