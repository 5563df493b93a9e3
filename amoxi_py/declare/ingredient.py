"""What something is given by its type: a parameter of a constructor, of a provider, or of a tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredient:
    """A parameter: its type, and whether it may be left out."""

    name: str
    kind: Any
    optional: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A parameter of a tool or a handler, and where messages say it stands; with `once` no thing per call will do."""

    where: str
    ingredient: Ingredient
    once: bool = False

    @property
    def asker(self) -> str:
        """Who asks, for messages."""
        return f"parameter {self.ingredient.name!r}" if self.ingredient.name else "it"


class Wishes:
    """Collects what the tools of an app are to be given, so that it can be looked for when all is known."""

    def __init__(self) -> None:
        self._wishes: list[Wish] = []

    def add(self, where: str, ingredients: Iterable[Ingredient], *, once: bool = False) -> None:
        """Note what the parameters of one function want."""
        self._wishes += [Wish(where=where, ingredient=ingredient, once=once) for ingredient in ingredients]

    def __iter__(self) -> Iterator[Wish]:
        return iter(self._wishes)
