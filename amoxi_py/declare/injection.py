"""Makes what is injected by type: once per process, left at the stop, and once for each attempt of a call.

The container resolves what asks for what. What is made per call is closed as nested `with` blocks would be, innermost
first, each hearing the error that comes out of the one inside it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any, TypeVar, cast

from dishka import AsyncContainer, Provider, Scope, make_async_container
from dishka.exceptions import CycleDependenciesError

from amoxi_py.declare.callables import ThreadHost
from amoxi_py.declare.context import CallContext, RunContext
from amoxi_py.declare.ingredient import Ingredient, Wish
from amoxi_py.declare.marks import get_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.opening import Openings
from amoxi_py.declare.provides import ProvidesMark
from amoxi_py.declare.recipe import Recipe, read_class, read_provider, shown_kind
from amoxi_py.declare.settings import is_settings
from amoxi_py.declare.singleton import SingletonMark
from amoxi_py.errors import InstanceFailed

T = TypeVar("T")
Providers = Iterable[Callable[..., Any]]


class OpenInstances:
    """The things that were made, by type; what is made per call comes from `container`."""

    def __init__(
        self, made: Mapping[Any, Any], container: AsyncContainer | None = None, per_call: Collection[Any] = ()
    ) -> None:
        self._made = made
        self._container = container
        self._per_call = frozenset(per_call)

    def get(self, kind: Any) -> Any:
        """Return the instance; raise `LookupError` when there is none."""
        try:
            return self._made[kind]
        except KeyError:
            shown = shown_kind(kind)
            raise LookupError(f"nothing of type {shown!r} was made; declare it with @singleton or @provides") from None

    async def inject(
        self, wanted: Iterable[Ingredient], ctx: RunContext, use: Callable[[dict[str, Any]], Awaitable[T]]
    ) -> T:
        """Return what `use` does with the things that are wanted, by name; what is made for it is closed after it."""
        given: dict[str, Any] = {}
        per_call: list[Ingredient] = []
        for one in wanted:
            if one.kind in self._per_call:
                per_call.append(one)
            elif one.kind in self._made or not one.optional:
                given[one.name] = self.get(one.kind)
        if not per_call:
            return await use(given)
        assert self._container is not None
        failure: BaseException | None = None
        try:
            async with AsyncExitStack() as stack:
                container = self._container(context={RunContext: ctx, AsyncExitStack: stack})
                try:
                    for one in per_call:
                        given[one.name] = await container.get(one.kind)
                    value = await use(given)
                    if isinstance(ctx, CallContext):
                        ctx.signal.raise_if_cancelled()  # what nobody waits for any more must not be kept
                except BaseException as error:
                    failure = error
                    await cast(ThreadHost, ctx).threads_end()  # a thread may still use what would be closed here
                    raise
            if failure is not None:  # a provider has kept the error to itself, but the call failed all the same
                raise failure
            return value
        finally:
            failure = None  # an error knows this frame; what the frame knows must not lead back to the error


@asynccontextmanager
async def open_instances(
    singletons: Iterable[type[Any]], values: Mapping[Any, Any] | None = None, providers: Providers = ()
) -> AsyncIterator[OpenInstances]:
    """Make everything that is there once per process, enter context managers, and leave them in reverse at the end.

    Args:
        singletons: The classes, as `read_recipes` gives them.
        values: Ready instances by type; such a type is not made, even when it is a singleton or provided.
        providers: Functions that are marked with `@provides`.

    Raises:
        DeclarationError: something cannot be made.
        InstanceFailed: something failed to open; or, when nothing else did, to close. All others are closed.
    """
    mistakes = Mistakes()
    made = dict(values or {})
    recipes = read_recipes(singletons, made.keys(), mistakes, providers=providers)
    mistakes.raise_if_any()
    openings = Openings()
    container = _container(recipes, made.keys(), made, openings)
    try:
        for recipe in recipes:
            if not recipe.per_call:
                made[recipe.kind] = await container.get(recipe.kind)
        yield OpenInstances(made, container, [recipe.kind for recipe in recipes if recipe.per_call])
    except BaseException:
        await openings.close()
        raise
    failures = await openings.close()
    if failures:
        raise InstanceFailed("\n".join(failures))


def read_recipes(
    singletons: Iterable[type[Any]],
    provided: Collection[Any],
    mistakes: Mistakes,
    *,
    providers: Providers = (),
    nearby: Providers = (),
    wishes: Iterable[Wish] = (),
) -> tuple[Recipe, ...]:
    """Read how these things are made, and the singletons that they and tools ask for; note what cannot work.

    Args:
        singletons: Classes to make.
        provided: Types whose instances come from elsewhere.
        mistakes: Where a circle, a missing type, a second provider or an unreadable parameter is noted.
        providers: Functions that are marked with `@provides`.
        nearby: More of them, which count when something asks for what they give.
        wishes: What tools want.
    """
    wishes = tuple(wishes)
    offers = _offers(nearby)
    recipes: dict[Any, Recipe] = {}
    _add((_read(function, mistakes) for function in dict.fromkeys(providers)), recipes, provided, mistakes)
    asked = [one.kind for recipe in recipes.values() for one in recipe.ingredients]
    classes = dict.fromkeys(singletons)
    queue = [*classes, *asked, *(wish.ingredient.kind for wish in wishes)]
    while queue:
        kind = queue.pop(0)
        if kind in provided:
            continue
        known = recipes.get(kind)
        found: list[Recipe | None] = []
        if kind in classes or _is_singleton(kind):
            if known is None or known.function is not None:
                found = [read_class(kind, mistakes)]
        elif known is None:
            found = [_read(function, mistakes) for function in offers.get(kind, ())]
        queue += [one.kind for recipe in _add(found, recipes, provided, mistakes) for one in recipe.ingredients]
    # Classes first, in their declared order: what functions give is made when it is asked for, or after them.
    in_order = sorted(recipes.values(), key=lambda recipe: recipe.function is not None)
    return _check(in_order, provided, wishes, mistakes)


def _read(function: Callable[..., Any], mistakes: Mistakes) -> Recipe | None:
    mark = get_mark(function, ProvidesMark)
    assert mark is not None
    return read_provider(function, mark, mistakes)


def _offers(nearby: Providers) -> dict[Any, list[Callable[..., Any]]]:
    """Return functions that may be needed, by what they give; what is wrong with the others is of no interest."""
    offers: dict[Any, list[Callable[..., Any]]] = {}
    for function in dict.fromkeys(nearby):
        recipe = _read(function, Mistakes())
        if recipe is not None:
            offers.setdefault(recipe.kind, []).append(function)
    return offers


def _add(
    found: Iterable[Recipe | None], recipes: dict[Any, Recipe], provided: Collection[Any], mistakes: Mistakes
) -> list[Recipe]:
    """Add recipes to the others and return the new ones; note a second one of a type."""
    new = []
    for recipe in found:
        if recipe is None or recipe.kind in provided:
            continue
        other = recipes.setdefault(recipe.kind, recipe)
        if other is recipe:
            new.append(recipe)
            continue
        second, first = (other, recipe) if recipe.function is None else (recipe, other)
        mistakes.add(
            second.where,
            f"{shown_kind(recipe.kind)!r} is given by {first.where} too; "
            "take one of both, or let each give a `NewType` of its own",
        )
    return new


def _is_singleton(kind: Any) -> bool:
    return isinstance(kind, type) and get_mark(kind, SingletonMark) is not None


def _check(
    recipes: Collection[Recipe], provided: Collection[Any], wishes: Collection[Wish], mistakes: Mistakes
) -> tuple[Recipe, ...]:
    """Note what nothing gives, and return the recipes without it and without what may be left out."""
    per_call = {RunContext, *(recipe.kind for recipe in recipes if recipe.per_call)}
    once = {*provided, *(recipe.kind for recipe in recipes if not recipe.per_call)}
    asked = [one.kind for recipe in recipes for one in recipe.ingredients]
    once |= {kind for kind in (*asked, *(wish.ingredient.kind for wish in wishes)) if is_settings(kind)}
    sound = []
    for recipe in recipes:
        kept = []
        for one in recipe.ingredients:
            if one.kind in once or (recipe.per_call and one.kind in per_call):
                kept.append(one)
            elif one.kind in per_call:
                mistakes.add(recipe.where, _too_short(f"parameter {one.name!r} of {recipe.what}", one.kind, recipe))
            elif not one.optional:
                mistakes.add(recipe.where, _missing(f"parameter {one.name!r} of {recipe.what}", one.kind, once))
        sound.append(replace(recipe, ingredients=tuple(kept)))
    for wish in wishes:
        one = wish.ingredient
        if one.kind in per_call and wish.once:
            mistakes.add(wish.where, _too_short(wish.asker, one.kind, None))
        elif one.kind not in once and one.kind not in per_call and not one.optional:
            mistakes.add(wish.where, _missing(wish.asker, one.kind, {*once, *per_call}))
    _note_circles(sound, once, mistakes)
    return tuple(sound)


def _too_short(asker: str, kind: Any, recipe: Recipe | None) -> str:
    shown = shown_kind(kind)
    way_out = "take what makes it, such as a factory"
    if recipe is not None and recipe.function is None:
        way_out = f"let the method take it as `Annotated[{shown}, Inject]`, or {way_out}"
    elif recipe is not None:
        way_out = f'give the function `scope="call"` too, or {way_out}'
    return f"{asker} asks for {shown!r}, which is there per call, not once per process; {way_out}"


def _missing(asker: str, kind: Any, known: Collection[Any]) -> str:
    heirs = (
        [shown_kind(other) for other in known if isinstance(other, type) and kind in other.__mro__]
        if isinstance(kind, type)
        else []
    )
    if heirs:
        out = f"ask for {' or '.join(sorted(heirs))} instead"
    else:
        out = "mark the class with @singleton, write a function with @provides that returns it, or give a default"
    return f"{asker} asks for {shown_kind(kind)!r}, which nothing provides; {out}"


def _note_circles(recipes: Iterable[Recipe], once: Collection[Any], mistakes: Mistakes) -> None:
    remaining = list(recipes)
    ready = set(once) - {recipe.kind for recipe in remaining}
    while True:
        known = {RunContext, *ready, *(recipe.kind for recipe in remaining)}
        sound = [
            replace(recipe, ingredients=tuple(one for one in recipe.ingredients if one.kind in known))
            for recipe in remaining
        ]
        try:
            _container(sound, ready, {}, Openings())
            return
        except CycleDependenciesError as error:
            circle = [factory.provides.type_hint for factory in error.path]
            names = " -> ".join(shown_kind(kind) for kind in (*circle, circle[0]))
            where = next(recipe.where for recipe in remaining if recipe.kind == circle[0])
            mistakes.add(where, f"they ask for each other in a circle: {names}; pass one of them later")
            remaining = [recipe for recipe in remaining if recipe.kind not in circle]


def _container(
    recipes: Iterable[Recipe], provided: Iterable[Any], values: Mapping[Any, Any], openings: Openings
) -> AsyncContainer:
    provider = Provider(scope=Scope.APP)
    for kind in provided:
        provider.from_context(provides=kind, scope=Scope.APP)
    for kind in (RunContext, AsyncExitStack):
        provider.from_context(provides=kind, scope=Scope.REQUEST)
    for recipe in recipes:
        if recipe.per_call:
            provider.provide(_made_per_call(recipe), provides=recipe.kind, scope=Scope.REQUEST)
        else:
            provider.provide(_made_once(recipe, openings), provides=recipe.kind)
    return make_async_container(provider, context=dict(values))


def _made_once(recipe: Recipe, openings: Openings) -> Callable[..., Any]:
    async def make(**ingredients: Any) -> Any:
        return await openings.open(recipe.where, recipe.open(**ingredients))

    return _asking(make, recipe.ingredients, recipe)


def _made_per_call(recipe: Recipe) -> Callable[..., Any]:
    """Return what makes a thing and leaves the closing to the stack of the attempt."""

    async def make(attempt_: AsyncExitStack, **ingredients: Any) -> Any:
        return await attempt_.enter_async_context(recipe.open(**ingredients))

    stack = Ingredient(name="attempt_", kind=AsyncExitStack, optional=False)
    return _asking(make, (stack, *recipe.ingredients), recipe)


def _asking(make: Callable[..., Any], ingredients: Iterable[Ingredient], recipe: Recipe) -> Callable[..., Any]:
    """Give a function the signature that tells the container what it asks for."""
    ingredients = tuple(ingredients)
    make.__name__ = getattr(recipe.kind, "__name__", "thing")
    make.__annotations__ = {one.name: one.kind for one in ingredients}
    make.__signature__ = Signature(  # type: ignore[attr-defined]  # any function may carry one
        [Parameter(one.name, Parameter.KEYWORD_ONLY, annotation=one.kind) for one in ingredients]
    )
    return make
