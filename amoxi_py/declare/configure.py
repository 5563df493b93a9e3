"""`@configure`: functions that add an app's own routes, middleware and handlers to the web application."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.asked_function import read_asked_function
from amoxi_py.declare.callables import is_async
from amoxi_py.declare.callee import Callee
from amoxi_py.declare.marks import LocalNames, get_mark, local_names, set_mark
from amoxi_py.declare.mistakes import Mistakes
from amoxi_py.declare.recipe import shown_kind
from amoxi_py.declare.settings import is_settings

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureMark:
    """Says that a function is called with the web application; `names` are those that its annotations may use."""

    names: LocalNames


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureFunction:
    """A function that is called with the web application, and the settings that it gets, by parameter."""

    function: Callable[..., Any]
    wanted: Mapping[str, type[Any]]

    def call(self, app: Any, models: Mapping[type[Any], Any]) -> None:
        """Call it; `models` are the settings of the app's own, by class."""
        self.function(app, **{name: models[kind] for name, kind in self.wanted.items()})


def configure(function: F) -> F:
    """Have a function called with the FastAPI application when it is made: `(app) -> None`.

    By the types of its other parameters it gets models that are marked with `@settings`, such as the secret that a
    middleware signs with. Other things are made later, when the process starts.
    """
    set_mark(function, ConfigureMark(names=local_names(sys._getframe(1))), "configure")
    return function


def read_configure(function: Callable[..., Any], where: str, mistakes: Mistakes) -> ConfigureFunction | None:
    """Return how a function is called with the web application, or None when it cannot be (and note why)."""
    mark = get_mark(function, ConfigureMark)
    assert mark is not None, "it was found by its mark"
    if is_async(function):
        mistakes.add(where, "@configure is for plain functions, not async ones: it runs before the server does")
    asked = read_asked_function(
        Callee(function=function), "(app: FastAPI) -> None", 1, "@configure", mark.names, where, mistakes
    )
    if asked is None:
        return None
    for name, kind in asked.wanted.items():
        if not is_settings(kind):
            mistakes.add(
                where,
                f"@configure takes {name!r}, but {shown_kind(kind)!r} is made when the process starts, and the "
                "application before; only models with @settings are there by then",
            )
    return ConfigureFunction(function=function, wanted=asked.wanted)
