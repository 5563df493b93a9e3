"""What is called for a declaration: a function as it is, or a method of the one instance of its class."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any

from amoxi_py.declare.callables import innermost
from amoxi_py.declare.definitions import Instances


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """A function; with an `owner`, the method `attribute` of that class's instance."""

    function: Callable[..., Any]
    owner: type[Any] | None = None
    attribute: str = ""

    @property
    def module(self) -> str:
        """The module that defines it."""
        return str(getattr(innermost(self.function), "__module__", None) or "?")

    @property
    def qualified_name(self) -> str:
        """Its name with the classes around it."""
        if self.owner is not None:
            return f"{self.owner.__qualname__}.{self.attribute}"
        named = innermost(self.function)
        return str(getattr(named, "__qualname__", type(named).__qualname__))

    @property
    def name(self) -> str:
        """Its own name."""
        named = innermost(self.function)
        return self.attribute or str(getattr(named, "__name__", type(named).__name__))

    def parameters(self) -> list[inspect.Parameter]:
        """Return what it takes when it is called, without the instance; raises what `inspect.signature` raises."""
        return list(inspect.signature(self.function).parameters.values())[1 if self.owner else 0 :]

    def bind(self, instances: Instances) -> Callable[..., Any]:
        """Return what can be called without an instance."""
        if self.owner is None:
            return self.function
        bound: Callable[..., Any] = getattr(instances.get(self.owner), self.attribute)
        return bound


def callee_in_class(owner: type[Any], attribute: str) -> Callee:
    """Return the method of a class; static and class methods need no instance."""
    member = inspect.getattr_static(owner, attribute)
    if isinstance(member, (staticmethod, classmethod)):
        return Callee(function=getattr(owner, attribute))
    return Callee(function=member, owner=owner, attribute=attribute)


def is_method_of_a_class(function: Any) -> bool:
    """Whether a function stands in a class body, so that it needs an instance or a class."""
    around = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(around) and not around.endswith("<locals>") and not isinstance(function, MethodType)


def attribute_of(owner: type[Any], function: Any) -> str | None:
    """Return under which name a class holds a function as its method."""
    for name in (getattr(function, "__name__", ""), *dir(owner)):
        member = inspect.getattr_static(owner, name, None) if name else None
        if member is function or (isinstance(member, (staticmethod, classmethod)) and member.__func__ is function):
            return name
    return None


def owners_of(function: Any, known: Iterable[type[Any]]) -> list[type[Any]]:
    """Return the classes that a single method may belong to: the one that defines it, else those that inherit it."""
    holders = [cls for cls in known if attribute_of(cls, function) is not None]
    qualified = function.__qualname__.rpartition(".")[0]
    found: Any = sys.modules.get(function.__module__)
    for part in qualified.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and found not in holders and attribute_of(found, function) is not None:
        holders.append(found)
    defining = [cls for cls in holders if cls.__qualname__ == qualified and cls.__module__ == function.__module__]
    return defining or holders
