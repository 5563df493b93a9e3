"""`@configure`: functions that add an app's own routes, middleware and handlers to the web application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from amoxi_py.declare.marks import set_mark

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureMark:
    """Says that a function is called with the web application before it serves."""


def configure(function: F) -> F:
    """Have a function called with the FastAPI application when it is made: `(app) -> None`."""
    set_mark(function, ConfigureMark(), "configure")
    return function
